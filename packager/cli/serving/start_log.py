"""Progress of a server's start, from an engine's log and the time of each line.

Lines are those that `data/start_logs.toml` names. A log is untrusted text: a forged line can change
a figure, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Literal

from packager.core.share import read_shipped

DATA = Path(__file__).parent / "data" / "start_logs.toml"

MOST_BYTES = 16 * 1024 * 1024  # of a log: a start writes some 100 kB
LONGEST_LINE = 2000  # characters that are searched

Mark = Literal["weights_begin", "weights_end", "engine_end"]

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMarks:
    """Times of a start's stages, by the clock of the log's writer; None: unknown."""

    weights_begin: float | None = None
    weights_end: float | None = None
    engine_end: float | None = None
    compiled: str = ""  # the launcher's report on compiled files


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStart:
    """Seconds of a start by part, from the container's start to its first answer."""

    importing: float | None = None
    weights: float | None = None
    compiling: float | None = None
    ready: float | None = None
    untold: float = 0.0  # in none of them


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    mark: Mark
    found: re.Pattern[str]


def parse_time(text: str) -> float | None:
    """Return the time that begins a text, as Docker writes it, in seconds since 1970."""
    found = _TIME.match(text)
    if found is None:
        return None
    zone = "+00:00" if found[3] == "Z" else found[3]
    try:
        whole = datetime.fromisoformat(f"{found[1]}{zone}").timestamp()
    except (ValueError, OverflowError):
        return None
    return whole + (float(f"0.{found[2]}") if found[2] else 0.0)


def read_marks(log: str) -> StartMarks:
    """Read the marks from a log whose lines begin with a time."""
    begins: list[float] = []
    ends: list[tuple[float, float | None]] = []
    engine: list[float] = []
    compiled = ""
    for at, text in _lines(log):
        if not compiled and text.startswith("packager: ") and "compiled" in text:
            compiled = text.removeprefix("packager: ").strip()
        for pattern in _patterns():
            found = pattern.found.search(text)
            if found is None:
                continue
            if pattern.mark == "weights_begin":
                begins.append(at)
            elif pattern.mark == "weights_end":
                ends.append((at, _seconds(found)))
            else:
                engine.append(at)
    counted = [at - seconds for at, seconds in ends if seconds is not None]
    return StartMarks(
        weights_begin=min(begins or counted, default=None),
        weights_end=max((at for at, _ in ends), default=None),
        engine_end=max(engine, default=None),
        compiled=compiled,
    )


def split_start(marks: StartMarks, *, started: float, ready: float) -> SplitStart:
    """Split a start at its marks; a part that lacks one of its ends is None.

    A server answers after its engine's last mark, whatever two clocks say: the client's begins
    when it hears that the container runs, on a busy machine half a second late.
    """
    if marks.engine_end is not None:
        ready = max(ready, marks.engine_end)
    importing = _between(started, marks.weights_begin)
    weights = _between(marks.weights_begin, marks.weights_end)
    compiling = _between(marks.weights_end, marks.engine_end)
    serving = _between(marks.engine_end, ready)
    known = sum(part for part in (importing, weights, compiling, serving) if part is not None)
    return SplitStart(
        importing=importing,
        weights=weights,
        compiling=compiling,
        ready=serving,
        untold=max(0.0, ready - started - known),
    )


def _between(begin: float | None, end: float | None) -> float | None:
    """Return the seconds between two marks; None where one is missing or they are swapped."""
    if begin is None or end is None or end < begin:
        return None
    return end - begin


def _lines(log: str) -> Iterator[tuple[float, str]]:
    for line in log[:MOST_BYTES].splitlines():
        stamp, _, text = line[:LONGEST_LINE].partition(" ")
        at = parse_time(stamp)
        if at is not None:
            yield at, text


def _seconds(found: re.Match[str]) -> float | None:
    text = found.groupdict().get("seconds")
    try:
        return float(text) if text else None
    except ValueError:
        return None


@cache
def _patterns() -> tuple[_Pattern, ...]:
    rows: Iterable[dict[str, str]] = read_shipped(DATA)["line"]
    return tuple(
        _Pattern(mark=_mark(row["mark"]), found=re.compile(row["pattern"])) for row in rows
    )


def _mark(name: str) -> Mark:
    if name == "weights_begin":
        return "weights_begin"
    return "weights_end" if name == "weights_end" else "engine_end"
