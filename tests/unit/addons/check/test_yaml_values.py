"""Values of YAML documents: what a plain word is, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from packager.core.documents import NotStrict
from packager.core.yaml_values import parse_yaml_table
from tests.support.cases import cases_of

cases = cases_of(__file__, "yaml")


@cases("words")
def test_a_word_is_read_as(word: str, value: Any) -> None:
    found = parse_yaml_table(f"field: {word}\n".encode())["field"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("word", ["null", "~", ""])
def test_a_word_of_nothing_is_null(word: str) -> None:
    assert parse_yaml_table(f"field: {word}\n".encode()) == {"field": None}


@cases("refused")
def test_what_is_no_table_is_refused(text: str, reason: str) -> None:
    with pytest.raises(NotStrict, match=reason.replace("[", r"\[")):
        parse_yaml_table(text.encode())


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(NotStrict, match="byte 3 is not UTF-8"):
        parse_yaml_table(b"a: \xff")
