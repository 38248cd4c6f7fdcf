"""What a cluster would refuse, kill or ignore."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packager.addons.deploy.checks import (
    check_grace,
    check_pair,
    check_shm,
    check_startup,
    is_of_this_machine,
    refuse_secrets,
)
from packager.addons.deploy.grace import check_one_number
from packager.addons.deploy.kubernetes.pods import ended, is_number, shm_of, times_of
from packager.addons.deploy.kubernetes.spec import (
    IMAGE_VOLUMES,
    IMAGE_VOLUMES_ON,
    KubernetesSpec,
    check_names,
)
from packager.addons.deploy.mounted_adapters import check_mounts
from packager.addons.deploy.servers import meeting_of, meetings
from packager.core.deployment import Deployment
from packager.core.errors import UsageError
from packager.core.findings import Finding

_ADDRESS = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")


def check_cluster(deployment: Deployment, wanted: KubernetesSpec) -> Iterator[Finding]:
    """Find what holds for every kind of object; raise `UsageError` for names and secrets."""
    check_names(wanted)
    refuse_secrets({**deployment.env, **wanted.env})
    yield from deployment.findings
    # A claim or a view has the weights that no bucket has.
    found = "deploy-weights-missing" if wanted.claim or wanted.weights_image else ""
    yield from (one for one in check_pair(deployment) if one.code != found)
    times = times_of(deployment, wanted)
    yield from check_startup(deployment, times.budget_s, pulls=False)
    effective = ended(deployment, wanted) if wanted.grace_s is None else deployment
    yield from check_grace(effective, times.grace_s, before_s=times.pre_stop_s)
    if wanted.grace_s is not None:
        yield from check_one_number(deployment, wanted.grace_s - times.pre_stop_s)
    yield from check_shm(deployment, shm_of(deployment, wanted))
    yield from _image(deployment)
    yield from _user(deployment)
    if (
        deployment.read_only_root
        and deployment.instance.kind == "nvidia"
        and not wanted.writable_root
    ):
        what = "the root file system is read-only: NVIDIA's older container toolkits write into it"
        hint = "give --writable-root where pods end before they start"
        yield Finding("note", "deploy-read-only-root", what, hint)
    yield from _weights(deployment, wanted)


def check_scaling(deployment: Deployment, wanted: KubernetesSpec) -> Iterator[Finding]:
    """Find autoscalers that would never scale."""
    if 0 < wanted.max_replicas < wanted.replicas:
        raise UsageError(
            f"{wanted.max_replicas} replicas at most are fewer than {wanted.replicas} at least",
            hint="give --max-replicas as much as --replicas, or more",
        )
    if wanted.prometheus and not _ADDRESS.fullmatch(wanted.prometheus):
        raise UsageError(  # without the address: it may have a password
            "--prometheus is not an address without credentials",
            hint="give http://HOST:PORT; KEDA takes credentials of a TriggerAuthentication",
        )
    if wanted.scaler == "none":
        return
    if wanted.prometheus and wanted.scaler != "keda":
        raise UsageError(
            "--prometheus is what KEDA asks, and --scaler is hpa",
            hint="give --scaler keda, or leave --prometheus out",
        )
    if wanted.max_replicas <= wanted.replicas:
        raise UsageError(
            f"an autoscaler needs more than {wanted.replicas} replicas at most",
            hint=f"give --max-replicas {wanted.replicas + 1} or more",
        )
    if wanted.scaler == "keda" and not wanted.prometheus:
        raise UsageError(
            "KEDA asks a Prometheus, and none is named",
            hint="give --prometheus http://prometheus.monitoring:9090",
        )
    if not deployment.queue_metric:
        what = f"{deployment.engine or 'the server'} reports no queue that an autoscaler could read"
        hint = "leave --scaler out, or scale by another metric"
        yield Finding("error", "deploy-no-queue-metric", what, hint)


def check_several(deployment: Deployment) -> Iterator[Finding]:
    """Find servers on several nodes that the cluster cannot start."""
    if deployment.nodes == 1:
        return
    if meeting_of(deployment.engine) is None:
        what = f"{deployment.engine or 'the engine'} is not started on several nodes here"
        known = " or ".join(row.engine for row in meetings())
        yield Finding("error", "deploy-nodes-engine", what, f"use {known}, or one node")
    elif not (deployment.command or deployment.variables):
        what = "each node is told its rank, and nobody says how the image's server takes options"
        yield Finding("error", "deploy-nodes-command", what, "name the image, not its record")


def _image(deployment: Deployment) -> Iterator[Finding]:
    if is_of_this_machine(deployment.image):
        what = f"no node can pull {deployment.image!r}"
        hint = "push it to a registry, or name its address with --image"
        yield Finding("error", "deploy-image-local", what, hint)
    elif "@" not in deployment.image and not deployment.digest:
        what = "the image is named by a tag: pods may run different images after it moves"
        yield Finding("note", "deploy-image-tag", what, "name it by digest")


def _user(deployment: Deployment) -> Iterator[Finding]:
    user = deployment.user.partition(":")[0]
    if user in ("", "0", "root"):
        what = "the image runs as root: namespaces with the restricted standard refuse it"
        yield Finding("warning", "deploy-runs-as-root", what, "build it on a base with a user")
    elif not is_number(user):
        what = f"the image's user {user[:40]!r} is no number, so nobody can check that it is not 0"
        yield Finding("warning", "deploy-user-name", what, "build it with a numeric user")


def _weights(deployment: Deployment, wanted: KubernetesSpec) -> Iterator[Finding]:
    images = wanted.weights_image or any(not one.is_claim for one in wanted.adapters.values())
    yield from check_mounts(wanted.adapters)
    if images and wanted.version < IMAGE_VOLUMES:
        what = "image volumes that show a part of an image came with Kubernetes 1.33"
        hint = "use --claim, or an image that has its weights in it"
        yield Finding("error", "deploy-image-volume", what, hint)
    elif images and wanted.version < IMAGE_VOLUMES_ON:
        what = "image volumes need the feature gate ImageVolume before Kubernetes 1.35"
        hint = "set it on API servers and kubelets, with containerd 2.1 or CRI-O 1.33"
        yield Finding("warning", "deploy-image-volume-gate", what, hint)
    mounted = deployment.weights.kind == "mounted"
    if mounted and not (wanted.claim or wanted.weights_image):
        what = "the weights are in a bucket, which Kubernetes does not mount by itself"
        hint = "give --claim of a volume with the tree, --weights-image, or use kserve"
        yield Finding("error", "deploy-weights-unmounted", what, hint)
    if not mounted and (wanted.claim or wanted.weights_image):
        what = "the image has its own weights: the mounted ones are not read"
        yield Finding("warning", "deploy-weights-twice", what, "leave --claim out")
