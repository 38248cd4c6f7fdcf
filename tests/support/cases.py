"""Cases as data: `corpus/NAME.toml` beside `test_NAME.py` holds the rows that its tests run over.

    @cases("sizes", unit="B")
    def test_a_size_is_read(text: str, unit: str, expected: int) -> None:

A table is an array of rows, or has rows by their ids:

    [[sizes]]                     [sizes]
    id = "with a unit"            "with a unit" = {text = "4 GiB", expected = 4294967296}
    why = "people write it so"
    text = "4 GiB"
    expected = 4294967296

`id` names the case; without one, the row's first value does.  `why` is for readers.  The other
fields are the test's arguments; one that a row lacks has the default, or is None.  A value takes
the type that the test declares, strictly: an array becomes a tuple, a set or a list, a table may be
a dataclass, and text becomes bytes, one for each character.  What is too long to be written out is
`{parts = [["[", 5000], ["]", 5000]]}`: texts, each with how often it stands there.
A test that has an argument `case` gets the whole row.

`cases = cases_of(__file__, "kinds")` is of `corpus/kinds.toml`, which several tests of a room may
share; `read_tables` reads a file as it stands.
"""

from __future__ import annotations

import functools
import inspect
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args, get_type_hints

import pytest
from pydantic import ConfigDict, TypeAdapter

from packager.core.image import Computed

FOR_READERS = ("id", "why")
Case: TypeAlias = dict[str, Any]
Test = TypeVar("Test", bound=Callable[..., None])


def cases(table: str, **how: Any) -> Callable[[Test], Test]:
    """Return a decorator that runs a test once for each row of a table of the test's own file."""

    def parametrize(test: Test) -> Test:
        return _own(inspect.unwrap(test).__globals__["__file__"])(table, **how)(test)

    return parametrize


def cases_of(module: str, name: str = "") -> Callable[..., Callable[[Test], Test]]:
    """Return a decorator that runs a test once for each row of a table.

    `module` is the `__file__` of the test, `name` that of another file of the same room.
    `only=` takes the rows of which it holds.
    """
    tables = read_tables(module, name)

    def cases(
        table: str, *, only: Callable[[Case], bool] = bool, **defaults: Any
    ) -> Callable[[Test], Test]:
        rows = [row for row in _rows_of(tables[table]) if only(row)]
        fields = dict.fromkeys(field for row in (*rows, defaults) for field in row)
        ids = [str(row["id"] if "id" in row else next(iter(row.values()))) for row in rows]
        assert len(set(ids)) == len(ids), f"an id stands twice in {table} of {module}"

        def parametrize(test: Test) -> Test:
            types = get_type_hints(test)
            names = [name for name in fields if name in types or name not in FOR_READERS]
            if "case" in types:
                names = ["case"]

            def values(row: Case) -> list[Any]:
                whole = defaults | row
                given = {"case": whole} if "case" in types else dict.fromkeys(names) | whole
                return [as_type(given[name], types.get(name, Any)) for name in names]

            params = [pytest.param(*values(row), id=id) for row, id in zip(rows, ids, strict=True)]
            decorated: Test = pytest.mark.parametrize(names, params)(test)
            return decorated

        return parametrize

    return cases


_own = functools.cache(cases_of)


def read_tables(module: str, name: str = "") -> dict[str, Any]:
    """Read every table of a test's file, or of another one of its room."""
    return tomllib.loads(file_of(module, name).read_text(encoding="utf-8"))


# A blob may have parts that are computed; no case states one, and there is no schema of functions.
Computed.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)  # type: ignore[attr-defined]


def file_of(module: str, name: str = "") -> Path:
    """Return the file of a test's tables: `corpus/thing.toml` beside `test_thing.py`."""
    path = Path(module)
    return path.parent / "corpus" / f"{name or path.stem.removeprefix('test_')}.toml"


def as_type(value: Any, wanted: Any) -> Any:
    """Convert what TOML has to a type, as JSON would be; nothing else is converted."""
    if isinstance(value, dict) and value.keys() == {"parts"}:
        value = _joined(value["parts"])
    if isinstance(value, str) and bytes in (wanted, *get_args(wanted)):
        return value.encode("latin-1")
    return TypeAdapter(wanted).validate_json(json.dumps(value), strict=True)


def content_of(row: Mapping[str, Any]) -> bytes:
    """Return a content that is stated as text, in hexadecimal, or as parts that are repeated."""
    if "hex" in row:
        return bytes.fromhex(row["hex"])
    return (_joined(row["parts"]) if "parts" in row else str(row["text"])).encode()


def shows(found: Any, expected: Any) -> bool:
    """Whether a value has what is expected of it: every field, every item, equal values."""
    if isinstance(expected, dict):
        return all(name in found and shows(found[name], one) for name, one in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(shows, found, expected))
    return bool(found == expected)


def fields_of(value: object, paths: Iterable[str]) -> dict[str, Any]:
    """Read fields of a value by their dotted paths, as a table would spell them."""
    return {path: _spelled(attrgetter(path)(value)) for path in paths}


def _joined(parts: Iterable[tuple[str, int]]) -> str:
    return "".join(text * times for text, times in parts)


def _spelled(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _rows_of(table: Any) -> list[Case]:
    return table if isinstance(table, list) else [{"id": id, **row} for id, row in table.items()]
