"""Kubernetes' deployer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from packager.addons.deploy.kubernetes.capture import with_capture
from packager.addons.deploy.kubernetes.checks import check_cluster, check_scaling, check_several
from packager.addons.deploy.kubernetes.documents import render_object
from packager.addons.deploy.kubernetes.objects import kubernetes_objects, kustomization
from packager.addons.deploy.kubernetes.patching import patched
from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.core.deployment import Deployment, RenderedFiles
from packager.core.errors import UsageError
from packager.core.findings import Finding, errors_in

MakeObjects = Callable[[Deployment, KubernetesSpec], Mapping[str, Any]]


class KubernetesDeployer:
    """Describes a Deployment or LeaderWorkerSet with what belongs to it."""

    name = "kubernetes"

    def check(self, deployment: Deployment, wanted: KubernetesSpec) -> Iterator[Finding]:
        """Yield findings for what a cluster would refuse, kill or ignore."""
        yield from check_cluster(deployment, wanted)
        yield from check_scaling(deployment, wanted)
        yield from check_several(deployment)
        if wanted.scaler == "none" and (wanted.max_replicas > wanted.replicas or wanted.prometheus):
            raise UsageError(
                "--max-replicas and --prometheus are for an autoscaler, and none is asked for",
                hint="give --scaler hpa or keda, or leave them out",
            )
        if wanted.monitor and not deployment.metrics_path:
            what = "no path of metrics is known: nothing is monitored"
            yield Finding("warning", "deploy-no-metrics", what, "leave --monitor out")

    def objects(self, deployment: Deployment, wanted: KubernetesSpec) -> Mapping[str, Any]:
        """Return the objects by the names of their files, in the order to apply them."""
        return patched(kubernetes_objects(with_capture(deployment, wanted), wanted), wanted)

    def render(self, deployment: Deployment, wanted: KubernetesSpec) -> RenderedFiles:
        """Return a directory that `kubectl apply -k` takes."""
        findings = tuple(self.check(deployment, wanted))
        return render_files(self.objects, deployment, wanted, findings)


def render_files(
    make: MakeObjects,
    deployment: Deployment,
    wanted: KubernetesSpec,
    findings: tuple[Finding, ...],
) -> RenderedFiles:
    """Return objects as files with a kustomization; none where a finding is an error."""
    if errors_in(findings):
        return RenderedFiles(files=(), findings=findings)
    objects = make(deployment, wanted)
    files = [render_object(path, one) for path, one in objects.items()]
    files.append(render_object("kustomization.yaml", kustomization(list(objects))))
    return RenderedFiles(files=tuple(files), findings=findings)


def one_node(deployment: Deployment, what: str) -> None:
    """Raise `UsageError` where a platform runs a replica on one node only."""
    if deployment.nodes > 1:
        raise UsageError(
            f"{what} runs a replica on one node, and the image needs {deployment.nodes}",
            hint="use `packager deploy kubernetes`, or `deploy kserve --llm`",
        )
