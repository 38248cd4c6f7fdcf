"""Charts as values: positions for SVG, and the same points as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from packager.core.reports.labels import FONT, LETTER, Box, Label, place_labels, thinned
from packager.core.values import dataclass

# Steps of a decade for the grid, the coarsest that give enough lines.
ROUND_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(n / 10 for n in range(10, 100, 2)))
ENOUGH_TICKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One mark in a chart, in data values."""

    x: float
    y: float
    label: str
    title: str  # shown when the pointer rests on it
    chosen: bool = False
    front: bool = True  # no other mark is better in both directions


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid."""

    position: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A mark at its place in the drawing."""

    x: float
    y: float
    title: str
    chosen: bool
    front: bool
    label: Label | None  # None: not on the front, or no room for one


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing of `width` by `height`; the plot leaves the margins for the axes."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Placed, ...]  # the chosen one first, then the front
    line: str  # points of the front, as SVG wants them

    @property
    def unlabelled(self) -> int:
        """Count the points of the front that had no room for a label."""
        return sum(mark.front and mark.label is None for mark in self.marks)


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
        """Return round values in the range: 1, 2, 5 of every decade, finer where these are few."""
        decades = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
        inside: list[float] = []
        for steps in ROUND_STEPS:
            values = [step * 10.0**decade for decade in decades for step in steps]
            inside = [value for value in values if self.least <= value <= self.most]
            if len(inside) >= ENOUGH_TICKS:
                break
        return tuple(Tick(round(self.at(value), 1), f"{value:,.6g}") for value in inside)


def make_chart(
    marks: Sequence[Mark], *, x_label: str, y_label: str, width: int = 560, height: int = 360
) -> Chart:
    """Place marks of positive values; the line joins those on the front."""
    right, top, bottom = 16, 32, 56
    y = scale([mark.y for mark in marks], height - bottom, top)
    y_ticks = apart(y.ticks(), vertical=True)
    left = 16 + round(LETTER * max((len(tick.label) for tick in y_ticks), default=1))
    x = scale([mark.x for mark in marks], left, width - right)
    # The chosen one and the front keep their labels; others give way.
    order = sorted(marks, key=lambda mark: (not mark.chosen, not mark.front))
    at = [(round(x.at(mark.x), 1), round(y.at(mark.y), 1)) for mark in order]
    named = [index for index, mark in enumerate(order) if mark.front or mark.chosen]
    area = Box(left + 2, top - 0.6 * FONT, width - 2, height - bottom - 2)
    front = sorted(place for place, mark in zip(at, order, strict=True) if mark.front)
    wanted = [(*at[index], order[index].label) for index in named]
    found = place_labels(wanted, at, area, front)
    labels = dict(zip(named, found, strict=True))
    placed = tuple(
        Placed(
            x=at[index][0],
            y=at[index][1],
            title=mark.title,
            chosen=mark.chosen,
            front=mark.front,
            label=labels.get(index),
        )
        for index, mark in enumerate(order)
    )
    return Chart(
        width=width,
        height=height,
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        x_label=x_label,
        y_label=y_label,
        x_ticks=apart(x.ticks(), vertical=False),
        y_ticks=y_ticks,
        marks=placed,
        line=" ".join(f"{at_x:g},{at_y:g}" for at_x, at_y in front),
    )


def text_chart(
    marks: Sequence[Mark], *, x_label: str, y_label: str, width: int = 64, height: int = 14
) -> list[str]:
    """Return a scatter plot as text: `*` is chosen, `o` on the Pareto front, `.` dominated."""
    x = scale([mark.x for mark in marks], 0, width - 1)
    y = scale([mark.y for mark in marks], height - 1, 0)
    rows = [[" "] * width for _ in range(height)]
    # Drawn last, the chosen one is never covered.
    for mark in sorted(marks, key=lambda mark: (mark.chosen, mark.front)):
        letter = "*" if mark.chosen else "o" if mark.front else "."
        rows[round(y.at(mark.y))][round(x.at(mark.x))] = letter
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
