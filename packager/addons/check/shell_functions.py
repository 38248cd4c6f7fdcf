"""Functions of a shell that hand their words on, with the words of each of their calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from packager.addons.check.text_places import Locate
from packager.addons.check.values import Word
from packager.core.positions import Place

FUNCTION = re.compile(  # one with `"$@"`; the `}` of `${NAME}` does not end it
    r"^[ \t]*(?:function[ \t]+)?([A-Za-z_][\w-]*)[ \t]*\(\)\s*\{"
    r"((?:(?!(?<=[\s;])\}).)*?\$[@*].*?)(?<=[\s;])\}",
    re.ASCII | re.DOTALL | re.MULTILINE,
)
MOST_CALLS = 16  # of one function


class Called(Protocol):
    """A command that may call a function."""

    words: list[Word]


def calls_of(
    text: str, commands: Sequence[Called], locate: Locate
) -> Iterator[tuple[str, Locate, list[Word]]]:
    """Yield a function's text, the places in it and a call's words, for each call that has any."""
    for function in FUNCTION.finditer(text):
        called = [
            one.words[1:] for one in commands if one.words and one.words[0].text == function[1]
        ]
        for words in filter(None, called[:MOST_CALLS]):
            yield function[2], _within(function, locate), words


def _within(function: re.Match[str], locate: Locate) -> Locate:
    begun = function.start(2)
    row = function.string.count("\n", 0, begun)
    column = begun - (function.string.rfind("\n", 0, begun) + 1)

    def within(line: int, character: int) -> Place:
        return locate(row + line, character + (0 if line else column))

    return within
