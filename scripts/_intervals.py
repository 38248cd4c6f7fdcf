"""Intervals of shares, and of the difference between two looks at the same mutants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

Z = 1.959964  # 95 %


def wilson(part: int, whole: int) -> tuple[float, float]:
    """Return the 95 % interval of a share; of nothing it is everything."""
    if not whole:
        return 0.0, 1.0
    share = part / whole
    middle = share + Z * Z / (2 * whole)
    half = Z * sqrt(share * (1 - share) / whole + Z * Z / (4 * whole * whole))
    scale = 1 + Z * Z / whole
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


@dataclass(frozen=True, slots=True)
class Paired:
    """Two verdicts on each of the same mutants."""

    both: int  # mutants that were judged before and now
    lost: tuple[str, ...]  # caught before and not now
    won: tuple[str, ...]  # caught now and not before

    @property
    def difference(self) -> float:
        """Return by how much the share of the caught has grown."""
        return (len(self.won) - len(self.lost)) / self.both if self.both else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the difference: Wald's, with half a mutant in each cell."""
        lost, won, both = len(self.lost) + 0.5, len(self.won) + 0.5, self.both + 2
        middle = (won - lost) / both
        half = Z * sqrt(won + lost - (won - lost) ** 2 / both) / both
        return max(-1.0, middle - half), min(1.0, middle + half)

    @property
    def is_worse(self) -> bool:
        """Return whether fewer are caught, beyond the interval."""
        return self.interval[1] < 0


def compare(before: Mapping[str, bool], now: Mapping[str, bool]) -> Paired:
    """Pair mutants, by their ids, that were caught (or not) both times."""
    both = sorted(before.keys() & now.keys())
    return Paired(
        len(both),
        tuple(one for one in both if before[one] and not now[one]),
        tuple(one for one in both if now[one] and not before[one]),
    )
