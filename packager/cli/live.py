"""Lines at the end of a terminal that are redrawn, and lines written above them.

The cursor stays visible, at the beginning of the line below: there is nothing to restore when
the process is killed.  Each drawing is one write.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from packager.core.reports.cells import cell_width

LOCK_S = 2.0  # how long a blocked terminal may hold up who writes above

_SGR = re.compile(r"\x1b\[[0-9;]*m")

Size = tuple[int, int]  # columns and lines


class LiveArea:
    """The lines that are drawn anew. Used by several threads."""

    def __init__(
        self, stream: TextIO, size: Callable[[], Size], *, is_rewrapped: bool = True
    ) -> None:
        self._stream = stream
        self._size = size
        self._is_rewrapped = is_rewrapped
        self._lock = threading.RLock()
        self._lines: tuple[str, ...] = ()
        self._hidden = 0  # how many write above just now
        self._drawn: tuple[str, ...] = ()  # lines on the screen, at `_columns`
        self._columns = 0

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the lines. Each must be shorter than the terminal is wide."""
        with self._held():
            self._lines = tuple(lines)
            if not self._hidden:
                self._draw()

    @property
    def is_drawn(self) -> bool:
        return bool(self._lines)

    @contextmanager
    def above(self) -> Iterator[None]:
        """Write whole lines above; the area is erased meanwhile."""
        with self._held():
            if not self._hidden:
                self._erase()
            self._hidden += 1
            try:
                yield
            finally:
                self._hidden -= 1
                if not self._hidden:
                    self._draw()

    def close(self) -> None:
        """Remove the lines for good."""
        self.draw(())

    def _draw(self) -> None:
        columns, _ = self._size()
        back = self._back(columns)
        if back or self._lines:
            self._put(back + "".join(f"{line}\x1b[K\n" for line in self._lines) + "\x1b[J")
        self._drawn, self._columns = self._lines, columns

    def _erase(self) -> None:
        columns, _ = self._size()
        if back := self._back(columns):
            self._put(f"{back}\x1b[J")
        self._drawn, self._columns = (), columns

    def _back(self, columns: int) -> str:
        """Return what moves the cursor to the first line, where it was drawn and is now."""
        if not self._drawn:
            return ""
        rows = len(self._drawn)
        if self._is_rewrapped and columns < self._columns:
            # Terminals wrap existing lines when they become narrower.
            rows = sum(self._wrapped_rows(line, columns) for line in self._drawn)
        return f"\r\x1b[{rows}A"

    def _put(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    @contextmanager
    def _held(self) -> Iterator[None]:
        held = self._lock.acquire(timeout=LOCK_S)
        try:
            yield
        finally:
            if held:
                self._lock.release()

    @staticmethod
    def _wrapped_rows(line: str, columns: int) -> int:
        return max(1, -(-cell_width(_SGR.sub("", line)) // max(1, columns)))


class AboveArea:
    """A replacement of stderr that writes whole lines above an area."""

    def __init__(self, stream: TextIO, area: LiveArea) -> None:
        self._stream = stream
        self._area = area
        self._rest = ""

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the lines that are whole; keep the rest until its end comes."""
        whole, end, rest = (self._rest + text).rpartition("\n")
        self._rest = rest
        if end:
            with self._area.above():
                self._stream.write(whole + end)
                self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Write an unfinished line once the area is erased; keep it until then."""
        if self._rest and not self._area.is_drawn:
            self._stream.write(self._rest)
            self._stream.flush()
            self._rest = ""


def size_of(stream: TextIO, environment: Mapping[str, str]) -> Size:
    """Return columns and lines of the stream's terminal as they are now."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):
        columns, lines = 0, 0
    return (
        columns or _number(environment.get("COLUMNS")) or 80,
        lines or _number(environment.get("LINES")) or 24,
    )


def does_rewrap(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal wraps old lines anew when it becomes narrower, as most do."""
    term = environment.get("TERM", "")
    return not (
        "XTERM_VERSION" in environment
        or term.startswith("linux")
        or (term.startswith("screen") and "TMUX" not in environment)
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0
