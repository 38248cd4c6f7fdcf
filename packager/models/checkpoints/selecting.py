"""Modules that the entries of `--quantize-ignore` select, as compressed-tensors selects them.

An entry is the whole name of a module, or `re:PATTERN`, which `re.match` tries at its beginning.
Patterns come from requests and names from headers, both untrusted: slow patterns are refused before
matching.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

MOST_ENTRIES, LONGEST = 1024, 512
MARK = "re:"
# Classes that compressed-tensors finds in every matrix: such an entry selects all of them.
CLASSES = frozenset({"Linear", "Module"})

MOST_STEPS = 2_000_000_000  # of matching every entry with every name, at 7 ns
MOST_CHOICES = 4096

PIECE = re.compile(
    r"(?P<open>\((?:\?(?:[:=!>]|<[=!]|[a-zA-Z-]+[:<]?)?)?)|(?P<close>\))|(?P<or>\|)|(?P<many>(?:[*+]|\{\d*,\})[?+]?)|(?P<some>\?[?+]?)"
    r"|(?P<counted>\{(?P<least>\d*),?(?P<most>\d*)\}[?+]?)"
    r"|(?P<other>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)",
    re.ASCII | re.DOTALL,
)
# References to what a group matched, comments, and flags that change how patterns are written.
REFUSED = re.compile(r"\\[1-9]|\(\?P=|\(\?\(|\(\?#|\(\?[a-zA-Z-]*x", re.ASCII)
ANY_DIGIT = re.compile(r"\[0-9\]|\\d", re.ASCII)
DIGITS = re.compile(r"\d", re.ASCII)
TAIL = re.compile(r"(?:\.\*)+\$?\Z")


class BadEntry(ValueError):
    """An entry is no pattern, or could take too long; the text says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, compiled."""

    text: str
    pattern: re.Pattern[str] | None = None  # None: a name
    repeats: int = 0  # parts of the pattern that may be of any length
    choices: int = 1  # ways through the others, multiplied

    @property
    def tells_digits_apart(self) -> bool:
        """Whether it may hold of one number and not of another that has as many digits."""
        return self.pattern is None or bool(DIGITS.search(ANY_DIGIT.sub("", self.pattern.pattern)))


def compile_entry(text: str) -> Entry:
    """Compile an entry; raise `BadEntry` if it is invalid, or may take long to match."""
    if len(text) > LONGEST:
        raise BadEntry(f"it has {len(text)} characters; at most {LONGEST} are allowed")
    if not text.startswith(MARK):
        return Entry(text)
    spelled = text.removeprefix(MARK)
    try:
        pattern = re.compile(spelled)
    except (re.error, OverflowError, RecursionError) as error:
        at = getattr(error, "pos", None)
        where = f" at character {at + 1} of the pattern" if at is not None else ""
        raise BadEntry(f"{getattr(error, 'msg', error)}{where}") from error
    return Entry(text, pattern, *_count_work(spelled))


def _count_work(spelled: str) -> tuple[int, int]:
    """Count what may be of any length, and the ways through all else that has several.

    Repeats that are inside of others could take exponential time: they are refused.
    """
    if found := REFUSED.search(spelled):
        raise BadEntry(f"'{found[0]}' at character {found.start() + 1} is not supported here")
    repeats, choices = 0, 1
    groups = [_Group()]
    ended = None  # the group that ends just before a piece
    for piece in PIECE.finditer(TAIL.sub("", spelled)):
        counted = int(piece["most"] or piece["least"] or 0) if piece["counted"] else 0
        if piece["open"]:
            groups.append(_Group())
        elif piece["or"]:
            groups[-1].ways += 1
        elif piece["many"] or counted > 1:
            if ended and (ended.repeats or ended.ways > 1):
                kind = "repeats" if ended.repeats else "has choices"
                where = f"at character {piece.start() + 1}"
                raise BadEntry(f"{piece[0]!r} {where} repeats a group that {kind} inside")
            repeats += bool(piece["many"])
            choices *= counted - int(piece["least"] or 0) + 1 if counted else 1
            groups[-1].repeats = True
        elif piece["some"] or counted:
            choices *= 2
            groups[-1].repeats = True
        ended = None
        if piece["close"] and len(groups) > 1:
            ended = groups.pop()
            choices *= ended.ways
            groups[-1].repeats |= ended.repeats or ended.ways > 1
        if choices > MOST_CHOICES:
            raise BadEntry(f"{piece[0]!r} at character {piece.start() + 1} is one choice too many")
    return repeats, choices * groups[0].ways


@dataclasses.dataclass(slots=True)
class _Group:
    """A group of a pattern while it is read."""

    repeats: bool = False
    ways: int = 1


class Selection:
    """Entries over the modules of a checkpoint."""

    def __init__(self, entries: Iterable[str]) -> None:
        self.entries = tuple(compile_entry(text) for text in dict.fromkeys(entries))

    def check_effort(self, modules: Collection[str]) -> None:
        """Raise `BadEntry` where matching every module could take long."""
        steps = 0
        for entry in self.entries:
            names = modules if entry.tells_digits_apart else _alike(modules)
            for length, count in Counter(map(len, names if entry.pattern else ())).items():
                steps += count * entry.choices * math.comb(length + entry.repeats, entry.repeats)
            if steps > MOST_STEPS:
                message = f"to match it with {len(modules)} modules could take long"
                raise BadEntry(f"{entry.text[:80]!r}: {message}")

    def select(self, modules: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the modules that each entry selects, by its text."""
        return {entry.text: frozenset(_matching(entry, modules)) for entry in self.entries}


def _matching(entry: Entry, modules: Collection[str]) -> Iterator[str]:
    if entry.text in CLASSES:
        yield from modules
    elif entry.pattern is None:
        yield from (entry.text,) if entry.text in modules else ()
    elif entry.tells_digits_apart:
        yield from (module for module in modules if entry.pattern.match(module))
    else:  # experts by the thousand differ in their numbers alone
        for first, alike in _alike(modules).items():
            if entry.pattern.match(first):
                yield from alike


def _alike(modules: Collection[str]) -> dict[str, list[str]]:
    """Group modules whose names are equal but for the values of digits."""
    found: dict[str, list[str]] = {}
    for module in modules:
        found.setdefault(DIGITS.sub("0", module), []).append(module)
    return found
