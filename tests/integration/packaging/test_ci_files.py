"""What CI of other repositories takes from this one: the action's script and the hook of files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.cases import read_tables
from tests.support.commandline import TINY
from tests.support.places import ROOT
from tests.support.processes import run_program

TABLES = read_tables(__file__)

BROKEN = "engine=Python\noption.max_model_len=4096\noption.rolling_batch=nothing\n"
PROJECT = TABLES["project"]


def git(repository: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    subprocess.run(["git", *identity, *words], cwd=repository, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of somebody's, whose last commit changed a target."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    (root / "README.md").write_text("nothing of an engine\n")
    for batch in (8, 16):
        (root / "packager.toml").write_text(PROJECT.format(model=TINY, batch=batch))
        git(root, "add", "-A")
        git(root, "commit", "-qm", f"batch {batch}")
    return root


def run_action(repository: Path, **given: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PACKAGER_ACTION": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(repository.parent / "summary.md"),
        "GITHUB_OUTPUT": str(repository.parent / "output"),
        **{f"PACKAGER_{name.upper()}": value for name, value in given.items()},
    }
    words = ("bash", ROOT / "scripts" / "github-action")
    done = run_program(*words, cwd=repository, env=variables, alone=True, status=None)
    return done, repository.parent / "summary.md"


def test_the_action_shows_what_a_commit_does_to_plans(repository: Path) -> None:
    done, summary = run_action(repository, targets="tiny")

    assert done.returncode == 0, done.stderr
    assert re.search(r"^requests at once +8 +16$", summary.read_text(), re.MULTILINE)
    assert (repository.parent / "output").read_text() == "changed=true\n"
    assert (
        subprocess.run(
            ["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True
        ).stdout.count("\n")
        == 1
    )

    done, summary = run_action(repository, targets="all", base="HEAD")
    assert "the plans decide the same" in summary.read_text()
    assert (repository.parent / "output").read_text().endswith("changed=false\n")


def test_the_action_checks_files_and_writes_sarif(repository: Path) -> None:
    (repository / "serving.properties").write_text(BROKEN)
    (repository / "a b;c.yaml").write_text("only: data\n")
    git(repository, "add", "-A")

    done, _ = run_action(repository, check="*serving.properties\n*.yaml\n", sarif="found.sarif")

    assert done.returncode == 3, done.stderr
    found = json.loads((repository / "found.sarif").read_text())
    assert found["version"] == "2.1.0"
    assert found["runs"][0]["results"]


def test_the_actions_inputs_are_those_of_its_script() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    script = (ROOT / "scripts" / "github-action").read_text()
    step = action["runs"]["steps"][0]

    given = {name.removeprefix("PACKAGER_") for name in step["env"]}
    assert given == set(re.findall(r"PACKAGER_([A-Z_]+)", script))
    assert {name.lower() for name in given} - {"action", "pull_request"} == {*action["inputs"]}
    assert "${{" not in step["run"]  # texts of others never become text of a shell


def test_the_hook_is_given_files_that_start_engines() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())

    names = TABLES["the_hook_is_given_files_that_start_engines"]
    assert all(re.search(hook["files"], name) for name in names)
    assert not re.search(hook["files"], "main.py")
    assert hook["entry"].split()[:2] == ["packager", "check"]
