"""The display for people at a terminal: a list of stages that fills, with bars for what moves."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from packager.cli.displays import Dated, clock, count_line, label_of, percent
from packager.cli.live import LiveArea, Size, does_rewrap, size_of
from packager.cli.meter import LayerNow, Snapshot, StageNow, StepNow
from packager.core.reports.cells import cell_width, fitted, padded, right_padded
from packager.core.text import escape
from packager.core.units import decimal

MOST_LAYERS = 8
WIDEST = 100  # cells; lines of more are not read, and are wrapped when the window shrinks
NARROWEST = 20  # columns that figures have room in
_TIME = 8  # cells of a duration
_NAME = 12  # cells of a stage's name, where there are longer ones
_SHORTEST_BAR, _LONGEST_BAR = 8, 24
_LEAST_DETAIL = 12

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}")  # a truncated digest is of no use

_SGR = {"done": "32", "running": "1", "waiting": "2", "dim": "2", "bar": "36", "": ""}


@dataclass(frozen=True, slots=True)
class Look:
    """Capabilities of a terminal."""

    encoding: str = "utf-8"
    coloured: bool = True

    @property
    def is_unicode(self) -> bool:
        return self.encoding.lower().replace("-", "").replace("_", "").startswith("utf")

    @property
    def ellipsis(self) -> str:
        return "…" if self.is_unicode else "..."

    def mark(self, state: str) -> str:
        """Return the mark before a stage's line."""
        marks = {"done": "✓", "running": "▸", "waiting": "·"} if self.is_unicode else {}
        return marks.get(state) or {"done": "+", "running": ">", "waiting": "."}[state]

    def bar(self, share: float, width: int) -> str:
        """Return a bar of which `share` is full."""
        full = int(width * min(max(share, 0.0), 1.0))
        done, left = ("━", "─") if self.is_unicode else ("#", ".")
        return self.paint(done * full, "bar") + self.paint(left * (width - full), "dim")

    def text(self, text: str) -> str:
        """Return untrusted text as one line that the terminal can show."""
        return escape(text).encode(self.encoding, "backslashreplace").decode(self.encoding)

    def paint(self, text: str, style: str) -> str:
        """Return the text in a style, where the user wants any."""
        code = _SGR[style]
        return f"\x1b[{code}m{text}\x1b[0m" if code and self.coloured and text else text


class Bars:
    """Redraws the bars in place, and removes them before the summary is printed."""

    interval_s = 0.2

    def __init__(self, area: LiveArea, look: Look, size: Callable[[], Size]) -> None:
        self._area = area
        self._look = look
        self._size = size

    def show(self, news: Sequence[Dated], now: Snapshot) -> None:  # noqa: ARG002
        """Draw the stages as they are now."""
        columns, lines = self._size()
        self._area.draw(frame_lines(now, self._look, columns, lines))

    def close(self) -> None:
        """Remove the list."""
        self._area.close()


def bars_on(stream: TextIO, environment: Mapping[str, str] = os.environ) -> tuple[Bars, LiveArea]:
    """Return the display for a terminal, and the area that it draws in."""

    def size() -> Size:
        return size_of(stream, environment)

    area = LiveArea(stream, size, is_rewrapped=does_rewrap(environment))
    return Bars(area, look_of(stream, environment), size), area


def look_of(stream: TextIO, environment: Mapping[str, str]) -> Look:
    """Return the terminal's capabilities; NO_COLOR and CLICOLOR=0 disable all styles."""
    plain = bool(environment.get("NO_COLOR")) or environment.get("CLICOLOR") == "0"
    return Look(encoding=getattr(stream, "encoding", None) or "utf-8", coloured=not plain)


