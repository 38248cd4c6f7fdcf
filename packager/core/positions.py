"""Positions in files: lines and columns count from 1, columns in characters."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file."""

    file: str
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Span:
    """Position of a part of a word's text: from an index of the text up to the next span."""

    index: int
    place: Place


def spans_of(text: str, place: Place) -> tuple[Span, ...]:
    """Return the places of a text whose lines all begin at one column of the file."""
    rows = [0, *(match.end() for match in re.finditer("\n", text))]
    return tuple(
        Span(index, Place(place.file, place.line + row, place.column))
        for row, index in enumerate(rows)
    )
