"""Checks of a request that need no model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.image import Platform
from packager.core.instance import Instance
from packager.core.platforms import has_platform, platform_for
from packager.core.processors import X86
from packager.core.units import decimal
from packager.images.limits import ASSUMED_BYTES_S
from packager.pipeline.planning.merging import check_merged

_ONLY_NODES = (
    "`packager node-cache` fills nodes' disks instead, and needs nothing more in the registry"
)
SERVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}", re.ASCII)  # as BuildRequest has it


def check_facts(facts: Facts) -> Iterator[Finding]:
    """Check what needs no model."""
    request, container = facts.request, facts.container
    yield from _check_device(facts)
    yield from _check_cores(facts.instance)
    yield from _check_served_name(request.served_name or facts.model.ref.name)
    yield from _check_layer_format(facts)
    yield from check_merged(facts)
    wanted = request.container_version
    if wanted is not None and wanted not in _versions(facts):
        message = (
            f"version {wanted[:40]!r} of {container.family} is requested; "
            f"{container.version or container.engine_version!r} was found"
        )
        hint = "`packager list containers` shows the versions that are known"
        yield Finding("error", "container-version-unknown", message, hint)


def _check_layer_format(facts: Facts) -> Iterator[Finding]:
    """Report the cost of extra file-system layers, and refuse unsupported combinations."""
    request = facts.request
    if request.layer_format != "erofs":
        return
    if request.compression not in (None, "none"):
        message = "a compressed layer cannot be mounted: its files are nowhere as they are"
        hint = "leave --compression or --layer-format out"
        yield Finding("error", "erofs-compressed", message, hint)
    if request.weights != "baked":
        return
    files = (*facts.model.files, *(facts.draft.files if facts.draft else ()))
    more = sum(file.size for file in files)
    seconds = more / ASSUMED_BYTES_S
    about = "at most " if request.quantizing not in (None, "none") else ""
    link = f"{ASSUMED_BYTES_S * 8 / 1e6:g} Mbit/s"
    message = (
        f"--layer-format erofs keeps {about}{decimal(more)} more in a registry, which take "
        f"{_time_words(seconds)} more to send at {link}; a node that mounts the file systems "
        f"unpacks {decimal(more)} less"
    )
    figures = {
        "registry_bytes": more,
        "seconds": round(seconds, 1),
        "assumed_bytes_s": int(ASSUMED_BYTES_S),
        "unpacked_less_bytes": more,
    }
    yield Finding("note", "erofs-space", message, _ONLY_NODES, data=figures)


def _time_words(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.1f} s"


def _versions(facts: Facts) -> tuple[str, ...]:
    container = facts.container
    release = f"{container.family}{container.release}" if container.release else ""
    return container.version, container.release, container.engine_version, release


def _check_device(facts: Facts) -> Iterator[Finding]:
    container, instance = facts.container, facts.instance
    if container.kind != instance.kind:
        message = (
            f"the {container.family} image for {container.kind} does not run "
            f"on {instance.name}, which has {instance.kind} devices"
        )
        hint = "leave --family out, or choose one of "
        hint += f"`packager list containers --device {instance.kind}`"
        yield Finding("error", "container-not-for-device", message, hint)
    elif unfit := _platform_finding(facts):
        yield unfit
    elif container.targets and instance.family not in container.targets:
        message = (
            f"the {container.family} image {container.version} serves "
            f"{', '.join(container.targets)}, not {instance.name}"
        )
        hint = "name another --container-version, or another instance"
        yield Finding("error", "container-not-for-device", message, hint)
    elif (instance.compute_capability or 0.0) < container.least_compute_capability:
        message = (
            f"{instance.device_name} has compute capability {instance.compute_capability}; "
            f"the {container.family} image is built for {container.least_compute_capability} "
            "and later"
        )
        hint = "choose a newer instance, such as 'ml.g5.xlarge'"
        yield Finding("error", "device-too-old", message, hint)


def _platform_finding(facts: Facts) -> Finding | None:
    """Return why the image cannot be for the platform; None where it can."""
    request, container, instance = facts.request, facts.container, facts.instance
    platform = platform_for(instance, request.platform)
    if not has_platform(instance, platform):
        has = instance.machine or X86
        message = f"{instance.name} has {has} processors, and {platform} is asked for"
        hint = "leave --platform out, or choose an instance of that platform"
        return Finding("error", "platform-not-of-instance", message, hint)
    if request.base is not None or str(platform) in container.platforms:
        return None  # a base that is named is looked at
    name = " ".join(filter(None, (container.family, container.version or container.engine_version)))
    message = (
        f"{instance.name} needs an image for {platform}, and the {name} image is known for "
        f"{', '.join(container.platforms)} alone"
    )
    hint = f"name a base for {platform} with --base"
    if platform != Platform():
        hint += ", or choose an instance with x86-64 processors"
    return Finding("error", "container-not-for-processor", message, hint)


def _check_cores(instance: Instance) -> Iterator[Finding]:
    """Refuse NeuronCore versions that the catalog lacks."""
    if instance.cores_per_device is None:
        message = (
            f"{instance.name} has {instance.device_name} devices, of which the catalog does not "
            "know how many cores act as one"
        )
        hint = "choose another instance, or give its devices in an [[instance]] row of --catalog"
        yield Finding("error", "neuron-core-unknown", message, hint)


def _check_served_name(name: str) -> Iterator[Finding]:
    if not SERVED_NAME.fullmatch(name):
        message = f"{name[:60]!r} cannot be the name that clients put into `model`"
        hint = "give a served name of letters, digits and . _ / -"
        yield Finding("error", "served-name", message, hint)
