"""Registries by host, read from `data/registries.toml`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.registry import UNKNOWN_REGISTRY, RegistryTraits
from packager.core.share import read_shipped
from packager.core.units import MIB

TABLE = Path(__file__).parent / "data" / "registries.toml"


def traits_of(host: str, extra: tuple[RegistryTraits, ...] = ()) -> RegistryTraits:
    """Return the traits of `HOST[:PORT]`: the first matching row, the user's own first."""
    return next(
        (
            known
            for known in registries(extra)
            if any(fnmatchcase(host.lower(), pattern) for pattern in known.hosts)
        ),
        UNKNOWN_REGISTRY,
    )


def registries(extra: tuple[RegistryTraits, ...] = ()) -> tuple[RegistryTraits, ...]:
    """List every row, the user's own first; those replace shipped ones of the same name."""
    own = {row.name for row in extra}
    return extra + tuple(row for row in shipped_registries() if row.name not in own)


@cache
def shipped_registries() -> tuple[RegistryTraits, ...]:
    """Read the shipped rows, the more particular patterns first."""
    table = read_shipped(TABLE)["registry"]
    return tuple(_traits(row) for row in table)


def _traits(row: dict[str, Any]) -> RegistryTraits:
    return RegistryTraits(
        name=row["name"],
        hosts=tuple(row["hosts"]),
        layer_bytes=row.get("layer_mib", 0) * MIB,
        layers=row.get("layers", 0),
        upload_s=60.0 * row.get("upload_minutes", 0),
        body_bytes=row.get("body_mib", 0) * MIB,
        chunk_bytes=row.get("chunk_mib", 0) * MIB,
        forms=tuple(row["forms"]),
        mounts=row.get("mounts", ""),
        referrers=row.get("referrers", ""),
        create=row.get("create", ""),
        note=row.get("note", ""),
        source=row["source"],
        date=row["date"],
    )
