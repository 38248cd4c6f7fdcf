"""Mistakes on the command line read like every other error, whoever finds them."""

from __future__ import annotations

import json

import pytest

from packager.cli import app
from tests.support.cases import cases, read_tables


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return the error and the hint of a command that is refused."""
    assert app.run(arguments) == 2
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert (out, len(lines)) == ("", 2)
    return lines[0].removeprefix("error: "), lines[1].removeprefix("hint: ")


@cases("wrong_usage")
def test_wrong_usage_says_what_and_what_to_do(
    option: str, value: str | None, error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said, do = told(["plan", option, *([value] if value else [])], capsys)

    assert said.startswith(error)
    assert do.startswith(hint)
    assert len(said) < 300


def test_a_line_feed_in_a_word_forges_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    said, _ = told(["plan\nerror: forged"], capsys)

    assert said == "`packager` has no command 'plan\\nerror: forged'"


@pytest.mark.parametrize("arguments", [[], ["cache"]])
def test_a_group_shows_its_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(arguments) in (0, 2)

    out, err = capsys.readouterr()
    lines = (out + err).splitlines()
    assert lines[0].startswith("Usage: packager")
    assert len(lines) > 10
    assert "Error" not in out + err


def test_wrong_usage_is_a_document_where_one_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["plan", "--goal", "latncy", "--format", "json"]) == 2

    assert json.loads(capsys.readouterr().err) == read_tables(__file__)["document"]
