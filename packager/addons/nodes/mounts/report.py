"""Mounted images, for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from packager.addons.nodes.mounts.mounts import ImageMount
from packager.core.reports.report import Report, one_section, plain_table

_UNKNOWN = "unknown"


def mount_document(mount: ImageMount) -> dict[str, Any]:
    """Return a mount as JSON."""
    return {
        "directory": str(mount.directory),
        "image": mount.image or None,
        "digest": mount.digest or None,
        "layers": mount.layers or None,
        "was_mounted": mount.was_mounted,
        "proven": mount.proven,
    }


def mounts_report(mounts: Sequence[ImageMount]) -> Report:
    """Return a table of what is mounted; empty without mounts."""
    rows = [
        (
            str(mount.directory),
            mount.image or _UNKNOWN,
            mount.digest[:19] or _UNKNOWN,
            mount.layers or _UNKNOWN,
            "yes" if mount.proven else "no",
        )
        for mount in mounts
    ]
    table = plain_table(("directory", "image", "digest", "layers", "proven"), rows)
    return one_section("Mounted images", *((table,) if rows else ()))
