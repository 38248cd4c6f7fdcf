"""The completion protocols of bash, zsh and fish.

The scripts in templates/completion run the program again with `_PACKAGER_COMPLETE` set to the
name of the shell:

    bash    PROGRAM LINE WORD       the line up to the cursor, and what bash takes for the word
    zsh     PROGRAM WORD...         the words up to the cursor, the last one unfinished, as typed
    fish    PROGRAM WORD...         the same, without quotes

bash splits words at `:` and `=` too and replaces only what follows them; its answer lacks what
stands before.  bash and zsh insert an answer as it is, so it is quoted for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")
PART = "part"  # type of a candidate that more of the word follows, such as a path below it

_SEPARATORS = ";|&()"  # words of another command follow
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_PLAIN = re.compile(r"[\w@%+=:,./~-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Line:
    """A command line up to the cursor."""

    words: tuple[str, ...]  # finished ones, without quotes; the program's name is the first
    text: str  # the typed beginning of the last word, without quotes
    typed: str  # the same as typed
    quote: str = ""  # the quote that is still open


def split_line(line: str) -> Line:
    """Split a line as a shell does, where its last word may be unfinished."""
    words: list[str] = []
    text, typed, quote, is_word = "", "", "", False
    characters = iter(line)
    for one in characters:
        if quote:
            typed += one
            if one == quote:
                quote = ""
            elif one == "\\" and quote == '"':
                following = next(characters, "")
                typed += following
                text += following if following in '"\\$`' else one + following
            else:
                text += one
        elif one in "'\"":
            quote, is_word, typed = one, True, typed + one
        elif one == "\\":
            following = next(characters, "")
            text, typed, is_word = text + following, typed + one + following, True
        elif one.isspace() or one in _SEPARATORS:
            if is_word:
                words.append(text)
            if one in _SEPARATORS:
                words.clear()
            text, typed, is_word = "", "", False
        else:
            text, typed, is_word = text + one, typed + one, True
    while words and _ASSIGNMENT.match(words[0]):
        del words[0]
    return Line(tuple(words), text, typed, quote)


def quoted(text: str) -> str:
    """Quote for bash and zsh with backslashes, so that what is typed stays its beginning."""
    return "".join(one if _PLAIN.match(one) or ord(one) > 127 else f"\\{one}" for one in text)


def line_of(shell: str, arguments: Sequence[str]) -> Line:
    """Return the line that a shell wants completed."""
    if shell == "bash":
        return split_line(arguments[0])
    *before, last = arguments or ("",)
    if shell == "zsh":
        end = split_line(last)
        words = [split_line(word).text for word in before]
        return Line(("packager", *words), end.text, end.typed, end.quote)
    return Line(("packager", *before), last, last)


def answer_text(
    shell: str, arguments: Sequence[str], line: Line, found: Iterable[CompletionItem[Any]]
) -> str:
    """Return the candidates as the shell's script reads them, one a line."""
    if shell == "bash":
        dropped = _dropped_by_bash(line, arguments[1] if len(arguments) > 1 else line.typed)
        return "".join(f"{_for_bash(one, line)[dropped:]}\n" for one in found)
    if shell == "zsh":
        return "".join(
            f"{'+' if one.type != PART else '-'}\t{_inserted(one, line)}\t{one.help}\n"
            for one in found
        )
    return "".join(f"{one.value}\t{one.help}\n" for one in found)


def _for_bash(one: CompletionItem[Any], line: Line) -> str:
    text = _inserted(one, line)
    return f"{text} " if one.type != PART and not line.quote else text


def _inserted(one: CompletionItem[Any], line: Line) -> str:
    return one.value if line.quote else quoted(one.value)


def _dropped_by_bash(line: Line, word: str) -> int:
    """Return how many leading characters of the word bash does not replace."""
    if line.quote or not line.typed.endswith(word):
        return 0
    return len(line.typed) - len(word)
