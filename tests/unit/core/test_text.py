"""What is printed: a value of a stranger stays within its line, and in its order."""

from __future__ import annotations

import json
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from packager.core.text import escape, escape_json, hide_userinfo, joined, json_text, quoted_lines
from tests.support.cases import cases


@cases("what_a_terminal_obeys_or_hides_is_escaped")
def test_what_a_terminal_obeys_or_hides_is_escaped(text: str, escaped: str) -> None:
    assert escape(text) == escaped


def test_half_of_a_surrogate_pair_is_escaped() -> None:
    assert escape("\ud800a") == "\\ud800a"


@cases("ordinary_names_are_left_as_they_are")
def test_ordinary_names_are_left_as_they_are(text: str) -> None:
    assert escape(text) == text


@given(st.text(st.characters(codec=None)))
def test_escaping_leaves_nothing_to_obey_and_is_the_same_twice(text: str) -> None:
    escaped = escape(text)

    assert escape(escaped) == escaped
    assert not [
        letter
        for letter in escaped
        if unicodedata.category(letter) in {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"}
        or (unicodedata.category(letter) == "Cf" and letter != "\u200d")
    ]


def test_no_letter_of_a_script_is_escaped() -> None:
    changed = [
        letter
        for letter in map(chr, range(32, sys.maxunicode + 1))
        if unicodedata.category(letter)[0] in "LNPS" and escape(letter) != letter
    ]

    assert changed == ["\u115f", "\u1160", "\u3164", "\uffa0"]  # they show nothing


def test_a_line_cannot_begin_another_one() -> None:
    assert joined(["model  a\nerror: forged", "next"]) == "model  a\\nerror: forged\nnext"


def test_lines_of_a_log_stand_behind_a_mark() -> None:
    log = "\x1b[31mloading\x1b[0m\r\nerror: forged\nhint: run rm\u2028error: x\n\nend\n"
    lines = ["loading", "error: forged", "hint: run rm\\u2028error: x", "", "end"]

    assert quoted_lines(log) == [f"| {line}".rstrip() for line in lines]
    assert quoted_lines("\n") == []


@given(st.text(st.characters(codec=None)))
def test_json_stays_the_same_document_and_obeys_nothing(text: str) -> None:
    document = {text: [text, 1.5, None]}

    printed = json_text(document)
    ascii_only = escape_json(printed, ascii_only=True)

    assert json.loads(printed) == document
    assert json.loads(ascii_only) == document
    assert ascii_only.isascii()
    assert all(escape(line) == line for line in printed.split("\n"))


def test_json_keeps_readable_letters() -> None:
    assert json_text(["größe\u202e🤗"]) == '[\n  "größe\\u202e🤗"\n]'


@cases("whoever_logs_in_is_not_shown")
def test_whoever_logs_in_is_not_shown(text: str, shown: str) -> None:
    assert hide_userinfo(text) == shown


@cases("references_and_revisions_are_shown")
def test_references_and_revisions_are_shown(text: str) -> None:
    assert hide_userinfo(text) == text
