"""Where in a file the parts of a text stand, from its lines and columns."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

from packager.addons.check.values import Word
from packager.core.positions import Place, Span

Locate = Callable[[int, int], Place]  # of a line and a column, from 0, of the text


def at(file: str, line: int = 1, column: int = 1, further: int | None = None) -> Locate:
    """Return the places of a text that begins at a column; further lines begin at `further`."""
    first_of_next = column if further is None else further

    def locate(row: int, character: int) -> Place:
        return Place(file, line + row, (first_of_next if row else column) + character)

    return locate


def inside(word: Word) -> Locate:
    """Return the places of a word's text: all at the word where its parts are not the file's."""
    if not word.spans:
        return lambda _row, _character: word.place
    rows = [0, *(match.end() for match in re.finditer("\n", word.text))]
    begins = [span.index for span in word.spans]

    def locate(row: int, character: int) -> Place:
        index = rows[min(row, len(rows) - 1)] + character
        span = word.spans[max(bisect_right(begins, index) - 1, 0)]
        place = span.place
        return Place(place.file, place.line, place.column + max(index - span.index, 0))

    return locate


class Parts:
    """The text of a word as it grows, and where in the file its parts stand."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.places: list[Span] = []
        self.length, self.known = 0, True
        self.is_moved = False  # contains a variable's value, which is elsewhere

    def add(self, text: str, place: Place, *, is_known: bool = True) -> None:
        last = self.places[-1] if self.places else None
        if last is None or (place.line, place.column) != (
            last.place.line,
            last.place.column + self.length - last.index,
        ):
            self.places.append(Span(self.length, place))
        self.texts.append(text)
        self.length += len(text)
        self.known = self.known and is_known

    def text(self) -> str:
        return "".join(self.texts)

    def spans(self) -> tuple[Span, ...]:
        return () if self.is_moved else tuple(self.places)
