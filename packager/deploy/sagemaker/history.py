"""What an endpoint served before: AWS keeps no order of configurations, and failed ones stay there.

When an update is sent, what is in service then is tagged with the moment until which it served.
Whatever an update that failed has left was never in service, and never has that tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SERVED_TAG = "packager:served-until"  # of configurations and models: UTC, in an order of its own
NEEDS_TAG = "packager:component"  # of a model: what its inference component asked for

# What an inference component says of the model it had; numbers, by the names of the API.
_NEEDS = {
    "StartupParameters": (
        "ModelDataDownloadTimeoutInSeconds",
        "ContainerStartupHealthCheckTimeoutInSeconds",
    ),
    "ComputeResourceRequirements": (
        "NumberOfCpuCoresRequired",
        "NumberOfAcceleratorDevicesRequired",
        "MinMemoryRequiredInMb",
        "MaxMemoryRequiredInMb",
    ),
}
_SHORT = {  # a tag's value has 256 characters
    "ModelDataDownloadTimeoutInSeconds": "download",
    "ContainerStartupHealthCheckTimeoutInSeconds": "startup",
    "NumberOfCpuCoresRequired": "cpus",
    "NumberOfAcceleratorDevicesRequired": "devices",
    "MinMemoryRequiredInMb": "memory",
    "MaxMemoryRequiredInMb": "most-memory",
}
_WHOLE = ("cpus", "devices")  # AWS has them as fractions, and nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A configuration or model that was in service once."""

    name: str
    until: str
    needs: str = ""  # of the component that had it


def last_served(found: Iterable[tuple[str, Mapping[str, str]]], now: str) -> Served | None:
    """Return what was in service last of names with their tags, without what is there now."""
    served = (
        Served(name=name, until=tags[SERVED_TAG], needs=tags.get(NEEDS_TAG, ""))
        for name, tags in found
        if name != now and tags.get(SERVED_TAG)
    )
    return max(served, key=lambda one: one.until, default=None)


def needs_text(specification: Mapping[str, Any]) -> str:
    """Return what a component asks for as the value of a tag."""
    told = []
    for group, names in _NEEDS.items():
        there = specification.get(group) or {}
        told += [f"{_SHORT[name]}={there[name]}" for name in names if there.get(name) is not None]
    return " ".join(told)


def specification_of(model: str, needs: str, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification of a component with a model that it had; the cache stays as it is.

    What is not known of it is as it is now.
    """
    told = dict(part.partition("=")[::2] for part in needs.split())
    made: dict[str, Any] = {"ModelName": model}
    for group, names in _NEEDS.items():
        known = {
            name: _number(told[_SHORT[name]], fraction=_SHORT[name] in _WHOLE)
            for name in names
            if _SHORT[name] in told
        }
        there = {name: value for name, value in (now.get(group) or {}).items() if name in names}
        if found := known or there:
            made[group] = found
    if cached := now.get("DataCacheConfig"):
        made["DataCacheConfig"] = {"EnableCaching": bool(cached.get("EnableCaching"))}
    return made


def _number(text: str, *, fraction: bool) -> float | int:
    """Return a number of our own tag; 0, which AWS refuses, where somebody changed it."""
    try:
        return float(text) if fraction else int(text)
    except ValueError:
        return 0
