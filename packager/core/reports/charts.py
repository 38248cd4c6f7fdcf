"""Scales of charts, and charts as text for a terminal; `curves` places them for SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packager.core.reports.labels import thinned
from packager.core.reports.report import Series

# Steps of a decade for the grid, the coarsest that give enough lines.


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid."""

    position: float
    label: str


@dataclass(frozen=True, slots=True)
class ChartScale:
    """Maps values to positions by their logarithm: speeds and prices span decades."""

    least: float
    most: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value."""
        share = (math.log(value) - math.log(self.least)) / (
            math.log(self.most) - math.log(self.least)
        )
        return self.start + share * (self.end - self.start)

    def ticks(self) -> tuple[Tick, ...]:
        """Return round values in the range: 1, 2, 5 of every decade, or even steps within one."""
        decades = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
        steps = (1, 2, 5) if self.most / self.least < 1000 else (1,)
        values = [step * 10.0**decade for decade in decades for step in steps]
        inside = [value for value in values if self.least <= value <= self.most]
        if self.most / self.least < 10:
            inside = even_values(self.least, self.most)
        return tuple(Tick(round(self.at(value), 1), f"{value:,.6g}") for value in inside)


def even_values(least: float, most: float) -> list[float]:
    """Return four to eight round values in a range, at even distances."""
    sizes = (digit * 10.0**power for power in range(-12, 13) for digit in (1, 2, 5))
    step = next(size for size in sizes if (most - least) / size <= 7)
    first = -int(-least // step)
    values = (step * (first + more) for more in range(9))
    return [value for value in values if value <= most + step * 1e-9]


def text_chart(
    series: Sequence[Series], *, x_label: str, y_label: str, width: int = 64, height: int = 14
) -> list[str]:
    """Return a scatter plot as text: `*` is ringed, `o` joined by a line, `.` faint."""
    dots = [(dot.ringed, not one.is_faint, dot) for one in series for dot in one.dots]
    x = scale([dot.x for _, _, dot in dots], 0, width - 1)
    y = scale([dot.y for _, _, dot in dots], height - 1, 0)
    rows = [[" "] * width for _ in range(height)]
    # Drawn last, what is ringed is never covered.
    for ringed, is_clear, dot in sorted(dots, key=lambda one: one[:2]):
        letter = "*" if ringed else "o" if is_clear else "."
        rows[round(y.at(dot.y))][round(x.at(dot.x))] = letter
    labels = {round(tick.position): tick.label for tick in y.ticks()}
    gutter = max(map(len, labels.values()), default=0)
    lines = [f"  {y_label}"]
    for number, row in enumerate(rows):
        label = labels.get(number, "")
        lines.append(f"  {label:>{gutter}} |{''.join(row)}".rstrip())
    lines.append(f"  {'':>{gutter}} +{'-' * width}")
    axis = [" "] * (width + 8)
    for tick in x.ticks():
        start = max(0, round(tick.position) - len(tick.label) // 2)
        if all(letter == " " for letter in axis[max(0, start - 1) : start + len(tick.label) + 1]):
            axis[start : start + len(tick.label)] = tick.label
    lines.append(f"  {'':>{gutter}}  {''.join(axis)}".rstrip())
    lines.append(f"  {'':>{gutter}}  {x_label}")
    return lines


def scale(values: Iterable[float], start: float, end: float) -> ChartScale:
    """Return a scale that covers all values, with margins at both ends."""
    known = list(values)
    least, most = min(known), max(known)
    room = max(1.08, (most / least) ** 0.08)
    return ChartScale(least / room, most * room, start, end)


def apart(ticks: tuple[Tick, ...], *, vertical: bool) -> tuple[Tick, ...]:
    """Keep the lines of the grid whose labels do not touch."""
    kept = thinned(((tick.position, tick.label) for tick in ticks), vertical=vertical)
    return tuple(tick for tick in ticks if tick.position in kept)
