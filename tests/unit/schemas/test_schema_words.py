"""What counts as a change of a schema, and how it is told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, create_model

from tests.support.cases import read_tables
from tests.support.frozen_schemas import (
    changes_of,
    filled,
    inlined,
    schema_of_database,
    without_words,
)


class Inner(BaseModel):
    title: str


class Outer(BaseModel):
    kind: Literal["a"]
    inner: tuple[Inner, ...]
    seconds: float | None = None


def schema(model: type[BaseModel]) -> dict[str, Any]:
    return dict(without_words(model.model_json_schema()))


def outer(**fields: Any) -> dict[str, Any]:
    given = {"kind": (Literal["a"], ...), "inner": (tuple[Inner, ...], ...)}
    given["seconds"] = (float | None, None)
    return schema(create_model("Other", **{**given, **fields}))


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        pytest.param({"more": (str, "")}, "field 'more' is new", id="added"),
        pytest.param(
            {"seconds": (float | None, ...)}, "field 'seconds' is required now", id="required"
        ),
        pytest.param({"kind": (Literal["b"], ...)}, "kind: const was 'a', is 'b'", id="literal"),
        pytest.param(
            {"inner": (tuple[create_model("Inner", title=(int, ...)), ...], ...)},
            "inner[].title: type was 'string', is 'integer'",
            id="type",
        ),
        pytest.param(
            {"seconds": (float | None, 1.0)}, "seconds: default was None, is 1.0", id="default"
        ),
    ],
)
def test_what_a_reader_takes_is_told_field_by_field(fields: dict[str, Any], change: str) -> None:
    assert change in changes_of(schema(Outer), outer(**fields))


def test_a_field_that_is_gone_is_a_change() -> None:
    assert "field 'more' is gone" in changes_of(outer(more=(str, "")), schema(Outer))


def test_a_filled_document_has_every_field() -> None:
    assert filled(inlined(schema(Outer))) == read_tables(__file__)["filled"]


def test_a_column_is_told_by_its_table(tmp_path: Path) -> None:
    schemas = []
    for name, more in (("a", ""), ("b", ", host TEXT DEFAULT ('x,y')")):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute(f"CREATE TABLE jobs (id INTEGER, -- of the job\n name TEXT{more})")
        schemas.append(schema_of_database(tmp_path / name))

    assert changes_of(*schemas) == ["""jobs: "host TEXT DEFAULT ('x,y')" is new"""]
