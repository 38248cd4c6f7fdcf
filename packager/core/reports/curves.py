"""Charts of several series as values: lines of points with intervals, placed for SVG.

Every series has its own colour and shape, so that it is distinct in print and to readers who see no
colours.  The pairs repeat after `COLOURS` x `SHAPES` series.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packager.core.reports.charts import ChartScale, Tick, apart, even_values, scale
from packager.core.reports.labels import FONT, LETTER, Box, Label, place_labels
from packager.core.reports.report import Chart, Dot, Series

COLOURS = 6
# Outlines around a point, as SVG's relative path; none is wider than 12.
SHAPES = (
    "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",  # circle
    "m-4.6-4.6h9.2v9.2h-9.2z",  # square
    "m0-6.4 6.4 6.4-6.4 6.4-6.4-6.4z",  # diamond
    "m0-6 5.9 10.4h-11.8z",  # triangle
    "m0 6 5.9-10.4h-11.8z",  # triangle on its point
    "m-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",  # cross
    "m-3-5.4h6l3 5.4-3 5.4h-6l-3-5.4z",  # hexagon
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDot:
    """A point at its place in the drawing."""

    x: float
    y: float
    title: str
    outline: str  # path of its shape
    ringed: bool
    bars: str  # path of its intervals; "" for none
    label: Label | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSeries:
    """A series with its colour, its line and its points."""

    colour: int
    is_faint: bool
    line: str  # points in SVG's form; "" if none
    dots: tuple[PlacedDot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
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
    series: tuple[PlacedSeries, ...]
    names: tuple[tuple[Label, int], ...]  # of series beside their ends, with their colours
    unlabelled: int  # points without room for their label


@dataclass(frozen=True, slots=True)
class Linear:
    """Maps values to positions evenly: for shares, and where values are not positive."""

    least: float
    most: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value."""
        share = (value - self.least) / (self.most - self.least)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> tuple[Tick, ...]:
        """Return four to eight round values in the range."""
        inside = even_values(self.least, self.most)
        return tuple(Tick(round(self.at(value), 1), f"{value:,.6g}") for value in inside)


def shape_of(number: int) -> str:
    """Return the outline of a series' points."""
    return SHAPES[number % len(SHAPES)]


def make_curves(chart: Chart, *, width: int = 620) -> Curves:
    """Place series of positive values; of a chart with `linear_y` also of others."""
    right, top, bottom = 18, 34, 56
    floor = chart.height - bottom
    dots = [dot for one in chart.series for dot in one.dots]
    highs = [value for dot in dots for value in (dot.y, *(dot.y_range or ()))]
    y = _even(highs, floor, top) if chart.linear_y else scale(highs, floor, top)
    y_ticks = apart(y.ticks(), vertical=True)
    left = 16 + round(LETTER * max((len(tick.label) for tick in y_ticks), default=1))
    wides = [value for dot in dots for value in (dot.x, *(dot.x_range or ()))]
    x = (_even if chart.linear_x else scale)(wides, left, width - right)
    steps = tuple(Tick(round(x.at(step), 1), f"{step:,.6g}") for step in chart.x_steps)
    area = Box(left + 2, top - 0.6 * FONT, width - 2, floor - 2)
    placed, names = _placed(chart.series, x, y, area)
    return Curves(
        width=width,
        height=chart.height,
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        x_label=chart.x_label,
        y_label=chart.y_label,
        x_ticks=apart(steps or x.ticks(), vertical=False),
        y_ticks=y_ticks,
        series=placed,
        names=names,
        unlabelled=sum(
            dot.label is None and bool(given.label)
            for one, of in zip(placed, chart.series, strict=True)
            for dot, given in zip(one.dots, of.dots, strict=True)
        ),
    )


def _even(values: Sequence[float], start: float, end: float) -> Linear:
    """Return an even scale that covers all values, with margins at both ends."""
    room = (max(values) - min(values)) * 0.12 or abs(max(values)) * 0.05 or 1.0
    return Linear(min(values) - room, max(values) + room, start, end)


def _placed(
    series: Sequence[Series], x: ChartScale | Linear, y: ChartScale | Linear, area: Box
) -> tuple[tuple[PlacedSeries, ...], tuple[tuple[Label, int], ...]]:
    """Place the lines, then the names of series at their ends, then the labels of points.

    Of the labels those of ringed points come first.
    """
    lines = [[(round(x.at(dot.x), 1), round(y.at(dot.y), 1)) for dot in one.dots] for one in series]
    named = [at for at, one in enumerate(series) if one.name and one.dots]
    labelled = [
        (at, number) for at, one in enumerate(series) for number, dot in enumerate(one.dots)
        if dot.label
    ]  # fmt: skip
    labelled.sort(key=lambda place: not series[place[0]].dots[place[1]].ringed)
    wanted = [(*lines[at][-1], series[at].name) for at in named]
    wanted += [(*lines[at][number], series[at].dots[number].label) for at, number in labelled]
    # Lines of all series, as one: labels prefer to stand beside them.
    joined = max((line for one, line in zip(series, lines, strict=True) if not one.is_faint),
                 key=len, default=[])  # fmt: skip
    found = place_labels(wanted, [place for line in lines for place in line], area, joined)
    labels = dict(zip(labelled, found[len(named) :], strict=True))
    names = tuple(
        (label, series[at].number % COLOURS)
        for at, label in zip(named, found, strict=False)
        if label is not None
    )
    drawn = tuple(
        PlacedSeries(
            colour=one.number % COLOURS,
            is_faint=one.is_faint,
            line=" ".join(f"{at_x:g},{at_y:g}" for at_x, at_y in line) if one.joined else "",
            dots=tuple(
                PlacedDot(
                    x=place[0],
                    y=place[1],
                    title=dot.title,
                    outline=f"M{place[0]:g} {place[1]:g}{shape_of(one.number)}",
                    ringed=dot.ringed,
                    bars="".join(_bars(dot, place, x, y)),
                    label=labels.get((at, number)),
                )
                for number, (dot, place) in enumerate(zip(one.dots, line, strict=True))
            ),
        )
        for at, (one, line) in enumerate(zip(series, lines, strict=True))
    )
    return drawn, names


def _bars(
    dot: Dot, place: tuple[float, float], x: ChartScale | Linear, y: ChartScale | Linear
) -> Iterator[str]:
    """Yield the paths of a point's intervals, with caps."""
    if dot.x_range:
        low, high = (round(x.at(value), 1) for value in dot.x_range)
        yield f"M{low:g} {place[1]:g}H{high:g}"
        yield f"M{low:g} {place[1] - 3:g}v6M{high:g} {place[1] - 3:g}v6"
    if dot.y_range:
        low, high = (round(y.at(value), 1) for value in dot.y_range)
        yield f"M{place[0]:g} {low:g}V{high:g}"
        yield f"M{place[0] - 3:g} {low:g}h6M{place[0] - 3:g} {high:g}h6"
