"""Explanation of a cache miss: the nearest entries and the fields in which they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from artifact_cache.entry import Entry
from artifact_cache.negative import Failure


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two documents differ. Absent values are None."""

    pointer: str  # RFC 6901, `/target/arch`
    wanted: Any
    found: Any


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entry that is there instead."""

    entry: Entry
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Result of a look-up with the nearest entries, newest first among equals."""

    key: str
    hit: bool
    nearest: tuple[Neighbour, ...]
    fault: str = ""  # why what lies at the address itself cannot be used
    failure: Failure | None = None  # the last build of these very inputs that failed


def find_nearest(
    wanted: Mapping[str, Any], entries: Iterable[Entry], limit: int
) -> tuple[Neighbour, ...]:
    """Return entries ranked by the number of fields that differ, without the exact match."""
    neighbours = [
        Neighbour(entry, found)
        for entry in entries
        if (found := tuple(differences(wanted, entry.keydoc)))
    ]
    neighbours.sort(key=lambda one: (len(one.differences), -one.entry.built_at, one.entry.key))
    return tuple(neighbours[:limit])


def differences(wanted: object, found: object, pointer: str = "") -> Iterator[Difference]:
    """Yield every leaf that differs, in the order of the fields' names.

    Lists are compared as a whole: an element that moved is not a list of changes.
    """
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name in sorted({*wanted, *found}):
            yield from differences(
                wanted.get(name), found.get(name), f"{pointer}/{_escaped(str(name))}"
            )
    elif _comparable(wanted) != _comparable(found):
        yield Difference(pointer, wanted, found)


def _comparable(value: object) -> object:
    """Return a comparable form that keeps True and 1 apart, and lists and tuples together."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_comparable(inner) for inner in value]
    return type(value), value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
