"""Lists that are turned by the number of their page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from aiohttp import web

_One = TypeVar("_One")
_MOST_DIGITS = 6


def page_number(request: web.Request) -> int:
    """Return the number of the requested page, from 1."""
    text = request.query.get("page", "1")
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return max(1, int(text)) if is_number else 1


def links_of(path: str, number: int, *, has_more: bool) -> dict[str, str]:
    """Return the addresses of the first and the next page; "" where there is no such link."""
    return {
        "first": path if number > 1 else "",
        "more": f"{path}?page={number + 1}" if has_more else "",
    }


def turn(
    request: web.Request, everything: Sequence[_One], rows: int, path: str
) -> tuple[Sequence[_One], dict[str, str]]:
    """Return the requested page of a list, and its links."""
    number = page_number(request)
    start = (number - 1) * rows
    links = links_of(path, number, has_more=start + rows < len(everything))
    return everything[start : start + rows], links
