"""Widths of text in the cells of a terminal: letters of East Asian scripts take two."""

from __future__ import annotations

from unicodedata import category, east_asian_width


def cell_width(text: str) -> int:
    """Count the cells that a line of text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def fitted(text: str, width: int, ellipsis: str = "…") -> str:
    """Return the text, cut to `width` cells where it is longer."""
    if cell_width(text) <= width:
        return text
    left, kept = width - cell_width(ellipsis), []
    for letter in text:
        left -= _width(letter)
        if left < 0:
            break
        kept.append(letter)
    return ("".join(kept).rstrip() + ellipsis) if width >= cell_width(ellipsis) else ""


def padded(text: str, width: int) -> str:
    """Return the text with spaces behind it, `width` cells at least."""
    return text + " " * (width - cell_width(text))


def right_padded(text: str, width: int) -> str:
    """Return the text with spaces before it, `width` cells at least."""
    return " " * (width - cell_width(text)) + text


def _width(letter: str) -> int:
    if letter.isascii():
        return 1
    if category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(letter) in "WF" else 1
