"""`scripts/test-all` runs an area's files, names what failed, and leaves out what has passed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import read_tables
from tests.support.places import ROOT
from tests.support.processes import run_python

AREAS = (Path(__file__).parent / "corpus" / "areas.toml").read_text("utf-8")
COPIED: list[str] = read_tables(__file__)["copied"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two areas; one has a file that passes and one that fails."""
    for name in COPIED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    files = {
        ".gitignore": "/out/\n__pycache__/\n",
        "scripts/prepare-tests": "",
        "tests/areas.toml": AREAS,
        "tests/unit/test_right.py": "def test_right():\n    open('out/right', 'a').write('x')\n",
        "tests/unit/test_wrong.py": "def test_wrong():\n    assert open('fixed').read()\n",
        "tests/live/test_else.py": "def test_else():\n    pass\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def run_areas(project: Path, *words: str) -> tuple[int, dict, str]:
    how: dict[str, Any] = {"cwd": project, "env": {"WORKERS": "2"}, "status": None}
    done = run_python("scripts/test-all", *words, **how)
    last = done.stdout.splitlines()[-1:]
    return done.returncode, json.loads(last[0]) if last else {}, done.stderr


def test_a_failure_is_named_with_the_place_of_its_output(project: Path) -> None:
    status, total, told = run_areas(project, "one")

    assert (status, total["passed"], total["failed"]) == (1, 1, 1)
    assert "one: failed: tests/unit/test_wrong.py::test_wrong" in told
    (log,) = (project / "out/test-all").glob("*/one.log")
    assert f"output in {log.relative_to(project)}" in told
    assert "No such file or directory: 'fixed'" in log.read_text()


@pytest.mark.extended
def test_what_passed_is_not_run_again_until_a_file_changes(project: Path) -> None:
    run_areas(project, "one")
    _, total, told = run_areas(project, "one")
    once = (project / "out/right").read_text()
    (project / "fixed").write_text("x")
    status, after, _ = run_areas(project, "one")

    assert (once, total["passed"], total["failed"]) == ("x", 1, 1)
    assert "one: 1 of 2 files to run" in told
    assert (status, after["passed"]) == (0, 2)
    assert (project / "out/right").read_text() == "xx"


def test_all_areas_run_where_none_is_named(project: Path) -> None:
    _, total, _ = run_areas(project)

    assert (total["areas"], total["files"], total["areas_failed"]) == (2, 3, ["one"])


def test_an_area_that_is_not_there_is_refused_with_those_that_are(project: Path) -> None:
    status, total, told = run_areas(project, "ones")

    assert (status, total) == (2, {})
    assert "error: no area 'ones'" in told
    assert "hint: areas are one, other" in told