def frame_lines(now: Snapshot, look: Look, columns: int, lines: int) -> list[str]:
    """Return the lines of the list, shorter than `columns`, and fewer than `lines`."""
    if columns < NARROWEST:
        return []
    width = max(1, min(columns - 1, WIDEST))
    names = max((cell_width(escape(stage.name)) for stage in now.stages), default=0)
    draw = _Rows(look, width, min(names, _NAME))
    room = max(1, lines - 1)
    running = [stage for stage in now.stages if stage.state == "running"]
    # When all are there, the stages that follow are what there is to see.
    has_ended = any(stage.name == "layers" and stage.state == "done" for stage in now.stages)
    details = [] if has_ended else list(draw.layers(now))
    details = details[: max(0, room - len(running) - 2)]
    done = [stage for stage in now.stages if stage.state == "done"]
    waiting = [stage for stage in now.stages if stage.state == "waiting"]
    free = room - len(details) - len(running)
    shown: list[str] = list(draw.folded(done, free - min(len(waiting), 1), "done"))
    free -= len(shown)
    for stage in running:
        shown.append(draw.stage(stage, now))
        if stage.name == "layers":
            shown += details
            details = []
    shown += details
    shown += draw.folded(waiting, free, "waiting")
    return shown[:room]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Writes lines of at most `width` cells. No number in them is ever cut."""

    look: Look
    width: int
    names: int  # cells of the column of names

    def folded(self, stages: Sequence[StageNow], room: int, state: str) -> Iterator[str]:
        """Yield a line per stage; where they do not fit, one line for most of them."""
        if len(stages) <= room:
            for stage in stages:
                yield self._plain(stage)
            return
        if room < 1:
            return
        kept = stages[len(stages) - room + 1 :] if state == "done" else stages[: room - 1]
        many = len(stages) - len(kept)
        line = self._line(
            state,
            sum(stage.seconds for stage in stages[:many]) if state == "done" else None,
            f"{many} {'stages' if state == 'done' else 'more'}",
            "",
        )
        if state == "done":
            yield line
        for stage in kept:
            yield self._plain(stage)
        if state == "waiting":
            yield line

    def stage(self, stage: StageNow, now: Snapshot) -> str:
        """Return the line of a stage that is under way."""
        name = f"  {stage.name}" if stage.is_part else stage.name
        step = stage.step
        if stage.name == "layers" and now.layers:
            return self._moving(name, stage.seconds, now, "")
        if step is None or not step.size:
            left = f", {clock(step.eta_s)} left" if step and step.eta_s else ""
            return self._line("running", stage.seconds, name, stage.detail, left)
        return self._moving(name, stage.seconds, step, stage.detail)

    def layers(self, now: Snapshot) -> Iterator[str]:
        """Yield a line for each layer under way, and one that counts all."""
        for layer in now.active[:MOST_LAYERS]:
            state = f" ({layer.state})" if layer.state in ("hashing", "again") else ""
            yield self._moving("  " + label_of(layer) + state, None, layer, "")
        if now.layers:
            yield self._counts(now)

    def _counts(self, now: Snapshot) -> str:
        """Return the number of layers per state, with as many states as fit."""
        indent, more = " " * (_TIME + 6), len(now.active) - MOST_LAYERS
        counts = count_line(now)
        words = (
            f"{counts}; {more} more under way" if more > 0 else "",
            counts,
            counts.partition(":")[0],
            f"{now.layers_done}/{now.layers}",
        )
        room = self.width - len(indent)
        found = next((each for each in words if each and len(each) <= room), "")
        return indent + self.look.paint(found, "dim")

    def _plain(self, stage: StageNow) -> str:
        name = f"  {stage.name}" if stage.is_part else stage.name
        seconds = None if stage.state == "waiting" else stage.seconds
        return self._line(stage.state, seconds, name, stage.detail)

    def _head(self, state: str, seconds: float | None) -> str:
        time = "" if seconds is None else _duration(seconds)
        mark = self.look.mark(state) if state else " "
        return self.look.paint(mark, state) + " " + right_padded(time, _TIME) + "  "

    def _line(
        self, state: str, seconds: float | None, name: str, detail: str, after: str = ""
    ) -> str:
        room = self.width - _TIME - 4
        detail = self.look.text(_DIGEST.sub("", detail))
        after = after if cell_width(after) <= room // 2 else ""
        shown = self._name(name, room - cell_width(after), alone=not detail)
        room -= cell_width(shown) + cell_width(after)
        if detail and room >= min(_LEAST_DETAIL, cell_width(detail) + 2):
            detail = "  " + fitted(detail, room - 2, self.look.ellipsis)
        else:
            detail = ""
        style = "waiting" if state == "waiting" else "running" if state == "running" else ""
        return (
            self._head(state, seconds)
            + self.look.paint(shown, style)
            + self.look.paint(detail, "dim")
            + after
        ).rstrip()

    def _moving(
        self, name: str, seconds: float | None, work: Snapshot | StepNow | LayerNow, detail: str
    ) -> str:
        """Return a line with a bar and figures; drop the least important that do not fit."""
        share = work.share
        figures = {
            "percent": f"{percent(share):>5}",
            "amount": _amount(work.done, work.size),
            "rate": f"{decimal(work.rate)}/s" if work.rate else "",
            "left": f"{clock(work.eta_s)} left" if work.eta_s else "",
        }
        room = self.width - _TIME - 4
        named = min(cell_width(self.look.text(name)), max(self.names, room // 3))
        kept = [key for key, text in figures.items() if text]
        for least in ("rate", "amount", "left"):
            if named + sum(2 + cell_width(figures[key]) for key in kept) > room:
                kept = [key for key in kept if key != least]
        numbers = "".join(f"  {figures[key]}" for key in kept)
        room -= cell_width(numbers)
        shown = self._name(name, max(0, min(room, named)), alone=False)
        room -= cell_width(shown)
        bar = min(_LONGEST_BAR, room - 2)
        drawn = "  " + self.look.bar(share, bar) if bar >= _SHORTEST_BAR else ""
        room -= bar + 2 if drawn else 0
        note = ""
        if detail and room >= _LEAST_DETAIL:
            said = self.look.text(_DIGEST.sub("", detail))
            note = "  " + fitted(said, room - 2, self.look.ellipsis)
        state = "" if seconds is None else "running"
        head = self._head(state, seconds)
        return head + self.look.paint(shown, state) + drawn + numbers + self.look.paint(note, "dim")

    def _name(self, name: str, room: int, *, alone: bool) -> str:
        shown = fitted(self.look.text(name), max(0, room), self.look.ellipsis)
        return shown if alone else padded(shown, min(self.names, max(0, room)))


def _amount(done: int, size: int) -> str:
    """Return a part of a size: `1.2 of 8.0 GB`, `512 B of 8.0 GB`."""
    part, whole = decimal(done), decimal(size)
    number, _, unit = part.partition(" ")
    return f"{number if whole.endswith(f' {unit}') else part} of {whole}"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 59.95 else clock(seconds)
