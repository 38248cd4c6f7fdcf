"""HyperPod's deployer: InferenceEndpointConfig of its inference operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from packager.addons.deploy.checks import check_grace
from packager.addons.deploy.kubernetes.checks import check_cluster
from packager.addons.deploy.kubernetes.deployer import one_node, render_files
from packager.addons.deploy.kubernetes.machines import resources
from packager.addons.deploy.kubernetes.objects import metadata
from packager.addons.deploy.kubernetes.patching import patched
from packager.addons.deploy.kubernetes.pods import (
    ended,
    environment,
    literal,
    probes,
    times_of,
    volumes,
)
from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.core.deployment import Deployment, RenderedFiles
from packager.core.errors import UsageError
from packager.core.findings import Finding
from packager.core.references import parse_bucket_place
from packager.core.serving import MOUNTED_MODEL_DIR
from packager.core.stopping import PLATFORM_GRACE_S

API = "inference.sagemaker.aws.amazon.com/v1"


class HyperPodDeployer:
    """Describes one InferenceEndpointConfig."""

    name = "hyperpod"

    def check(self, deployment: Deployment, wanted: KubernetesSpec) -> Iterator[Finding]:
        """Yield findings for what the operator would refuse or ignore."""
        one_node(deployment, "an InferenceEndpointConfig")
        if wanted.scaler != "none" or wanted.monitor or wanted.prepull:
            raise UsageError(
                "HyperPod's operator makes autoscalers and monitors by itself",
                hint="leave --scaler, --monitor and --prepull out",
            )
        if wanted.pull_secret:
            raise UsageError(
                "HyperPod's operator takes no pull secret",
                hint="give the service account one, and name it with --service-account",
            )
        found = check_cluster(deployment, wanted)
        skipped = ("deploy-weights-unmounted", "deploy-grace-short")
        yield from (one for one in found if one.code not in skipped)
        for one in check_grace(ended(deployment, wanted), PLATFORM_GRACE_S):
            yield replace(one, hint="the operator has no field for it: Kubernetes' own 30 s hold")
        if deployment.instance.cloud != "sagemaker":
            what = f"{deployment.instance.name} is no instance type of HyperPod"
            yield Finding("error", "deploy-hyperpod-instance", what, "name one as ml.g5.xlarge")
        if deployment.weights.uri and not wanted.region:
            what = "HyperPod reads a bucket with its region, and none is named"
            yield Finding("error", "deploy-hyperpod-region", what, "give --region")
        if deployment.read_only_root:
            what = "the operator sets no security context: the root file system stays writable"
            hint = "limit it by a policy of the cluster"
            yield Finding("note", "deploy-hyperpod-context", what, hint)
        if deployment.devices > 1:
            what = "the operator mounts weights only: /dev/shm stays as the runtime makes it"
            hint = "set NCCL_SHM_DISABLE=1 where the server ends with a bus error"
            yield Finding("warning", "deploy-hyperpod-shm", what, hint)

    def objects(self, deployment: Deployment, wanted: KubernetesSpec) -> Mapping[str, Any]:
        """Return the one object."""
        made = {"10-inference-endpoint-config.yaml": endpoint_config(deployment, wanted)}
        return patched(made, wanted)

    def render(self, deployment: Deployment, wanted: KubernetesSpec) -> RenderedFiles:
        """Return a directory that `kubectl apply -k` takes."""
        findings = tuple(self.check(deployment, wanted))
        return render_files(self.objects, deployment, wanted, findings)


def endpoint_config(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return an InferenceEndpointConfig; with baked weights its required volume is unused."""
    times = times_of(deployment, wanted)
    name = f"ml.{deployment.instance.name.removeprefix('ml.')}"
    spec: dict[str, Any] = {
        "modelName": deployment.name,
        "endpointName": deployment.name,
        "instanceType": name,
        "replicas": wanted.replicas,
        "maxDeployTimeInSeconds": times.deadline_s,
        "modelSourceConfig": _source(deployment, wanted),
        "worker": _worker(deployment, wanted),
        "kubernetes": _pod(deployment, wanted),
        "loadBalancer": {"healthCheckPath": deployment.health_path},
    }
    if wanted.node_selector:
        spec["nodeAffinity"] = _affinity(wanted.node_selector)
    if deployment.metrics_path:
        reported = {"path": deployment.metrics_path, "port": deployment.port}
        spec["metrics"] = {"enabled": True, "modelMetrics": reported}
    return {
        "apiVersion": API,
        "kind": "InferenceEndpointConfig",
        "metadata": metadata(deployment, wanted),
        "spec": spec,
    }


def _source(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    place = parse_bucket_place(deployment.weights.uri) if deployment.weights.uri else None
    if place is None:
        return {"modelSourceType": "kubernetesVolume"}
    return {
        "modelSourceType": "s3",
        "modelLocation": place.key.strip("/"),
        "s3Storage": {"bucketName": place.bucket, "region": wanted.region},
    }


def _affinity(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return labels of nodes as the operator takes them."""
    terms = [
        {"key": key, "operator": "In", "values": [value]} for key, value in sorted(labels.items())
    ]
    chosen = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": chosen}


def _worker(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    made: dict[str, Any] = {"image": deployment.image}
    if deployment.command:
        made["command"] = [literal(word) for word in deployment.command]
    if variables := environment(deployment, wanted):
        made["environmentVariables"] = variables
    made["modelInvocationPort"] = {"containerPort": deployment.port, "name": "http"}
    made["modelVolumeMount"] = {"name": "model-weights", "mountPath": MOUNTED_MODEL_DIR}
    asked = resources(deployment)
    made["resources"] = asked
    made["probes"] = {
        name: _by_number(one, deployment) for name, one in probes(deployment, wanted).items()
    }
    return made


def _by_number(probe: Mapping[str, Any], deployment: Deployment) -> dict[str, Any]:
    """Return a probe with the port's number: the operator names ports as it likes."""
    return {**probe, "httpGet": {**probe["httpGet"], "port": deployment.port}}


def _pod(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return volumes of the pod. The mount of the weights has to exist: an empty one if baked."""
    found = [one for one in volumes(deployment, wanted) if one["name"] == "model"]
    if not deployment.weights.uri:
        kept = found[0] if found else {"emptyDir": {}}
        found = [{**kept, "name": "model-weights"}]
    made: dict[str, Any] = {"volumes": found} if found else {}
    if wanted.service_account:
        made["serviceAccountName"] = wanted.service_account
    return made
