"""Rows of TOML files beside the tests: inputs and expected results, each with an id.

A table of such a file is a group of cases; a key of it is the id of one, and its value an inline
table.  `each_row` runs a test once for each, and hands it the row's keys as arguments.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import pytest

from tests.support.places import ROOT

TESTS = ROOT / "tests"

Test = TypeVar("Test", bound=Callable[..., None])


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
