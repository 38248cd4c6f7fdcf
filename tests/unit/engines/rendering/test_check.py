from __future__ import annotations

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.engines.rendering.check import (
    check_json,
    check_properties,
    read_java_properties,
    read_naive_properties,
)
from packager.engines.rendering.environment import render_template
from tests.support.cases import cases
from tests.support.refusals import raises_code

WORDS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters="\\"))
KEYS = st.from_regex(r"[A-Za-z0-9_.-]+", fullmatch=True)


@given(st.text("ab=: \t\f\\\n\r#!u0041é", max_size=40))
def test_our_java_reader_reads_what_an_independent_one_reads(text: str) -> None:
    text += "\nend=1"  # of a backslash before the end of the file, JDK and javaproperties differ
    try:
        expected = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError:
        return
    assert read_java_properties(text) == expected


@given(st.dictionaries(KEYS, WORDS.map(str.strip)))
def test_whatever_is_printed_reads_back_the_same_by_every_reader(meant: dict[str, str]) -> None:
    text = render_template("lmi/serving.properties.j2", properties=meant)

    check_properties("serving.properties", text, meant)
    assert javaproperties.loads(text) == meant


def test_readers_disagree_on_backslashes_and_colons() -> None:
    assert read_java_properties("k=a\\tb") == {"k": "a\tb"}
    assert read_naive_properties("k=a\\tb") == {"k": "a\\tb"}
    assert read_java_properties("k:v=w") == {"k": "v=w"}
    assert read_naive_properties("k:v=w") == {"k:v": "w"}


@cases("properties_that_say_something_else_name_the_key")
def test_properties_that_say_something_else_name_the_key(text: str, key: str) -> None:
    with raises_code("RenderMismatch", match=f"'{key}' does not parse back"):
        check_properties("serving.properties", text, {"a": "1", "b": "2"})


@pytest.mark.parametrize("text", ["{", "[]", '{"a":2}', '{"a":1,"b":2}', "{}"])
def test_json_that_says_something_else_is_refused(text: str) -> None:
    with raises_code("RenderMismatch", match=r"command\.json"):
        check_json("command.json", text, {"a": 1})
