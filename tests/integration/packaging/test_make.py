"""`make venv`: an environment whose making was killed is not taken for whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import cases_of
from tests.support.places import ROOT
from tests.support.processes import run_program

cases = cases_of(__file__)

# Makes an "environment" whose pip is killed where KILLED names the words of its command line.
PYTHON = """#!/bin/sh
echo "$*" >> "$LOG"
case "$2" in
venv)
    for place; do :; done
    case "$*" in *--clear*) rm -rf "$place" ;; esac
    mkdir -p "$place/bin"
    cp "$0" "$place/bin/python"
    ;;
pip)
    case "$*" in *"$KILLED") kill -9 $$ ;; esac
    ;;
esac
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    program = tmp_path / "python"
    program.write_text(PYTHON)
    program.chmod(0o755)
    return program


def make(target: str, python: Path, killed: str = "never") -> tuple[int, list[str]]:
    """Run make; return its status and what it asked of Python."""
    place = python.parent
    log = place / "log"
    log.unlink(missing_ok=True)
    env = {"LOG": str(log), "KILLED": killed, "MAKEFLAGS": ""}
    words = ("make", "-C", ROOT, target, f"PYTHON={python}", f"VENV={place / 'venv'}")
    done = run_program(*words, env=env, status=None)
    lines = log.read_text().splitlines() if log.exists() else []
    return done.returncode, [line.replace(str(place), "").strip() for line in lines]


INSTALL = "-m pip install --quiet --editable"


def test_an_environment_is_made_once(python: Path) -> None:
    assert make("venv-test", python) == (
        0,
        ["-m venv /venv", f"{INSTALL} .[all]", f"{INSTALL} .[all,test,lint,docs]"],
    )

    assert make("venv-test", python) == (0, [])


@cases("packages_of_a_pip_that_was_killed_are_installed_anew")
def test_a_killed_pip_is_run_again(killed: str, again: list[str], python: Path) -> None:
    status, _ = make("venv-test", python, killed)
    assert status == 2

    assert make("venv-test", python) == (0, again)
    assert make("venv-test", python) == (0, [])
