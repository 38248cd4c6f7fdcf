"""Suggestions for misspelt names, and for the words of other tools."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packager.core.share import read_shipped

_WORDS = Path(__file__).parent / "data" / "words.toml"
_LIKE = 0.66  # below it, what `difflib` calls close is another word: `images`, `lineage`: 0.62
_SHORT = 2  # letters of a word that is like too many others: `rm` and `warm`


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWord:
    """What is said here for a word of another tool."""

    ours: str = ""  # the name here; "": none, `hint` says what to do
    hint: str = ""
    command: str = "build"  # that has `ours`, where it is an option


def other_word(kind: str, word: str) -> OtherWord | None:
    """Return what a word of another tool is here; None for one that is not in the table.

    `kind` is a section of `data/words.toml`: `option`, `command`, or the name of an option whose
    values it lists.
    """
    return _table().get(kind, {}).get(_folded(word))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to `name`, or "" where none is similar enough."""
    folded = {one.casefold(): one for one in reversed(tuple(known))}
    word = name.casefold()
    if word in folded:
        return folded[word]
    found = difflib.get_close_matches(word, folded, n=1)
    if not found or not (_is_like(word, found[0]) or sorted(word) == sorted(found[0])):
        return ""
    return folded[found[0]]


def guessed(name: str, known: Iterable[str], hint: str, *, kind: str = "") -> str:
    """Return the hint, behind the known name nearest to `name` where one is near.

    With `kind`, words of other tools are looked up first, as in `other_word`.
    """
    close = guess(name, known, kind=kind)
    return f"{close} {hint}" if close.endswith("?") else close or hint


def guess(name: str, known: Iterable[str], otherwise: str = "", *, kind: str = "") -> str:
    """Return a hint that names the known name nearest to `name`, else `otherwise`."""
    if kind and (word := other_word(kind, name)) is not None:
        return word.hint or f"did you mean {word.ours!r}?"
    close = nearest(name, known)
    return f"did you mean {close!r}?" if close else otherwise


def _is_like(name: str, known: str) -> bool:
    return len(name) > _SHORT and difflib.SequenceMatcher(None, known, name).ratio() >= _LIKE


def _folded(word: str) -> str:
    return word.casefold().replace("_", "-")


@cache
def _table() -> Mapping[str, Mapping[str, OtherWord]]:
    return {
        kind: {
            _folded(word): OtherWord(
                ours=row.get("ours", ""),
                hint=row.get("hint", ""),
                command=row.get("of", "build"),
            )
            for row in rows
            for word in row["words"]
        }
        for kind, rows in read_shipped(_WORDS).items()
    }
