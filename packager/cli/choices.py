"""Choices among the names of a plug-in table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click


class NameChoice(click.Choice[str]):
    """A choice among names that are listed when an option is parsed or its help is shown.

    Those of installed packages take a search, which no other command pays for.
    """

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names
        super().__init__(())

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the names."""
        return tuple(self._names())

    @choices.setter
    def choices(self, value: Sequence[str]) -> None:
        """Ignore what click's own constructor sets."""
