"""Tables of inputs and expected results that lie beside the tests as TOML.

`corpus/target.toml` beside `test_target.py` has arrays of tables; each row has an `id` that says
why it is there.  Values are written out there, never made by what is tested.

A field `data:bytes` is text with one character for each byte, `words:tuple` is an array, and
`text=id` is the row's id, under the name that the test has for it.  What is too long to be written
out is a table: `{ start = "a", text = "b", times = 1000, end = "c" }`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest


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
