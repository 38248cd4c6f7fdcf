"""Variables and arrays that a shell's text sets: every value that one of its branches gives them.

The newest value comes first.  What is set unconditionally replaces all values; in a branch, in a
loop or behind `&&` it is added to them.  A value that another one merely goes on from is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from packager.addons.check.values import Setting, Word

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL | re.ASCII)
OPENS = frozenset({"if", "case", "for", "while", "until", "select"})
CLOSES = frozenset({"fi", "esac", "done"})
BEHIND = frozenset({"then", "else", "do"})  # a command may follow on the same line

MOST_EXPORTED = 1000
MOST_VALUES = 8  # of one variable

T = TypeVar("T", bound=str | list[Word] | None)


@dataclass(slots=True)
class ShellVariables:
    """The variables of one text, as far as it was read."""

    values: dict[str, list[str | None]] = field(default_factory=dict)  # None: unknown
    arrays: dict[str, list[list[Word]]] = field(default_factory=dict)
    exported: dict[str, Setting] = field(default_factory=dict)
    chosen: dict[str, int] = field(default_factory=dict)  # which value an expansion takes
    counts: dict[str, int] = field(default_factory=dict)  # values of the expanded ones
    depth: int = 0  # of branches and loops
    is_behind: bool = False  # an operator: `&&`, `||`

    @property
    def is_conditional(self) -> bool:
        """Return whether what is set here may not be set."""
        return self.depth > 0 or self.is_behind

    def value(self, name: str) -> str | None:
        """Return the chosen value of a variable; None if it is unknown."""
        return self._chosen(name, self.values.get(name, [None]))

    def words(self, name: str) -> list[Word] | None:
        """Return the chosen words of an array; None if it is unknown."""
        known = self.arrays.get(name)
        return None if known is None else self._chosen(f"{name}[@]", known)

    def _chosen(self, name: str, values: list[T]) -> T:
        self.counts[name] = len(values)
        return values[min(self.chosen.get(name, 0), len(values) - 1)]

    def enter(self, words: Sequence[Word]) -> None:
        """Follow branches and loops by the first words of a command."""
        for word in words[:2]:
            if word.text not in OPENS | CLOSES | BEHIND:
                return
            self.depth += (word.text in OPENS) - (word.text in CLOSES)
        self.depth = max(0, self.depth)

    def assigned(self, word: Word) -> Setting | None:
        """Return what `NAME=VALUE`, or `NAME+=VALUE`, sets; None for other words."""
        found = ASSIGNMENT.fullmatch(word.text)
        if found is None:
            return None
        value = found[3] if word.known else None
        if value is not None and found[2]:
            before = self.value(found[1])
            value = None if before is None else before + value
        return Setting(found[1], value, word.place)

    def set(self, setting: Setting) -> None:
        """Remember a variable."""
        known = self.values.get(setting.name, [])
        if self.chosen:  # the same assignment, of another value
            self.values[setting.name] = _joined(known, [setting.value])
            return
        self.values[setting.name] = _joined([setting.value], known if self.is_conditional else [])
        if setting.name in self.exported:
            self.exported[setting.name] = setting

    def set_array(self, name: str, words: Sequence[Word], *, grows: bool) -> None:
        """Remember `NAME=(WORD …)`, or `NAME+=(WORD …)`."""
        known = self.arrays.get(name, [])
        new = [[*one, *words] for one in known or [[]]] if grows else [[*words]]
        if self.chosen:
            self.arrays[name] = _joined(known, new)
        else:
            self.arrays[name] = _joined(new, known if self.is_conditional else [])

    def export(self, words: Sequence[Word]) -> None:
        """Remember what `export`, `declare` and their kin set."""
        for word in words[1:]:
            setting = self.assigned(word)
            if setting is not None:
                self.set(setting)
                is_exported = words[0].text == "export" or words[1].text == "-x"
                if is_exported and len(self.exported) < MOST_EXPORTED:
                    self.exported[setting.name] = setting
            elif words[0].text == "export" and self.values.get(word.text, [None])[0] is not None:
                known = self.values[word.text][0]
                self.exported[word.text] = Setting(word.text, known, word.place)


def known_variables(values: Mapping[str, str | None]) -> ShellVariables:
    """Return variables that are set before a text begins."""
    return ShellVariables(values={name: [value] for name, value in values.items()})


def _joined(first: list[T], others: list[T]) -> list[T]:
    """Return all values but those that another goes on from."""
    joined = [*first]
    for one in others:
        if not any(_goes_on(value, one) for value in first):
            joined.append(one)
    return joined[:MOST_VALUES]


def _goes_on(value: T, one: T) -> bool:
    """Report whether a value is the beginning of another."""
    return value == one or (value is not None and one is not None and value[: len(one)] == one)
