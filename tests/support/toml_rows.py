"""Tables of inputs and expected results that lie beside the tests as TOML.

`corpus/target.toml` beside `test_target.py` has arrays of tables; each row has an `id` that says
why it is there.  Values are written out there, never made by what is tested.

A field `data:bytes` is text with one character for each byte, `words:tuple` is an array, and
`text=id` is the row's id, under the name that the test has for it.  What is too long to be written
out is a table: `{ start = "a", text = "b", times = 1000, end = "c" }`.

`each_row` reads a file below tests/ whose tables are groups of cases: a key is the id of one, and
its value an inline table of the test's arguments.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.places import ROOT

TESTS = ROOT / "tests"

Test = TypeVar("Test", bound=Callable[..., None])


def table(test_file: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table as they are."""
    path = Path(test_file)
    corpus = path.parent / "corpus" / f"{path.stem.removeprefix('test_')}.toml"
    found: list[dict[str, Any]] = tomllib.loads(corpus.read_text("utf-8"))[name]
    return found


def rows(test_file: str, name: str, *fields: str) -> pytest.MarkDecorator:
    """Run a test once for each row of a table; a field that a row has not is None."""
    given = [
        pytest.param(*[_value(row, field) for field in fields], id=row["id"])
        for row in table(test_file, name)
    ]
    return pytest.mark.parametrize([re.split("[:=]", field)[0] for field in fields], given)


def _value(row: dict[str, Any], field: str) -> Any:
    name, _, kind = field.partition(":")
    value = _expanded(row.get(name.rpartition("=")[2]))
    if value is None or not kind:
        return value
    return value.encode("latin-1") if kind == "bytes" else tuple(value)


def _expanded(value: Any) -> Any:
    """Write out what is repeated."""
    if isinstance(value, dict) and "times" in value:
        return value.get("start", "") + value["text"] * value["times"] + value.get("end", "")
    return value


@cache
def read_tables(file: str) -> dict[str, Any]:
    """Read a file below tests/, whole."""
    return tomllib.loads((TESTS / file).read_text(encoding="utf-8"))


def each_row(file: str, table: str, **defaults: object) -> Callable[[Test], Test]:
    """Parametrize a test by the rows of a table; what a row leaves out has the default.

    Every key of a row must be an argument of the test: a misspelt expectation would expect nothing.
    """
    rows = read_tables(file)[table]
    names = list(dict.fromkeys((*(name for row in rows.values() for name in row), *defaults)))

    def decorate(test: Test) -> Test:
        unknown = set(names) - set(inspect.signature(test).parameters)
        assert not unknown, f"{file}: {table}: no test of {sorted(unknown)}"
        values = [
            pytest.param(*((defaults | row)[name] for name in names), id=id)
            for id, row in rows.items()
        ]
        decorated: Test = pytest.mark.parametrize(names, values)(test)
        return decorated

    return decorate
