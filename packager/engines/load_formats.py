"""Faster ways of loading weights that are worth a try: `data/load_formats.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packager.core.plan import Plan
from packager.core.versions import version_key
from packager.findings import Finding
from packager.keys.key_options import plain_name

TABLE = Path(__file__).parent / "data" / "load_formats.toml"
OPTION = "load-format"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFormat:
    """One way of loading, and what was measured of it."""

    name: str
    engine: str
    since: str
    least_bytes: int
    measured: str
    source: str
    date: str


@cache
def load_formats() -> tuple[LoadFormat, ...]:
    """Return every row, the preferred first."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["format"]
    return tuple(LoadFormat(**row) for row in rows)


def suggest_load_format(plan: Plan) -> Iterator[Finding]:
    """Yield a note on a faster load format that this engine has, for large weights on a GPU."""
    asked = {plain_name(name).removeprefix("option.") for name, _ in plan.engine_options}
    if plan.instance.kind != "nvidia" or OPTION in asked or plan.compiler:
        return
    version = version_key(plan.container.engine_version)
    for row in load_formats():
        since = version_key(row.since)
        if (
            row.engine == plan.container.engine
            and version is not None
            and since is not None
            and version >= since
            and plan.profile.weight_bytes >= row.least_bytes
        ):
            message = f"{row.name} may load the weights faster: {row.measured} ({row.source})"
            hint = f"try --engine-option {OPTION}={row.name}; measure it on your own disk"
            yield Finding("note", "load-format-to-try", message, hint)
            return
