"""Managed environments: made once, whole or not at all, from the user's own index."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import ToolUnavailable, UsageError
from packager.optimize.steps.processes import started
from packager.optimize.steps.tools import environments as module
from tests.support.places import ROOT
from tests.unit.optimize.steps.tools.test_environments import borrower as borrower
from tests.unit.optimize.steps.tools.test_environments import own
from tests.unit.optimize.steps.tools.test_environments import tool as tool

# One process makes the packages of pip that their environments are given.
pytestmark = [pytest.mark.extended, pytest.mark.xdist_group("tool-environments")]


def installing(place: Path, tool: Path, **how: Any) -> subprocess.Popen[str]:
    """Install a tool in a process of its own, which says when it begins."""
    program = (
        "from pathlib import Path\n"
        "from tests.unit.optimize.steps.tools.test_environments import own\n"
        "print('ready', flush=True)\n"
        f"own(Path({str(place)!r}), Path({str(tool)!r})).install('two')\n"
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, text=True, **how)


def test_groups_are_installed_in_order_with_the_users_settings(tmp_path: Path, tool: Path) -> None:
    made = own(tmp_path, tool)
    declared = made.facts("two")

    python = made.install("two")

    facts = made.facts("two")
    assert python.is_file()
    assert (declared.installed, facts.installed) == (False, True)
    assert dict(declared.packages) == {"first": "1.0", "second": "2.0"}
    assert dict(facts.packages) == {"first": "1.0+cpu", "second": "2.0"}
    assert declared.requirements == facts.requirements


@pytest.mark.usefixtures("real_venv")
def test_an_environment_is_made_once(tmp_path: Path, tool: Path) -> None:
    made = own(tmp_path, tool)
    first = made.install("two")

    assert own(tmp_path, tool, PIP_FIND_LINKS="/nowhere").install("two") == first
    assert [(found.tool, found.current) for found in made.installed()] == [("two", True)]


def test_changed_requirements_are_another_environment(tmp_path: Path, tool: Path) -> None:
    before = own(tmp_path, tool)
    before.install("two")
    (tool / "requirements/b.txt").write_text("second==2.0  # pinned\n")
    after = own(tmp_path, tool)

    assert after.place("two") != before.place("two")
    assert after.facts("two").requirements != before.facts("two").requirements
    assert [found.current for found in after.installed()] == [False]
    assert after.remove("two") == [before.place("two")]
    assert after.installed() == []


def test_an_environment_in_use_is_not_removed(tmp_path: Path, tool: Path) -> None:
    (tool / "tool.toml").write_text('summary = "s"\n')
    made = own(tmp_path, tool)

    with made.in_use("two") as python:
        with pytest.raises(UsageError, match="is in use"):
            own(tmp_path, tool).remove("two")
        assert python.exists()

    assert len(own(tmp_path, tool).remove("two")) == 1


def test_a_tool_may_run_in_anothers_environment(tmp_path: Path, tool: Path, borrower: Path) -> None:
    made = own(tmp_path, tool)

    made.install("guest")

    assert [found.tool for found in made.installed()] == ["two"]
    assert made.place("guest") == made.place("two")
    guest, two = made.facts("guest"), made.facts("two")
    assert (guest.name, guest.installed) == ("guest", True)
    assert dict(guest.packages) == dict(two.packages) == {"first": "1.0+cpu", "second": "2.0"}
    assert guest.requirements == two.requirements
    with pytest.raises(UsageError, match="runs in the environment of 'two'"):
        made.remove("guest")


def test_an_absent_package_is_explained_and_leaves_nothing(tmp_path: Path, tool: Path) -> None:
    (tool / "requirements/a.txt").write_text("first==9.0\n")
    made = own(tmp_path, tool)

    with pytest.raises(ToolUnavailable, match=r"first==9\.0") as caught:
        made.install("two")

    assert caught.value.exit_code == 69
    assert "No matching distribution found for first==9.0" in caught.value.log
    assert made.installed() == []


def test_requirements_without_what_a_tool_declares_are_refused(tmp_path: Path, tool: Path) -> None:
    (tool / "tool.toml").write_text('summary = "s"\n[packages]\ntorch = "2.0"\n')

    with pytest.raises(ToolUnavailable, match="do not bring torch"):
        own(tmp_path, tool).install("two")


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_installation_is_not_trusted(seed: int, tmp_path: Path, tool: Path) -> None:
    text = (tool / "tool.toml").read_text().partition("[packages]")[0]
    (tool / "tool.toml").write_text(text)  # its venv alone: some moments of 30
    process = installing(tmp_path, tool, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(random.Random(seed).uniform(0, 1.0))
    process.kill()
    process.wait()

    made = own(tmp_path, tool)
    python = made.install("two")

    assert subprocess.run([python, "-c", "import json"], check=False).returncode == 0
    assert [found.tool for found in made.installed()] == ["two"]


def test_what_still_runs_of_a_killed_installation_is_waited_for(tmp_path: Path, tool: Path) -> None:
    """It would write into the environment that the next one makes in the same place."""
    made = own(tmp_path, tool)
    place = made.place("two")
    place.parent.mkdir(parents=True)
    with made._lock(place) as lock:
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        installer = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(lock,))
    try:
        with pytest.raises(UsageError, match="is in use"), made._lock(place, wait=False):
            pass
    finally:
        installer.communicate()
    with made._lock(place, wait=False):
        pass


def test_the_claim_key_is_kept(tmp_path: Path, tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may run the code of packages, which could name layers of its choice with it."""
    shown: list[str] = []

    def seen(command: list[str], *, env: Mapping[str, str], **rest: Any) -> Any:
        shown.extend(env.values())
        return started(command, env=env, **rest)

    monkeypatch.setattr(module, "started", seen)

    own(tmp_path, tool, PACKAGER_CLAIM_KEY="packager-claim-key-1:secret").install("two")

    assert shown != []
    assert "packager-claim-key-1:secret" not in shown


def test_installers_hold_locks(tmp_path: Path, tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []

    def seen(command: list[str], *, holding: Sequence[int], **rest: Any) -> Any:
        held.append([Path(f"/proc/self/fd/{one}").readlink() for one in holding] == [lock])
        return started(command, holding=holding, **rest)

    monkeypatch.setattr(module, "started", seen)
    made = own(tmp_path, tool)
    lock = Path(f"{made.place('two')}.lock")

    made.install("two")

    assert held == [True, True]  # venv and pip


def test_an_environment_whose_python_has_gone_is_made_anew(tmp_path: Path, tool: Path) -> None:
    (tool / "tool.toml").write_text('summary = "s"\n')
    python = own(tmp_path, tool).install("two")
    python.unlink()
    python.symlink_to(tmp_path / "python-of-last-year")

    assert own(tmp_path, tool).facts("two").installed is False
    again = own(tmp_path, tool).install("two")

    assert subprocess.run([again, "-c", ""], check=False).returncode == 0


def test_two_processes_make_one_environment(tmp_path: Path, tool: Path) -> None:
    both = [installing(tmp_path, tool) for _ in range(2)]

    assert [process.wait(120) for process in both] == [0, 0]
    assert len(list((tmp_path / "logs").glob("*install-two*.log"))) == 2  # venv and pip, once
