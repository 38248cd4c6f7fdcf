"""Serving images by family and kind of device, read from `containers/serving/images.toml`."""

from __future__ import annotations

import difflib
import tomllib
from functools import cache

from packager.core.facts import ContainerFacts
from packager.core.instance import DeviceKind
from packager.errors import UsageError
from packager.share import share_dir

# Families in order of preference; the first that serves the device is the default.
PREFERENCE = ("vllm", "lmi")


class UnknownFamily(UsageError):
    """There is no serving container family of that name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        nearest = difflib.get_close_matches(name, known, n=1)
        guess = f"did you mean {nearest[0]!r}? " if nearest else ""
        super().__init__(
            f"serving family {name!r} is not known", hint=f"{guess}known: {', '.join(known)}"
        )


class FamilyNotForDevice(UsageError):
    """The family has no image for that kind of device, or no family has one."""

    def __init__(self, family: str | None, kind: str, serving: tuple[str, ...]) -> None:
        if serving:
            hint = f"use {' or '.join(map(repr, serving))}, or leave the family out"
        else:
            hint = "choose an instance with NVIDIA GPUs, or `local`"
        who = f"serving family {family!r} has" if family else "no serving family has"
        super().__init__(f"{who} {'no' if family else 'an'} image for {kind} devices", hint=hint)


@cache
def containers() -> tuple[ContainerFacts, ...]:
    """List every serving image of the catalog."""
    table = share_dir("containers") / "serving" / "images.toml"
    rows = tomllib.loads(table.read_text(encoding="utf-8"))["image"]
    return tuple(
        ContainerFacts(
            family=row["family"],
            kind=row["kind"],
            engine=row["engine"],
            engine_version=row["engine_version"],
            version=row["version"],
            default_base=row["base"],
            least_compute_capability=row.get("least_compute_capability", 0.0),
            source=f"{row['source']} ({row['date']})",
        )
        for row in rows
    )


def find_container(family: str | None, kind: DeviceKind) -> ContainerFacts:
    """Find a family's image for a kind of device; without a family, the preferred one."""
    known = tuple(dict.fromkeys(container.family for container in containers()))
    if family is not None and family not in known:
        raise UnknownFamily(family, known)
    serving = {container.family: container for container in containers() if container.kind == kind}
    for name in PREFERENCE if family is None else (family,):
        if name in serving:
            return serving[name]
    raise FamilyNotForDevice(family, kind, tuple(serving))
