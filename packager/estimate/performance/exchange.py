"""Time of one all-reduce between the devices of a machine, as it was measured.

Links of a data sheet say little of it: cards that reach each other through the host's PCIe take up
to 20 times what their slot's bandwidth promises, and small messages cost what starting them does.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from packager.core.catalog import Accelerator
from packager.estimate.performance.devices import (
    DeviceFigures,
    figures_named,
    figures_of,
    held_between,
)

TABLE = Path(__file__).parent / "data" / "exchange.csv"

# Unmeasured device → one with the same kind of link.
ALIKE: Mapping[str, str] = MappingProxyType(
    {
        "A10G": "L40S",
        "L4": "L40S",
        "T4": "L40S",
        "RTX PRO 4500": "RTX PRO Server 6000",
        "A100-40": "A100-80",
        "V100": "A100-80",
    }
)
BY_LINK: Mapping[str, str] = MappingProxyType({"nvlink": "A100-80", "pcie": "L40S"})

# Where no device resembles it: two devices that pass their parts around in a ring.
START_S = 12e-6
LINK_BYTES_S = 32e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceExchange:
    """All-reduces of one device in a group of one size: logarithms of elements and of seconds."""

    device: str
    tp_degree: int
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    factor: float = 1.0  # of the time: slower links than those that were measured

    def time_s(self, elements: float) -> float:
        """Return the time of one all-reduce of so many values of 2 bytes."""
        size = max(math.log(max(elements, 1.0)), self.sizes[0])
        above = min(max(bisect_right(self.sizes, size), 1), len(self.sizes) - 1)
        x0, x1 = self.sizes[above - 1], self.sizes[above]
        y0, y1 = self.seconds[above - 1], self.seconds[above]
        return self.factor * math.exp(y0 + (y1 - y0) * (size - x0) / (x1 - x0))


def exchange_s(accelerator: Accelerator, tp_degree: int, elements: float) -> float:
    """Return the time of one all-reduce over `tp_degree` devices; 0.0 where there is one."""
    if tp_degree < 2:
        return 0.0
    link_bytes_s = accelerator.link_bytes_s or LINK_BYTES_S
    found = exchange_of(accelerator.name, accelerator.link, link_bytes_s, tp_degree)
    if found is None:
        sent_bytes = 4 * (tp_degree - 1) / tp_degree * elements
        time_s = START_S + sent_bytes / link_bytes_s
    else:
        time_s = found.time_s(elements)
    if found and found.device == accelerator.name and found.tp_degree >= tp_degree:
        return time_s
    device = figures_of(accelerator, "", tp_degree)
    measured = [
        (link, other, times.time_s(elements)) for link, other, times in _measured(tp_degree)
    ]
    # A faster link than one that was measured takes no longer than that.
    time_s = min([time_s, *(other_s for link, _, other_s in measured if link <= link_bytes_s)])
    return held_between(time_s, device, ((other, other_s) for _, other, other_s in measured))


def is_measured(accelerator: Accelerator) -> bool:
    """Return whether all-reduces of this very device were measured."""
    links = _links()
    return links.get(accelerator.name, ("", 0.0))[0] == (accelerator.link or "none")


@cache
def exchange_of(name: str, link: str, link_bytes_s: float, tp_degree: int) -> DeviceExchange | None:
    """Find the measured row for a device, or that of one with such a link, slowed down to it."""
    links = _links()
    known = name if name in links else ALIKE.get(name, "")
    if known not in links or links[known][0] != link:
        known = BY_LINK.get(link, "")
    if not known:
        return None
    rows = _rows()[known]
    degree = min((size for size in rows if size >= tp_degree), default=max(rows))
    sizes, seconds = rows[degree]
    factor = links[known][1] / link_bytes_s if known != name else 1.0
    return DeviceExchange(
        device=known,
        tp_degree=degree,
        sizes=sizes,
        seconds=seconds,
        factor=max(1.0, factor),
    )


@cache
def _measured(tp_degree: int) -> tuple[tuple[float, DeviceFigures, DeviceExchange], ...]:
    """Return the link, the figures and the times of each device measured at such a degree."""
    found = []
    for name, (link, link_bytes_s) in _links().items():
        times = exchange_of(name, link, link_bytes_s, tp_degree)
        if times and times.tp_degree >= tp_degree:
            found.append((link_bytes_s, figures_named(name, "", tp_degree), times))
    return tuple(found)


@cache
def _links() -> Mapping[str, tuple[str, float]]:
    """Return of each measured device what links it, and at how many bytes a second."""
    return {row["device"]: (row["link"], float(row["link_gb_s"]) * 1e9) for row in _table()}


@cache
def _rows() -> Mapping[str, Mapping[int, tuple[tuple[float, ...], tuple[float, ...]]]]:
    """Return the times by device and degree, the smallest messages first."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for row in _table():
        times = found.setdefault(row["device"], {}).setdefault(int(row["tp_degree"]), [])
        times.append((math.log(float(row["elements"])), math.log(float(row["microseconds"]) / 1e6)))
    return {
        device: {
            degree: (tuple(size for size, _ in times), tuple(time for _, time in times))
            for degree, times in degrees.items()
        }
        for device, degrees in found.items()
    }


@cache
def _table() -> tuple[Mapping[str, str], ...]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return tuple(csv.DictReader(line for line in lines if not line.startswith("#")))
