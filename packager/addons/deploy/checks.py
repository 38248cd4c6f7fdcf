"""Checks of an image and its instance that every platform shares.

What is refused here starts and then fails, often without a line in any log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from packager.addons.check.plain import SECRETS, holds_secret
from packager.addons.deploy.grace import AFTER_DRAIN_S
from packager.catalog.containers import containers
from packager.catalog.drivers import amis
from packager.core.deployment import Deployment
from packager.core.errors import UsageError
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.platforms import architecture_of
from packager.core.stopping import DRAIN_S
from packager.core.units import gib
from packager.core.versions import version_key

_IMAGE = re.compile(r"(?!.*//)[A-Za-z0-9][A-Za-z0-9._:/-]{0,500}(@sha256:[0-9a-f]{64})?", re.ASCII)
_OF_THIS_MACHINE = ("oci:", "docker:", "dir:", "s3:")


def secret_in_file(name: str) -> UsageError:
    """Return an error: a rendered file would show a credential to everybody who reads it."""
    return UsageError(
        f"the variable {name[:60]!r} holds a credential, which no rendered file may show",
        hint=SECRETS,
        code="SecretInFile",
    )


def refuse_secrets(env: Mapping[str, str]) -> None:
    """Raise `UsageError` for the first variable that holds a credential. Repeats no value."""
    for name, value in env.items():
        if holds_secret(name, value):
            raise secret_in_file(name)


def refuse_odd_image(option: str, name: str) -> None:
    """Raise `UsageError` for what nobody can pull by. Repeats nothing: a password may be in it."""
    if name and not _IMAGE.fullmatch(name):
        raise UsageError(
            f"{option} is not the name of an image",
            hint="write HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:…; nodes take credentials "
            "of a registry from their own settings, or from --pull-secret",
        )


def check_pair(deployment: Deployment) -> Iterator[Finding]:
    """Find what of the image does not fit the instance, whichever platform runs it."""
    yield from _architecture(deployment)
    yield from _devices(deployment)
    yield from _weights(deployment)


def is_of_this_machine(image: str) -> bool:
    """Return whether an image is named as this machine has it, so that no node can pull it."""
    return image.startswith(_OF_THIS_MACHINE)


def check_ami(deployment: Deployment, ami: str) -> Iterator[Finding]:
    """Find an AMI whose driver is not the image's CUDA's. Such endpoints die without a log."""
    for word, kind in (("-gpu-", "nvidia"), ("-neuron-", "neuron")):
        if word in ami and deployment.instance.kind != kind:
            what = f"{ami} is not for {deployment.instance.name}"
            yield Finding("error", "deploy-ami-kind", what, "leave the AMI out")
    cuda = deployment.cuda.partition(".")[0]
    row = next((one for one in amis() if one.name == ami), None)
    if cuda and row is not None and row.cuda.partition(".")[0] != cuda:
        what = f"{ami} has CUDA {row.cuda}, and the image CUDA {deployment.cuda}"
        fit = deployment.inference_ami
        hint = f"use {fit}" if fit else "leave the AMI out"
        yield Finding("error", "deploy-ami-cuda", what, hint)


def check_driver(deployment: Deployment, driver: str) -> Iterator[Finding]:
    """Find a driver on the host that is older than the image needs."""
    has, least = version_key(driver), version_key(deployment.least_driver)
    if has is not None and least is not None and has < least:
        what = f"the driver {driver} is older than {deployment.least_driver}, which CUDA "
        what += f"{deployment.cuda} needs"
        yield Finding("error", "deploy-driver-old", what, "update the driver of the nodes")


def check_disk(deployment: Deployment, disk_bytes: int | None) -> Iterator[Finding]:
    """Find a disk that does not hold the image twice: as layers, and unpacked."""
    image, scratch = deployment.image_bytes, deployment.scratch_bytes or 0
    if image is None or disk_bytes is None:
        return
    if image + scratch > disk_bytes:
        what = f"the image unpacks to {gib(image)}, and the disk has {gib(disk_bytes)}"
        hint = "use a larger disk, an instance with local disks, or --weights mounted"
        yield Finding("error", "deploy-disk-small", what, hint)
    elif 2 * image + scratch > disk_bytes:
        what = f"pulling writes the image of {gib(image)} twice, and the disk has "
        what += f"{gib(disk_bytes)}"
        hint = "use a larger disk, or nodes that unpack while they pull"
        yield Finding("warning", "deploy-disk-tight", what, hint)


def check_grace(deployment: Deployment, grace_s: int, *, before_s: int = 0) -> Iterator[Finding]:
    """Find a grace period that ends before running requests do.

    `before_s` of it pass before the server gets SIGTERM.
    """
    drain = DRAIN_S if deployment.drain_s is None else deployment.drain_s
    least = before_s + (deployment.grace_s or drain + AFTER_DRAIN_S)
    if grace_s < least:
        what = f"a grace period of {grace_s} s cuts off requests that get {drain} s to end"
        yield Finding("warning", "deploy-grace-short", what, f"give at least {least} s")


def check_shm(deployment: Deployment, shm_bytes: int) -> Iterator[Finding]:
    """Find shared memory in which the processes of several devices cannot talk."""
    if deployment.devices > 1 and shm_bytes < deployment.shm_bytes:
        what = f"/dev/shm of {gib(shm_bytes)} is less than the {gib(deployment.shm_bytes)} "
        what += f"that {deployment.devices} devices are given"
        hint = "engines stop with a bus error when it is full: give more"
        yield Finding("warning", "deploy-shm-small", what, hint)


def check_startup(deployment: Deployment, budget_s: float, *, pulls: bool) -> Iterator[Finding]:
    """Find a startup budget that ends before the server answers.

    `pulls`: the platform counts pulling the image into the budget.
    """
    if deployment.load_s is None:
        return
    needed = deployment.load_s + ((deployment.pull_s or 0.0) if pulls else 0.0)
    if budget_s < needed:
        pulling = ", with pulling the image" if pulls else ""
        what = (
            f"the server may take {needed:.0f} s to answer{pulling}, and is given {budget_s:.0f} s"
        )
        hint = f"give {needed:.0f} s or more; faster disks and baked compile caches need less"
        yield Finding("warning", "deploy-startup-short", what, hint)


def _architecture(deployment: Deployment) -> Iterator[Finding]:
    machine = architecture_of(deployment.instance.machine or "x86_64")
    has = deployment.platform.split("/")[1] if "/" in deployment.platform else ""
    if machine and has and machine != has:
        what = f"the image is for {has}, and {deployment.instance.name} runs {machine}"
        hint = f"build it with --platform linux/{machine}"
        yield Finding("error", "deploy-architecture", what, hint)


def _devices(deployment: Deployment) -> Iterator[Finding]:
    instance = deployment.instance
    kinds = {one.kind for one in containers() if one.family == deployment.family}
    if deployment.cuda and instance.kind != "nvidia":
        what = f"the image has CUDA {deployment.cuda}, and {instance.name} has no NVIDIA GPU"
        yield Finding("error", "deploy-device-kind", what, "build it for that instance")
    elif kinds and instance.kind not in kinds:
        what = f"images of {deployment.family} are for {' or '.join(sorted(kinds))}, and "
        what += f"{instance.name} has {instance.device_name}"
        yield Finding("error", "deploy-device-kind", what, "build it for that instance")
    if instance.kind != "cpu" and deployment.devices > instance.devices:
        what = f"the image uses {deployment.devices} devices on each node, and {instance.name} "
        what += f"has {instance.devices}"
        yield Finding("error", "deploy-device-count", what, "build it for that instance")


def check_planned(deployment: Deployment, planned: Instance) -> Iterator[Finding]:
    """Find what an image loses on another instance type than it was planned for."""
    instance = deployment.instance
    if instance.kind == "cpu" or instance.kind != planned.kind:
        return  # `check_pair` says it
    all_devices = max(deployment.devices * deployment.nodes, 1)
    of_each = (deployment.model_bytes or 0) // all_devices  # at least: copies have more
    has = f"{instance.name} has {instance.device_name} with {gib(instance.device_bytes)}"
    was = f"it was planned for {planned.name}, {planned.device_name} with "
    was += gib(planned.device_bytes)
    if of_each > instance.device_bytes:
        what = f"each device holds {gib(of_each)} of weights at least, and {has}; {was}"
        yield Finding("error", "deploy-device-memory", what, "build it for that instance")
    elif instance.device_bytes < planned.device_bytes:
        what = f"{has}; {was}: weights and batch may not fit"
        yield Finding("warning", "deploy-device-memory", what, "build it for that instance")
    elif instance.device_name != planned.device_name:
        what = f"{has}; {was}: its batch and kernels are of the other device"
        yield Finding("note", "deploy-device-other", what, "build it for that instance")


def _weights(deployment: Deployment) -> Iterator[Finding]:
    if deployment.weights.kind == "mounted" and not deployment.weights.uri:
        what = "the image has no weights, and nobody says where they are"
        hint = "name the tree with --model-data s3://BUCKET/PREFIX"
        yield Finding("error", "deploy-weights-missing", what, hint)
    needed = deployment.memory_bytes
    host = deployment.instance.host_bytes
    if needed is not None and host is not None and needed > host:
        what = f"a replica needs about {gib(needed)} of memory, and the host has {gib(host)}"
        yield Finding("warning", "deploy-memory-small", what, "use an instance with more memory")
