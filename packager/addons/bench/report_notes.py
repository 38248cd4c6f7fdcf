"""What a reader must know of a whole benchmark: chance, and where bills cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packager.addons.bench.compare import PRICE, chance_findings
from packager.addons.bench.names import short_names
from packager.addons.bench.prices import break_even, capacity_of
from packager.core.bench import BenchVariant, Compared
from packager.core.units import usd


def report_notes(variants: Sequence[BenchVariant], compared: Sequence[Compared]) -> tuple[str, ...]:
    """Return notes on a benchmark as a whole, in the order of their weight."""
    return (*_chance(compared), *bill_notes(variants))


def _chance(compared: Sequence[Compared]) -> Iterator[str]:
    expected = chance_findings(compared)
    if expected < 1:
        return
    count = sum(one.is_noise is not None and one.metric != PRICE for one in compared)
    yield (
        f"each of the {count:,} intervals holds with 95 % alone: were all servers equal, about "
        f"{expected:.0f} of the comparisons would still look like a difference"
    )


def bill_notes(variants: Sequence[BenchVariant]) -> Iterator[str]:
    """Yield from which load on a dearer machine makes the smaller bill than the first one."""
    names = short_names([variant.name for variant in variants])
    capacities = [
        capacity_of(name, variant.loads) for name, variant in zip(names, variants, strict=True)
    ]
    if not capacities or (first := capacities[0]) is None:
        return
    for other in capacities[1:]:
        if other is None or other.usd_hour == first.usd_hour:
            continue
        found = break_even(first, other)
        if found is not None:
            yield (
                f"above {found.requests_hour:,.0f} requests an hour "
                f"{_machines(found.larger_machines, found.larger)} "
                f"(${usd(max(first.usd_hour, other.usd_hour))} an hour each) "
                f"{'costs' if found.larger_machines == 1 else 'cost'} less than "
                f"{_machines(found.smaller_machines, found.smaller)} "
                f"(${usd(min(first.usd_hour, other.usd_hour))})"
            )


def _machines(count: int, name: str) -> str:
    return f"{count:,} {'machine' if count == 1 else 'machines'} of {name!r}"
