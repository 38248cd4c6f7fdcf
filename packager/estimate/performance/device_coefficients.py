"""Coefficients of speed for a device without measured curves, from those of measured devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from packager.estimate.performance.devices import DeviceFigures, figures_named, held_between
from packager.estimate.performance.speed_table import Kind, speed_table
from packager.estimate.performance.speed_terms import (
    BY_BANDWIDTH,
    BY_PEAK,
    PROMPT_TERMS,
    STEP_TERMS,
    figure_of,
)

# The devices whose shares the coefficients of all devices together stand for.
REFERENCE = ("H100", "H200", "B200")


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Coefficients of a step, and of a prompt's share of it."""

    step: tuple[float, ...]
    prompt: tuple[float, ...]


@cache
def coefficients_between(
    engine: str, kind: Kind, name: str, device: DeviceFigures, scheme: str, degree: int
) -> Coefficients:
    """Correct the coefficients of all devices by what this one was measured to reach.

    Each stays between those of the engine's measured devices that outdo it and that it outdoes.
    """
    table = speed_table()
    row = table.of_engine(engine, kind)
    memory, compute = (
        _usual(shares)
        * getattr(device, figure)
        / _reached(shares, name, device, figure, scheme, degree)
        for shares, figure in (
            (table.memory_share, "bandwidth"),
            (table.compute_share, "peak_of_16_bits"),
        )
    )
    measured = [
        (figures_named(cell.device, scheme, degree), cell)
        for cell in table.cells.values()
        if (cell.engine, cell.kind) == (engine, kind) and cell.device
    ]

    def held(part: str, names: tuple[str, ...]) -> tuple[float, ...]:
        found = []
        for place, (term, value) in enumerate(zip(names, getattr(row, part), strict=True)):
            slower = memory if term in BY_BANDWIDTH else compute if term in BY_PEAK else 1.0
            own = figure_of(term, device)
            others = (
                (other, getattr(cell, part)[place] / figure_of(term, other))
                for other, cell in measured
            )
            found.append(own * held_between(slower * value / own, device, others))
        return tuple(found)

    return Coefficients(held("step", STEP_TERMS), held("prompt", PROMPT_TERMS))


def _reached(
    shares: Mapping[str, float],
    name: str,
    device: DeviceFigures,
    figure: str,
    scheme: str,
    degree: int,
) -> float:
    """Return what a device reaches of a figure: as measured, else as the devices around it."""
    own: float = getattr(device, figure)
    if name in shares:
        return shares[name] * own
    others = [(figures_named(one, scheme, degree), share) for one, share in shares.items()]
    # Of speeds the larger is better: held as the times that they make.
    times = ((other, 1 / (share * getattr(other, figure))) for other, share in others)
    return 1 / held_between(1 / (_usual(shares) * own), device, times)


def _usual(shares: Mapping[str, float]) -> float:
    return sum(shares[one] for one in REFERENCE) / len(REFERENCE)
