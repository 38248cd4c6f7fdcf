"""`scripts/mutate` on a project of two functions: what is caught, escapes, and is kept."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import SCRIPTS

CODE = """
DEPTH = 3


def sign(x):
    return 1 if x > 0 else -1


def is_deep(x):
    return x >= DEPTH


def unused():
    return [1]
"""
ENDLESS = """

def wait(x):
    while x:
        break
    return x
"""
TESTS = """
from packager import signs
from packager.signs import sign, is_deep


def test_sign():
    assert sign(3) == 1
    assert sign(-1) == -1


def test_depth():
    assert is_deep(3)
    assert not is_deep(2)
"""
WAITING = """

def test_wait():
    assert signs.wait(2) == 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for path in SCRIPTS.glob("_*.py"):
        shutil.copy(path, tmp_path / "scripts")
    shutil.copy(SCRIPTS / "mutate", tmp_path / "scripts")
    for name, text in {
        "packager/__init__.py": "",
        "packager/signs.py": CODE,
        "tests/__init__.py": "",
        "tests/unit/__init__.py": "",
        "tests/unit/test_signs.py": TESTS,
        "tests/support/__init__.py": "",
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def mutate(project: Path, *options: str) -> tuple[int, dict[str, object], str, str]:
    """Return the status, the last line, and both outputs."""
    command = [sys.executable, str(project / "scripts/mutate"), "--seed", "1", *options]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stdout, done.stderr


@pytest.mark.extended
def test_tests_catch_what_they_see_and_a_second_run_has_nothing_to_do(project: Path) -> None:
    (project / "packager/signs.py").write_text(CODE + ENDLESS)
    (project / "tests/unit/test_signs.py").write_text(TESTS + WAITING)

    status, last, _, _ = mutate(project, "--save", str(project / "before.json"))

    saved = json.loads((project / "before.json").read_text())["mutants"]["packager/signs"]
    verdicts = {
        f"{row['line']}: {row['before']} -> {row['after']}": row["verdict"] for row in saved
    }
    assert status == 0
    assert verdicts == {
        "2: 3 -> 4": "caught",  # another import notices
        "6: return 1 if x > 0 else -1 -> return None": "caught",
        "6: x > 0 -> not x > 0": "caught",
        "6: x > 0 -> x >= 0": "escaped",
        "6: 0 -> 1": "escaped",
        "6: 1 -> 2": "caught",
        "10: return x >= DEPTH -> return None": "caught",
        "10: x >= DEPTH -> x > DEPTH": "caught",
        "14: return [1] -> return None": "not covered",
        "14: 1 -> 2": "not covered",
        "19: break -> continue": "caught",  # it never ends
        "20: return x -> return None": "caught",
    }
    assert last == {"mutants": 13, "caught": 9, "escaped": 2, "not covered": 2}

    _, again, _, messages = mutate(project)

    assert again == last
    assert "0 mutants to judge; of 13 it is known" in messages


def test_a_test_that_is_gone_lets_mutants_escape_that_were_caught(project: Path) -> None:
    mutate(project, "--save", str(project / "before.json"))
    path = project / "tests/unit/test_signs.py"
    path.write_text(TESTS.replace("== -1", "!= 0").replace("not is_deep(2)", "True"))

    status, last, output, _ = mutate(project, "--compare", str(project / "before.json"))

    assert (status, last["lost"], last["won"], last["worse"]) == (0, 1, 0, [])
    assert "lost  escaped     packager/signs.py:6 number: 1  ->  2" in output
