"""Order of devices by their data sheets, which no prediction turns around.

A device with no less bandwidth, arithmetic and link than another of its vendor takes no longer for
any term of the speed model.  Fits are made under this order (`benchmarks/fit_speed.py`); what was
not measured is held between the measured devices above and below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from packager.catalog.accelerators import AcceleratorRow, accelerator_rows
from packager.core.catalog import Accelerator
from packager.estimate.performance.served import peak_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    """What a data sheet says of a device that computes weights of one scheme; 0.0: not known."""

    vendor: str  # servers on AMD's GPUs take twice what their sheets promise beside NVIDIA's
    bandwidth: float  # bytes a second
    peak: float  # operations a second, of the scheme
    peak_of_16_bits: float
    link: float  # bytes a second to its neighbours; 0.0 where it serves alone

    def outdoes(self, other: DeviceFigures) -> bool:
        """Return whether it has no less of anything; a device outdoes itself."""
        return (
            self.vendor == other.vendor
            and self.bandwidth >= other.bandwidth
            and self.peak >= other.peak
            and self.peak_of_16_bits >= other.peak_of_16_bits
            and self.link >= other.link
        )


def figures_of(device: Accelerator | AcceleratorRow, scheme: str, tp_degree: int) -> DeviceFigures:
    """Return the figures of one of `tp_degree` devices for weights of a scheme."""
    return DeviceFigures(
        vendor=device.kind,
        bandwidth=device.bandwidth_bytes_s,
        peak=peak_flops(device, scheme),
        peak_of_16_bits=peak_flops(device, ""),
        link=device.link_bytes_s if tp_degree > 1 else 0.0,
    )


@cache
def figures_named(name: str, scheme: str, tp_degree: int) -> DeviceFigures:
    """Return the figures of a device of the catalog; raise `KeyError` where it has none."""
    return figures_of(accelerator_rows()[name], scheme, tp_degree)


def held_between(
    value: float, device: DeviceFigures, others: Iterable[tuple[DeviceFigures, float]]
) -> float:
    """Return a time, no shorter than of devices that outdo this one, no longer than of others."""
    known = tuple(others)
    least = max((time for other, time in known if other.outdoes(device)), default=0.0)
    most = min((time for other, time in known if device.outdoes(other)), default=float("inf"))
    return min(max(value, least), max(most, least))
