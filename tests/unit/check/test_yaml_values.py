"""Values of YAML documents: what a plain word is, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from packager.check.yaml_values import parse_yaml_table
from packager.core.documents import NotStrict


@pytest.mark.parametrize(
    ("word", "value"),
    [
        pytest.param("64:32", "64:32", id="lengths, not minutes"),
        pytest.param("yes", "yes", id="yes"),
        pytest.param("off", "off", id="off"),
        pytest.param("true", True, id="true"),
        pytest.param("False", False, id="False"),
        pytest.param("tRUE", "tRUE", id="no word of YAML"),
        pytest.param("010", "010", id="leading zero"),
        pytest.param("0x10", "0x10", id="hexadecimal"),
        pytest.param("1_000", "1_000", id="underscore"),
        pytest.param("8", 8, id="whole"),
        pytest.param("-3", -3, id="negative"),
        pytest.param("0.85", 0.85, id="part"),
        pytest.param("1e3", "1e3", id="YAML 1.1 takes no such number"),
        pytest.param("1.5e+3", 1500.0, id="exponent"),
        pytest.param(".nan", ".nan", id="no number"),
        pytest.param('"8"', "8", id="quoted"),
        pytest.param("null", None, id="null"),
        pytest.param("~", None, id="tilde"),
        pytest.param("", None, id="nothing"),
        pytest.param("2026-11-23", "2026-11-23", id="a day"),
        pytest.param("[1, a, true]", [1, "a", True], id="list"),
        pytest.param("{a: {b: 1}}", {"a": {"b": 1}}, id="mapping"),
        pytest.param("!!python/name:os.system x", "x", id="a tag means nothing"),
    ],
)
def test_a_word_is_read_as(word: str, value: Any) -> None:
    found = parse_yaml_table(f"field: {word}\n".encode())["field"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"a: 1\na: 2", "line 2: 'a' is given twice", id="twice"),
        pytest.param(b"- a", "it is not one mapping of names to values", id="a list"),
        pytest.param(b"a: 1\n---\nb: 2", "it is not one mapping", id="two documents"),
        pytest.param(b"", "it is not one mapping", id="empty"),
        pytest.param(b"a: &x {b: 1}\nc: {<<: *x}", "line 2: a key must be a word", id="merge"),
        pytest.param(b"? [a]\n: 1", "line 1: a key must be a word", id="a list as key"),
        pytest.param(b"a: [", "it is not YAML: line 2", id="no YAML"),
        pytest.param(b"a: \xff", "byte 3 is not UTF-8", id="no text"),
        pytest.param(b"a: " + b"[" * 80, "deeper than 64", id="deep"),
    ],
)
def test_what_is_no_table_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(NotStrict, match=reason.replace("[", r"\[")):
        parse_yaml_table(data)
