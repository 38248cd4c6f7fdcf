"""Cases of parametrised tests as data: the tables of `corpus/NAME.toml` beside `test_NAME.py`.

A row has a value for each argument of the test that is no fixture, and an `id`; without one its
first value names it.  Values take the types that the test declares for
its arguments, strictly: an array becomes a tuple, a set or a list, a table may be a dataclass.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import pytest
from pydantic import TypeAdapter

Test = TypeVar("Test", bound=Callable[..., None])


def read_tables(module: str, name: str = "") -> dict[str, Any]:
    """Read every table of the file that belongs to a test's module, given its `__file__`.

    `name` is that of another file of the same room.
    """
    path = Path(module)
    name = name or path.stem.removeprefix("test_")
    return tomllib.loads((path.parent / "corpus" / f"{name}.toml").read_text(encoding="utf-8"))


def as_type(value: Any, wanted: Any) -> Any:
    """Convert what TOML has to a type, as JSON would be; nothing else is converted."""
    return TypeAdapter(wanted).validate_json(json.dumps(value), strict=True)


def fields_of(value: object, paths: Iterable[str]) -> dict[str, Any]:
    """Read fields of a value by their dotted paths, as a table would spell them."""
    return {path: _spelled(attrgetter(path)(value)) for path in paths}


def _spelled(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def cases_of(module: str, name: str = "") -> Callable[..., Callable[[Test], Test]]:
    """Return a decorator that runs a test once for each row of a table.

    `@cases("table", left_out="")` gives rows without `left_out` an empty one, and `only=` takes
    the rows of which it holds.
    """
    tables = read_tables(module, name)

    def cases(
        table: str, *, only: Callable[[dict[str, Any]], bool] = bool, **defaults: Any
    ) -> Callable[[Test], Test]:
        rows = [row for row in tables[table] if only(row)]
        names = {name: None for row in rows for name in row if name != "id"}

        def parametrize(test: Test) -> Test:
            types = get_type_hints(test)

            def values(row: dict[str, Any]) -> list[Any]:
                whole = defaults | row
                return [as_type(whole[name], types[name]) for name in names]

            params = [pytest.param(*values(row), id=str(_id_of(row))) for row in rows]
            decorated: Test = pytest.mark.parametrize(list(names), params)(test)
            return decorated

        return parametrize

    return cases


def _id_of(row: dict[str, Any]) -> object:
    return row["id"] if "id" in row else next(iter(row.values()))
