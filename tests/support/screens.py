"""A terminal that keeps what it was told: the screen, and what has scrolled off it."""

from __future__ import annotations

import io
from typing import Any, TextIO, cast

import pyte
from pyte import modes


class Screen:
    """A terminal without a shell: lines end as the system's terminals end them."""

    def __init__(self, columns: int, lines: int = 24) -> None:
        self.columns, self.lines = columns, lines
        self._screen = pyte.HistoryScreen(columns, lines, history=10_000, ratio=0.5)
        self._screen.set_mode(modes.LNM)  # a line feed begins a line
        self._stream = pyte.Stream(self._screen)
        self.raw = ""

    @property
    def stream(self) -> TextIO:
        """Return what a program writes to."""
        return cast("TextIO", _Written(self))

    def feed(self, text: str) -> None:
        self.raw += text
        self._stream.feed(text)

    def resize(self, columns: int, lines: int | None = None) -> None:
        """Become wider or narrower; lines that are there are cut and not wrapped."""
        self.columns, self.lines = columns, lines or self.lines
        self._screen.resize(lines=self.lines, columns=columns)

    def size(self) -> tuple[int, int]:
        return self.columns, self.lines

    def shown(self) -> str:
        """Return the lines of the screen, without empty ones at its end."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip("\n") + "\n"

    def everything(self) -> str:
        """Return what has scrolled off, and the screen."""
        gone = [_text(line, self.columns) for line in self._screen.history.top]
        return "".join(f"{line}\n" for line in gone) + self.shown()

    def styles(self, word: str) -> set[str]:
        """Return the colours and weights in which a word is shown."""
        found = set()
        for row, line in enumerate(self._screen.display):
            at = line.find(word)
            if at >= 0:
                letter = self._screen.buffer[row][at]
                found |= {letter.fg, "bold" if letter.bold else ""}
        return found - {"", "default"}

    @property
    def is_cursor_shown(self) -> bool:
        return not self._screen.cursor.hidden

    @property
    def cursor_column(self) -> int:
        return int(self._screen.cursor.x)


class _Written(io.StringIO):
    encoding = "utf-8"

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._to = screen

    def write(self, text: str) -> int:
        self._to.feed(text)
        return len(text)

    def isatty(self) -> bool:
        return True


def _text(line: Any, columns: int) -> str:
    return "".join(line[column].data for column in range(columns)).rstrip()
