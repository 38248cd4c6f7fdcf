"""Checks of an endpoint: what SageMaker would refuse after minutes, kill, or ignore."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from packager.addons.deploy.checks import (
    check_ami,
    check_disk,
    check_grace,
    check_pair,
    check_startup,
    is_of_this_machine,
)
from packager.addons.deploy.sagemaker.bodies import ami_of, is_ecr
from packager.addons.deploy.sagemaker.disks import disk_bytes, local_bytes
from packager.addons.deploy.sagemaker.requests import Request
from packager.addons.deploy.sagemaker.shapes import input_faults
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.addons.deploy.sagemaker.times import MOST_S, health_s
from packager.core.deployment import Deployment
from packager.core.findings import Finding
from packager.core.stopping import PLATFORM_GRACE_S
from packager.engines.sagemaker import check_limits
from packager.images.oci import DOCKER_MANIFEST

_ECR_REGION = re.compile(r"\d{12}\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/")


def check_endpoint(deployment: Deployment, wanted: SageMakerSpec) -> Iterator[Finding]:
    """Find what of an image does not fit an endpoint, and its instance."""
    for one in (deployment, *wanted.pools):
        yield from one.findings
        yield from check_pair(one)
        yield from _hosting(one)
        yield from check_ami(one, ami_of(deployment, wanted))
        yield from _image(one, wanted)
        yield from check_disk(one, disk_bytes(one, wanted.volume_gb))
        yield from _environment(one, wanted)
    yield from _volume(deployment, wanted)
    for found in check_grace(deployment, PLATFORM_GRACE_S):
        hint = "SageMaker gives no more: drain the endpoint's traffic before it is changed"
        yield replace(found, hint=hint)
    yield from _times(deployment, wanted)
    yield from _scaling(deployment, wanted)
    yield from _copies(wanted)
    yield from _without_effect(wanted)
    yield from _pools(deployment, wanted)


def check_requests(requests: Sequence[Request]) -> Iterator[Finding]:
    """Find what AWS's own model of the API says against the bodies. Shows no secret."""
    for request in requests:
        for fault in input_faults(request.operation, request.body, request.service):
            hint = "change the option, or the name, that gives this value"
            yield Finding("error", "deploy-request", f"{request.operation}: {fault}", hint)


def _hosting(deployment: Deployment) -> Iterator[Finding]:
    instance = deployment.instance
    if not instance.name.startswith("ml."):
        what = f"{instance.name} is not an instance type of SageMaker's endpoints"
        yield Finding("error", "deploy-instance-hosting", what, "name one with --instance ml.…")
    if deployment.nodes > 1:
        what = f"one replica needs {deployment.nodes} machines, and an endpoint gives it one"
        yield Finding("error", "deploy-nodes", what, "deploy it on Kubernetes or HyperPod")


def _image(deployment: Deployment, wanted: SageMakerSpec) -> Iterator[Finding]:
    image = deployment.image
    if is_of_this_machine(image) or "/" not in image:
        what = f"{image!r} is not an address that SageMaker can pull from"
        hint = "push it to ECR, and name it there: --image ACCOUNT.dkr.ecr.REGION.amazonaws.com/…"
        yield Finding("warning", "deploy-image-local", what, hint)
    elif not is_ecr(image) and not wanted.subnets:
        what = (
            f"{image.partition('/')[0]} is not ECR, and SageMaker pulls from others in a VPC only"
        )
        hint = "push it to ECR, or name the VPC with --subnet and --security-group"
        yield Finding("warning", "deploy-image-registry", what, hint)
    yield from _manifest(deployment)
    if ("/" in image) and "@" not in image:
        what = f"{image!r} is a tag: an instance that starts later may pull another image"
        yield Finding("note", "deploy-image-tag", what, "name the image by digest")


def _manifest(deployment: Deployment) -> Iterator[Finding]:
    """Find an OCI manifest, which SageMaker was reported to refuse, with what converts it."""
    image = deployment.image
    if is_of_this_machine(image) or deployment.media_type == DOCKER_MANIFEST:
        return
    name, _, digest = image.partition("@")
    is_tagged = ":" in name.rpartition("/")[2]
    copy = f"{name}-docker" if is_tagged else f"{name}:docker{f'-{digest[7:19]}' if digest else ''}"
    hint = f"`packager copy --view docker {image} {copy}`, and deploy that one"
    if deployment.media_type:
        what = f"{image!r} has an OCI manifest, and SageMaker was reported to refuse those"
        yield Finding("warning", "deploy-image-oci", what, hint)
    else:
        what = f"nobody read the manifest of {image!r}; SageMaker was reported to refuse OCI's"
        yield Finding("note", "deploy-image-oci", what, f"if it is one: {hint}")


