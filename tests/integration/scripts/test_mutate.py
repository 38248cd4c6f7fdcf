"""`scripts/mutate` on a project of two functions: what is caught, escapes, and is kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.places import SCRIPTS
from tests.support.processes import run_python

PROJECT = read_tables(__file__)
CODE, TESTS = PROJECT["code"], PROJECT["tests"]


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


def mutate(project: Path, *options: object) -> tuple[dict[str, object], str, str]:
    """Return the last line, and both outputs."""
    words = (project / "scripts/mutate", "--seed", "1", *options)
    done = run_python(*words, cwd=project)
    return json.loads(done.stdout.splitlines()[-1]), done.stdout, done.stderr


@pytest.mark.extended
def test_tests_catch_what_they_see_and_a_second_run_has_nothing_to_do(project: Path) -> None:
    (project / "packager/signs.py").write_text(CODE + PROJECT["endless"])
    (project / "tests/unit/test_signs.py").write_text(TESTS + PROJECT["waiting"])

    last, _, _ = mutate(project, "--save", project / "before.json")

    saved = json.loads((project / "before.json").read_text())["mutants"]["packager/signs"]
    verdicts = {
        f"{row['line']}: {row['before']} -> {row['after']}": row["verdict"] for row in saved
    }
    assert verdicts == PROJECT["verdicts"]
    assert last == {"mutants": 13, "caught": 9, "escaped": 2, "not covered": 2}

    again, _, messages = mutate(project)

    assert again == last
    assert "0 mutants to judge; of 13 it is known" in messages


def test_a_test_that_is_gone_lets_mutants_escape_that_were_caught(project: Path) -> None:
    mutate(project, "--save", project / "before.json")
    path = project / "tests/unit/test_signs.py"
    path.write_text(TESTS.replace("== -1", "!= 0").replace("not is_deep(2)", "True"))

    last, output, _ = mutate(project, "--compare", project / "before.json")

    assert (last["lost"], last["won"], last["worse"]) == (1, 0, [])
    assert "lost  escaped     packager/signs.py:6 number: 1  ->  2" in output
