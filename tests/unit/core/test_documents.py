"""Documents of strangers: one meaning, within limits of size, depth, numbers and time."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import BaseModel

from packager.core.documents import MAX_DEPTH, NotStrict, parse_json, parse_model, parse_toml
from packager.share import share_dir
from tests.support.places import ROOT

PACKAGE = ROOT / "packager"


class Point(BaseModel):
    """A document with a number and texts."""

    at: float
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"a = inf", "the number 'inf' is out of range", id="infinite"),
        pytest.param(b"a = [nan]", "the number 'nan' is out of range", id="not a number"),
        pytest.param(b"a = 1e999", "the number '1e999' is out of range", id="too large a float"),
        pytest.param(b"a = 1" + b"0" * 40, "over 40 digits", id="41 digits"),
        pytest.param(b"a = -1" + b"0" * 40, "over 40 digits", id="41 digits below 0"),
        pytest.param(b"a = 0x" + b"f" * 5000, "over 40 digits", id="long hexadecimal"),
        pytest.param(b"a = [{b = [1" + b"0" * 4000 + b"]}]", "over 40 digits", id="nested number"),
        pytest.param(b"a = 1" + b"0" * 5000, "it is not TOML", id="5001 digits"),
        pytest.param(b"a = 1\na = 2", "it is not TOML", id="key twice"),
        pytest.param(b"a = \xff", "byte 4 is not UTF-8", id="not UTF-8"),
        pytest.param(b"a = " + b"[" * 65 + b"]" * 65, "too deeply", id="65 lists"),
        pytest.param(b"a = " + b"[" * 50_000, "too deeply", id="lists without an end"),
        pytest.param(b".".join([b"a"] * 70) + b" = 1", "too deeply", id="70 parts"),
        pytest.param(b".".join([b"a"] * 20_000) + b" = 1", "keys are too long", id="20,000 parts"),
        pytest.param(b"#" * (1024 * 1024 + 1), "more than 1048576", id="too large"),
        pytest.param(b'"x\nerror: y" = 1', "it is not TOML", id="line feed in a key"),
    ],
)
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


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b'{"at": 1, "at": 2}', "the key 'at' stands twice", id="key twice"),
        pytest.param(b'{"at": "x"}', "at: input should be a valid number", id="wrong type"),
        pytest.param(b"{}", "at: field required", id="nothing"),
        pytest.param(b"[]", "it is not a JSON object", id="list"),
        pytest.param(b'{"at": NaN}', "NaN is not a JSON number", id="not a number"),
        pytest.param(b'{"at": 1' + b"0" * 400 + b"}", "over 40 digits", id="long number"),
        pytest.param(b'{"at": 1, "names": ["\\ud800"]}', "surrogate pair", id="half a pair"),
        pytest.param(
            b'{"at": 1, "names": ' + b"[" * 3000 + b"]" * 3000 + b"}", "too deeply", id="deep"
        ),
    ],
)
def test_a_document_that_does_not_fit_its_model_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(NotStrict, match=reason):
        parse_model(Point, data)


def test_a_figure_that_is_no_number_is_read_where_the_caller_allows_it() -> None:
    found = parse_model(Point, b'{"at": Infinity}', allow_infinity=True)

    assert found.at == math.inf


def test_a_strangers_name_of_a_field_is_escaped_and_cut() -> None:
    class Table(BaseModel):
        rows: dict[str, int]

    key = "k\\nerror: forged\\u202e" + "k" * 1000

    with pytest.raises(NotStrict) as refused:
        parse_model(Table, f'{{"rows": {{"{key}": "x"}}}}'.encode())

    assert str(refused.value).startswith("rows.k\\nerror: forged\\u202ekkk")
    assert len(str(refused.value)) < 200