def _without_effect(wanted: SageMakerSpec) -> Iterator[Finding]:
    """Find options that have no effect without another."""
    alone = (
        (wanted.copies != 1 and not wanted.components, "--copies", "--components"),
        (wanted.target is not None and not wanted.scales, "--target-requests", "--max-instances"),
        (
            wanted.capture_percent != 100 and not wanted.capture_uri,
            "--capture-percent",
            "--capture",
        ),
    )
    for is_alone, option, other in alone:
        if is_alone:
            what = f"{option} changes nothing without {other}"
            yield Finding(
                "error", "deploy-option-alone", what, f"give {other}, too, or leave it out"
            )


def _environment(deployment: Deployment, wanted: SageMakerSpec) -> Iterator[Finding]:
    for found in check_limits(deployment.env):
        if found.severity == "error" or wanted.components:  # the warning is about components
            yield found


def _volume(deployment: Deployment, wanted: SageMakerSpec) -> Iterator[Finding]:
    if wanted.volume_gb is not None and local_bytes(deployment.instance.name):
        what = f"{deployment.instance.name} has disks of its own, and takes no volume"
        yield Finding("error", "deploy-volume", what, "leave --volume-size out")


def _times(deployment: Deployment, wanted: SageMakerSpec) -> Iterator[Finding]:
    budget = wanted.health_s or health_s(deployment)
    yield from check_startup(deployment, budget, pulls=False)
    if deployment.load_s and deployment.load_s > MOST_S:
        what = f"the server may take {deployment.load_s:.0f} s to answer, and SageMaker waits "
        what += f"{MOST_S} s at most"
        hint = "quantize the weights, or use an instance with local disks"
        yield Finding("warning", "deploy-startup-limit", what, hint)


def _scaling(deployment: Deployment, wanted: SageMakerSpec) -> Iterator[Finding]:
    most = wanted.max_instances
    if most is None:
        if wanted.min_instances is not None:
            what = "a least number of instances without a most number scales nothing"
            yield Finding("error", "deploy-scaling", what, "give --max-instances, too")
        return
    if not wanted.least <= most or not wanted.instances <= most:
        what = f"{wanted.instances} instances, at least {wanted.least}, are more than {most}"
        yield Finding("error", "deploy-scaling", what, "raise --max-instances")
    if wanted.least == 0 and not wanted.components:
        what = "an endpoint without inference components cannot scale to 0 instances"
        yield Finding("error", "deploy-scaling", what, "use --components")
    if wanted.target is None and deployment.max_batch is None:
        what = "nobody says how many requests one instance serves at once, so nothing scales"
        yield Finding("error", "deploy-scaling", what, "give --target-requests")


def _copies(wanted: SageMakerSpec) -> Iterator[Finding]:
    most = wanted.max_instances
    if not wanted.components:
        return
    if wanted.copies == 0 and not (wanted.scales and wanted.least == 0):
        what = "no copy serves, and nothing starts one"
        hint = "give --copies 1, or --min-instances 0 with --max-instances: then a request wakes it"
        yield Finding("error", "deploy-copies", what, hint)
    if most is not None and wanted.copies > most:
        what = f"{wanted.copies} copies are more than {most}, which scaling leaves"
        yield Finding("error", "deploy-copies", what, "raise --max-instances")


def _pools(deployment: Deployment, wanted: SageMakerSpec) -> Iterator[Finding]:
    names = [one.instance.name for one in (deployment, *wanted.pools)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        what = f"{twice} is in two pools"
        yield Finding("error", "deploy-pools", what, "build one image for each instance type")
    if wanted.pools and wanted.components:
        what = "inference components and pools of instance types do not go together here"
        yield Finding("error", "deploy-pools", what, "leave out --components or --pool")
    if len(names) > 5:
        what = f"{len(names)} instance types, and a variant takes 5"
        yield Finding("error", "deploy-pools", what, "leave some out")
    kinds = {one.cuda.partition(".")[0] for one in (deployment, *wanted.pools) if one.cuda}
    if len(kinds) > 1:
        what = f"the images of the pools have CUDA {' and '.join(sorted(kinds))}, and a variant "
        what += "has one AMI"
        yield Finding("error", "deploy-ami-cuda", what, "build them on bases of one CUDA")


def used_region(deployment: Deployment, wanted: SageMakerSpec) -> str:
    """Return the region of the images of ECR; "" where none is there."""
    images = (one.image for one in chain((deployment,), wanted.pools))
    found = (_ECR_REGION.match(image) for image in images)
    return next((match[1] for match in found if match), "")
