"""Least NVIDIA drivers of CUDA versions, and the CUDA that an image's tag names."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packager.core.facts import ContainerFacts
from packager.core.versions import version_key

TABLE = Path(__file__).parent / "data" / "drivers.toml"
IN_TAG = re.compile(r"(?<![a-z0-9])cu(\d{2})\d(?![0-9])", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDriver:
    """The least driver of one major version of CUDA."""

    major: int
    least: str
    source: str
    date: str


@cache
def cuda_drivers() -> tuple[CudaDriver, ...]:
    """Return every row, newest CUDA first."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["cuda"]
    return tuple(CudaDriver(**row) for row in rows)


def cuda_of(image: ContainerFacts) -> int | None:
    """Return the major version of CUDA that an image's tag names; None where it names none."""
    found = IN_TAG.search(image.version)
    return int(found[1]) if found and image.kind == "nvidia" else None


def runs_on(row: CudaDriver, driver: str) -> bool | None:
    """Check that a driver is new enough; None where its version cannot be read."""
    has, least = version_key(driver), version_key(row.least)
    return None if has is None or least is None else has >= least
