"""Number of requests that one copy of a model serves at once: limited by memory and latency.

An engine with a paged cache reserves nothing for a slot, so the number follows from typical
requests, not from the longest possible ones.  Further requests wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packager.core.facts import ContainerFacts
from packager.core.instance import Instance
from packager.core.share import read_shipped
from packager.core.units import GIB
from packager.core.versions import version_key

TABLE = Path(__file__).parent / "data" / "concurrency.toml"

UNKNOWN_ENGINE = 256  # of an engine without a row

# Sizes that are tried: engines capture graphs for about these (vLLM 0.32.0: 1, 2, 4, every 8
# up to 256, every 16 up to 512), and a batch between two of them is padded to the larger.
SIZES: tuple[int, ...] = (
    1,
    2,
    4,
    6,
    8,
    12,
    *range(16, 257, 8),
    *range(272, 513, 16),
    *range(576, 1025, 64),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MostAtOnce:
    """One row of the table."""

    engine: str
    most: int
    since: str = ""
    device_gib: int = 0
    not_devices: tuple[str, ...] = ()
    source: str
    date: str


def most_at_once(container: ContainerFacts, instance: Instance) -> int:
    """Return how many requests the engine computes at once at most, on this device."""
    rows = [row for row in _table() if row.engine == container.engine]
    found = [row.most for row in rows if _applies(row, container, instance)]
    return found[-1] if found else UNKNOWN_ENGINE


def choose_concurrency(
    most: int, fits: Callable[[int], bool], in_time: Callable[[int], bool]
) -> int:
    """Return the largest size up to `most` that fits and is in time; 1 where none is.

    Both get harder with more requests, so that ten questions find it.
    """
    sizes: tuple[int, ...] = SIZES[: bisect_right(SIZES, most)]
    if most <= SIZES[-1] and most not in sizes:
        sizes = (*sizes, most)
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high + 1) // 2
        good = fits(sizes[middle]) and in_time(sizes[middle])
        low, high = (middle, high) if good else (low, middle - 1)
    return sizes[low]


def _applies(row: MostAtOnce, container: ContainerFacts, instance: Instance) -> bool:
    if instance.device_bytes < row.device_gib * GIB:
        return False
    if any(name in instance.device_name for name in row.not_devices):
        return False
    since, version = version_key(row.since), version_key(container.engine_version)
    return since is None or (version is not None and version >= since)


@cache
def _table() -> tuple[MostAtOnce, ...]:
    rows = read_shipped(TABLE)["engine"]
    return tuple(
        MostAtOnce(**{**row, "not_devices": tuple(row.get("not_devices", ()))}) for row in rows
    )
