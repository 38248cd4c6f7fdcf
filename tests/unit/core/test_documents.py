"""Documents of strangers: one meaning, within limits of size, depth, numbers and time."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import BaseModel

from packager.core.documents import MAX_DEPTH, NotStrict, parse_json, parse_model, parse_toml
from packager.core.share import share_dir
from tests.support.cases import cases
from tests.support.places import ROOT

PACKAGE = ROOT / "packager"


class Point(BaseModel):
    """A document with a number and texts."""

    at: float
    names: tuple[str, ...] = ()


@cases("toml_beyond_the_limits_is_refused")
def test_toml_beyond_the_limits_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(NotStrict, match=reason) as refused:
        parse_toml(data)

    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


def test_sane_toml_is_read() -> None:
    text = f"""
a.b."c d".e = {10**39}
when = 2026-01-02
dots = "{"." * 3000}"
deep = {"[" * (MAX_DEPTH - 2)}{"]" * (MAX_DEPTH - 2)}
[table.of.tables]
x = 1.5e300
"""

    found = parse_toml(text.encode())

    assert found["a"]["b"]["c d"]["e"] == 10**39
    assert found["table"]["of"]["tables"] == {"x": 1.5e300}


def test_every_shipped_table_is_within_the_limits() -> None:
    tables = [*PACKAGE.rglob("*.toml"), *share_dir("containers").rglob("*.toml")]

    assert len(tables) > 20
    for table in tables:
        parse_toml(table.read_bytes())


def test_json_of_many_rows_is_read_where_the_caller_allows_it() -> None:
    rows = [[1]] * 520_000
    data = json.dumps(rows).encode()

    with pytest.raises(NotStrict, match="more than 1000000 values"):
        parse_json(data)
    assert parse_json(data, max_values=len(data)) == rows


@cases("a_document_that_does_not_fit_its_model_is_refused")
def test_a_document_that_does_not_fit_its_model_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(NotStrict, match=reason):
        parse_model(Point, data)


def test_a_figure_that_is_no_number_is_read_where_the_caller_allows_it() -> None:
    assert parse_model(Point, b'{"at": Infinity}', allow_infinity=True).at == math.inf


def test_a_strangers_name_of_a_field_is_escaped_and_cut() -> None:
    class Table(BaseModel):
        rows: dict[str, int]

    key = "k\\nerror: forged\\u202e" + "k" * 1000

    with pytest.raises(NotStrict) as refused:
        parse_model(Table, f'{{"rows": {{"{key}": "x"}}}}'.encode())

    assert str(refused.value).startswith("rows.k\\nerror: forged\\u202ekkk")
    assert len(str(refused.value)) < 200
