"""mypy refuses an implementation that departs from its port, because tables have typed factories.

One run of mypy for all: it takes seconds, and reads no cache.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.commandline import ROOT

pytestmark = pytest.mark.extended


def test_an_implementation_that_departs_from_its_port_is_an_error(tmp_path: Path) -> None:
    changed: dict[str, str] = {}
    departures = read_tables(__file__)["departures"]
    for one in departures:
        name, before = one["file"], one["before"]
        text = changed.get(name) or (ROOT / name).read_text()
        assert text.count(before) == 1, f"{name} has no longer {before!r}"
        changed[name] = text.replace(before, one["after"])

    found = run_mypy(tmp_path, changed)

    assert [one["id"] for one in departures if one["after"].rstrip(":") not in found] == []


def run_mypy(tmp_path: Path, changed: dict[str, str]) -> str:
    """Check the tables, with other text in place of some files."""
    words = [sys.executable, "-m", "mypy", "--cache-dir=/dev/null", "--follow-imports=silent"]
    for number, (name, text) in enumerate(changed.items()):
        shadow = tmp_path / f"{number}.py"
        shadow.write_text(text)
        words += ["--shadow-file", name, str(shadow)]
    words += ["packager/cli/plugins/tables.py", *changed]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert not done.stderr, done.stderr
    return done.stdout
