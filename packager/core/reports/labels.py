"""Places for the labels of a chart: beside their points, without overlaps.

A label tries the places around its point, nearest first, and takes the first that is free of every
point and every other label.  One that finds none is left out: its value is in the table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FONT = 15.0  # units of the drawing; pages may print smaller, never larger
LETTER = 0.68 * FONT  # of the widest common font, in bold; capitals and digits, not only `i`
MARK_RADIUS = 9.0  # with the ring of the chosen one
DIRECTIONS = 16
DISTANCES = (13.0, 22.0, 34.0, 48.0, 64.0)
NEAR = 23.0  # farther labels are joined to their point by a line


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of the drawing; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def is_within(self, outer: Box) -> bool:
        return (
            outer.left <= self.left
            and self.right <= outer.right
            and outer.top <= self.top
            and self.bottom <= outer.bottom
        )


@dataclass(frozen=True, slots=True)
class Stroke:
    """A straight line between two points."""

    x: float
    y: float
    end_x: float
    end_y: float

    def crosses(self, box: Box) -> bool:
        """Return whether some of it lies in the box: its part between the sides is not empty."""
        start, end = 0.0, 1.0
        across, down = self.end_x - self.x, self.end_y - self.y
        for step, low, high in (
            (across, box.left - self.x, box.right - self.x),
            (down, box.top - self.y, box.bottom - self.y),
        ):
            if step == 0:
                if low > 0 or high < 0:
                    return False
                continue
            first, last = sorted((low / step, high / step))
            start, end = max(start, first), min(end, last)
        return start <= end


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text at its place: `x` and `y` are where its baseline begins, or ends."""

    text: str
    x: float
    y: float
    anchor: str  # `start`, `middle` or `end`, as SVG says
    box: Box
    leader: tuple[float, float, float, float] | None = None  # from the point, where it is far


def text_box(text: str, x: float, y: float, anchor: str) -> Box:
    """Return the room of a text whose baseline is at `y`; rather too wide than too narrow."""
    width = LETTER * max(1, len(text)) + 0.3 * FONT
    left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
    return Box(left, y - 0.95 * FONT, left + width, y + 0.28 * FONT)


def place_labels(
    wanted: Sequence[tuple[float, float, str]],
    points: Iterable[tuple[float, float]],
    area: Box,
    line: Sequence[tuple[float, float]] = (),
) -> tuple[Label | None, ...]:
    """Place labels in order of importance; None for a label without a free place.

    `wanted` are points with their texts; `points` are all that are drawn.  A place that the `line`
    does not cross is taken before one nearer.
    """
    strokes = [Stroke(*start, *end) for start, end in itertools.pairwise(line)]
    marks = [mark_box(x, y) for x, y in points]
    taken: list[Box] = []
    placed: list[Label | None] = []
    for x, y, text in wanted:
        free = [
            label
            for label in _places(x, y, text)
            if label.box.is_within(area)
            and not any(map(label.box.overlaps, marks))
            and not any(map(label.box.overlaps, taken))
        ]
        beside = (one for one in free if not any(stroke.crosses(one.box) for stroke in strokes))
        found = next(beside, free[0] if free else None)
        placed.append(found)
        if found:
            taken.append(found.box)
    return tuple(placed)


def mark_box(x: float, y: float) -> Box:
    """Return the room of a point with its ring."""
    return Box(x - MARK_RADIUS, y - MARK_RADIUS, x + MARK_RADIUS, y + MARK_RADIUS)


def thinned(labels: Iterable[tuple[float, str]], *, vertical: bool) -> set[float]:
    """Choose positions of an axis whose labels stand apart; the roundest numbers come first."""
    kept: dict[float, Box] = {}
    for position, text in sorted(labels, key=lambda label: (_digits(label[1]), label[0])):
        box = text_box(text, *((0.0, position) if vertical else (position, 0.0)), "middle")
        if not any(_wider(other, 4).overlaps(box) for other in kept.values()):
            kept[position] = box
    return set(kept)


def _digits(number: str) -> int:
    """Count the significant digits: 1 of `2,000` and `0.05`, 2 of `98`."""
    return len(number.replace(",", "").replace(".", "").strip("0"))


def _wider(box: Box, by: float) -> Box:
    return Box(box.left - by, box.top - by, box.right + by, box.bottom + by)


def _places(x: float, y: float, text: str) -> Iterable[Label]:
    for distance in DISTANCES:
        for turn in range(DIRECTIONS):
            # From the upper right, then to both sides of it, where readers look first.
            angle = math.pi / 4 + (turn + 1) // 2 * (-1) ** turn * 2 * math.pi / DIRECTIONS
            yield _at(x, y, text, distance, angle)


def _at(x: float, y: float, text: str, distance: float, angle: float) -> Label:
    right, up = math.cos(angle), math.sin(angle)
    at_x = x + distance * right
    anchor = "middle" if abs(right) < 0.2 else "start" if right > 0 else "end"
    # The middle of the letters is on the ray; straight above and below, their edge is.
    shift = 0.3 * FONT if anchor != "middle" else (0.0 if up > 0 else 0.7 * FONT)
    at_y = y - distance * up + shift
    leader = None
    if distance > NEAR:
        nearest = MARK_RADIUS - 2
        leader = (x + nearest * right, y - nearest * up, at_x - 2 * right, y - (distance - 2) * up)
    rounded = tuple(round(value, 1) for value in leader) if leader else None
    box = text_box(text, at_x, at_y, anchor)
    return Label(
        text=text,
        x=round(at_x, 1),
        y=round(at_y, 1),
        anchor=anchor,
        box=box,
        leader=(rounded[0], rounded[1], rounded[2], rounded[3]) if rounded else None,
    )
