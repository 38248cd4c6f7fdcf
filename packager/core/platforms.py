"""Platforms that images are made for, and the processors they run on.

The kernel calls a processor `aarch64`, the OCI specification `arm64`.
"""

from __future__ import annotations

from platform import machine

from packager.core.image import Platform
from packager.core.instance import Instance

PLATFORMS = ("linux/amd64", "linux/arm64")  # that images are made for
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def architecture_of(machine: str | None) -> str:
    """Return the architecture, in OCI's terms, of a machine; "" where it is not known."""
    return ARCHITECTURES.get(machine or "", "")


def host_platform() -> Platform:
    """Return the platform of this machine's containers."""
    return Platform("linux", architecture_of(machine()) or Platform().architecture)


def platform_for(instance: Instance, wanted: str | None = None) -> Platform:
    """Return the platform that is asked for, else the instance's; x86-64 where that is unknown."""
    if wanted:
        system, _, architecture = wanted.partition("/")
        return Platform(system, architecture)
    return Platform("linux", architecture_of(instance.machine) or Platform().architecture)


def has_platform(instance: Instance, platform: Platform) -> bool:
    """Return whether a machine may run images of a platform: True where its own is unknown.

    Rows of clouds name a processor where it is not x86-64.
    """
    is_rented = instance.cloud not in (None, "bare")
    own = architecture_of(instance.machine or ("x86_64" if is_rented else None))
    return own in ("", platform.architecture)
