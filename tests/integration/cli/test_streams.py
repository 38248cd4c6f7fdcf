"""What goes to which stream, and what happens when nobody reads it."""

from __future__ import annotations

import json
import os

import pytest

from packager.cli import app
from packager.core.errors import SmokeFailed
from tests.support.processes import run_python


def test_a_bug_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(**options: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(app.app, "main", broken)

    assert app.run(["doctor", "--format", "json"]) == 70
    assert json.loads(capsys.readouterr().err)["message"].startswith("unexpected ZeroDivision")


def test_a_smoke_failure_as_json_has_the_log_that_its_hint_speaks_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failed(**options: object) -> None:
        raise SmokeFailed("ended", hint="its log is above", log="out of memory")

    monkeypatch.setattr(app.app, "main", failed)

    assert app.run(["smoke", "x", "--format", "json"]) == 4
    assert json.loads(capsys.readouterr().err)["log"] == "out of memory"


def test_a_reader_that_goes_away_is_no_failure() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = run_python("-m", "packager", "list", "instances", stdout=write)
    finally:
        os.close(write)

    assert done.stderr == ""


def test_control_characters_of_others_do_not_reach_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failed(**options: object) -> None:
        raise SmokeFailed("file 'a\x1b[2Jb'", log="\x1b[31mred\x1b[0m\x1b]0;title\x07\ttab")

    monkeypatch.setattr(app.app, "main", failed)

    app.run(["smoke", "x"])

    assert capsys.readouterr().err == ("| red\\x1b]0;title\\x07   tab\nerror: file 'a\\x1b[2Jb'\n")


def test_a_full_stdout_is_an_output_that_failed() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = run_python("-m", "packager", "list", "instances", stdout=full, status=74)

    assert "no space is left" in done.stderr
