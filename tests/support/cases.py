"""Cases as data: `corpus/NAME.toml` beside `test_NAME.py` holds the rows that its tests run over.

A table is an array of rows.  Each has an `id` that reads as a case, and may have a `why`; its other
fields are what the test takes: as its arguments with `each`, where an array becomes a tuple and a
field that a row lacks None, or the row as it stands, as `case`, with `rows`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeAlias

import pytest

FOR_READERS = ("id", "why")
Case: TypeAlias = dict[str, Any]


class Corpus:
    """The cases of one test file: `CASES = Corpus(__file__)`."""

    def __init__(self, test_file: str) -> None:
        test = Path(test_file)
        self.path = test.parent / "corpus" / f"{test.stem.removeprefix('test_')}.toml"
        self._tables: dict[str, Any] = tomllib.loads(self.path.read_text("utf-8"))

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


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
