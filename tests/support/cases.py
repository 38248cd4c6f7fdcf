"""Cases as data: `corpus/NAME.toml` beside `test_NAME.py` holds the rows that its tests run over.

A table is an array of rows.  Each has an `id` that reads as a case, and may have a `why`; its other
fields are what the test takes: as its arguments with `each`, where an array becomes a tuple and a
field that a row lacks None, or the row as it stands, as `case`, with `rows`.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

FOR_READERS = ("id", "why")
Case: TypeAlias = dict[str, Any]


class Corpus:
    """The cases of one test file: `CASES = Corpus(__file__)`."""

    def __init__(self, test_file: str) -> None:
        self.path = corpus_of(test_file)
        self._tables = _read(test_file)

    def __getitem__(self, name: str) -> Any:
        """Return a table, or another value of the file, as it stands there."""
        return self._tables[name]

    def each(self, table: str) -> pytest.MarkDecorator:
        """Run a test once for each row of a table, with the row's fields as its arguments."""
        rows = self[table]
        names = list(dict.fromkeys(name for row in rows for name in row if name not in FOR_READERS))
        values = [tuple(_frozen(row.get(name)) for name in names) for row in rows]
        return pytest.mark.parametrize(names, values, ids=self._ids(table))

    def rows(self, table: str) -> pytest.MarkDecorator:
        """Run a test once for each row of a table, with the row as its argument `case`."""
        return pytest.mark.parametrize("case", self[table], ids=self._ids(table))

    def _ids(self, table: str) -> list[str]:
        ids = [row["id"] for row in self[table]]
        assert len(set(ids)) == len(ids), f"an id stands twice in {table} of {self.path}"
        return ids


def cases(test: str, table: str) -> tuple[list[str], list[Any]]:
    """Read a table for `@pytest.mark.parametrize(*cases(__file__, "table"))`.

    A row has an `id`, and may say `why`.  Its other fields are the test's arguments; those that
    only other rows have are None.
    """
    rows: list[dict[str, Any]] = _read(test)[table]
    fields = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in fields if name not in FOR_READERS]
    return names, [pytest.param(*map(row.get, names), id=row["id"]) for row in rows]


def document(test: str, table: str) -> Any:
    """Read one table, or one value, as it is written."""
    return _read(test)[table]


def shows(found: Any, expected: Any) -> bool:
    """Whether a value has what is expected of it: every field, every item, equal values."""
    if isinstance(expected, dict):
        return all(name in found and shows(found[name], one) for name, one in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(shows, found, expected))
    return bool(found == expected)


def content_of(row: Mapping[str, Any]) -> bytes:
    """Return a content that is stated as text, in hexadecimal, or as parts that are repeated."""
    if "hex" in row:
        return bytes.fromhex(row["hex"])
    parts = row.get("parts", [(row.get("text"), 1)])
    return "".join(text * times for text, times in parts).encode()


def corpus_of(test: str) -> Path:
    """Return the file of a test's cases: `corpus/thing.toml` beside `test_thing.py`."""
    path = Path(test)
    return path.parent / "corpus" / f"{path.stem.removeprefix('test_')}.toml"


@functools.cache
def _read(test: str) -> dict[str, Any]:
    return tomllib.loads(corpus_of(test).read_text("utf-8"))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
