"""Managed environments: made once, whole or not at all, from the user's own index."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from packager.adapters.executors.processes import started
from packager.adapters.tools import environments as module
from packager.adapters.tools.environments import MADE, Environments, allows
from packager.errors import NotFound, OutputFailed, ToolUnavailable, UsageError
from tests.commandline import ROOT
from tests.tools.steps import environments


def wheel(directory: Path, name: str, version: str, requires: str = "") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A tool whose packages are two wheels in a directory."""
    wheel(tmp_path / "wheels", "first", "1.0+cpu")
    wheel(tmp_path / "wheels", "second", "2.0", requires="nobody-has-this")
    place = tmp_path / "tools-of-mine" / "two"
    (place / "requirements").mkdir(parents=True)
    (place / "worker.py").write_text("")
    (place / "tool.toml").write_text(
        'summary = "two wheels"\n[packages]\nfirst = "1.0"\nsecond = "2.0"\n'
        '[[install]]\nrequirements = "requirements/a.txt"\n'
        '[[install]]\nrequirements = "requirements/b.txt"\nno_deps = true\n'
    )
    (place / "requirements/a.txt").write_text("first==1.0\n")
    (place / "requirements/b.txt").write_text("second==2.0\n")
    return place


def own(tmp_path: Path, tool: Path, **more: str) -> Environments:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        **more,
    }
    return environments(tmp_path, find=lambda name: tool.parent / name, environment=environment)


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


def test_a_changed_worker_is_another_tool_in_the_same_environment(
    tmp_path: Path, tool: Path
) -> None:
    before = own(tmp_path, tool)
    before.tool("two")
    (tool / "worker.py").write_text("# better\n")
    after = own(tmp_path, tool)

    assert after.facts("two").worker != before.facts("two").worker
    assert after.place("two") == before.place("two")


@pytest.fixture
def borrower(tool: Path) -> Path:
    """A tool that runs in the environment of `two`."""
    place = tool.parent / "guest"
    place.mkdir()
    (place / "worker.py").write_text("")
    (place / "tool.toml").write_text('summary = "guest"\nenvironment = "two"\n')
    return place


def test_a_tool_may_run_in_the_environment_of_another(
    tmp_path: Path, tool: Path, borrower: Path
) -> None:
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('environment = "two"\n[packages]\nfirst = "1.0"\n', "installs and names no packages"),
        ('environment = "guest"\n', "borrows the environment of 'guest'"),
        ('environment = "three"\n', "there is no tool 'three'"),
    ],
)
def test_what_cannot_be_borrowed_is_refused(
    tmp_path: Path, tool: Path, borrower: Path, text: str, said: str
) -> None:
    (borrower / "tool.toml").write_text(f'summary = "s"\n{text}')

    with pytest.raises((UsageError, NotFound), match=said):
        own(tmp_path, tool).install("guest")


def test_a_package_that_is_not_there_is_explained_and_leaves_nothing(
    tmp_path: Path, tool: Path
) -> None:
    (tool / "requirements/a.txt").write_text("first==9.0\n")
    made = own(tmp_path, tool)

    with pytest.raises(ToolUnavailable, match=r"first==9\.0") as caught:
        made.install("two")

    assert caught.value.exit_code == 69
    assert "No matching distribution found for first==9.0" in caught.value.log
    assert made.installed() == []


def test_requirements_that_do_not_bring_what_the_tool_declares_are_refused(
    tmp_path: Path, tool: Path
) -> None:
    (tool / "tool.toml").write_text('summary = "s"\n[packages]\ntorch = "2.0"\n')

    with pytest.raises(ToolUnavailable, match="do not bring torch"):
        own(tmp_path, tool).install("two")


def test_a_tool_too_large_for_the_disk_is_not_begun(tmp_path: Path, tool: Path) -> None:
    (tool / "tool.toml").write_text('summary = "s"\ndisk_gb = 1e9\n')

    with pytest.raises(OutputFailed, match=r"needs 1000000\.0 TB of disk space"):
        own(tmp_path, tool).install("two")


def test_an_unknown_tool_is_not_found(tmp_path: Path, tool: Path) -> None:
    with pytest.raises(NotFound, match="there is no tool 'three'"):
        own(tmp_path, tool).install("three")


def test_what_a_killed_installation_left_is_made_anew(tmp_path: Path, tool: Path) -> None:
    program = (
        "from pathlib import Path\n"
        "from tests.tools.test_environments import own\n"
        f"own(Path({str(tmp_path)!r}), Path({str(tool)!r})).install('two')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, start_new_session=True)
    made = own(tmp_path, tool)
    deadline = time.monotonic() + 60
    while not (made.place("two") / "bin").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert not (made.place("two") / MADE).exists()
    made.install("two")
    assert made.facts("two").installed


@pytest.mark.parametrize("seed", range(5))
def test_an_installation_killed_at_any_moment_is_not_trusted(
    seed: int, tmp_path: Path, tool: Path
) -> None:
    text = (tool / "tool.toml").read_text().partition("[packages]")[0]
    (tool / "tool.toml").write_text(text)  # its venv alone: some moments of 30
    program = (
        "from pathlib import Path\n"
        "from tests.tools.test_environments import own\n"
        "print('ready', flush=True)\n"
        f"own(Path({str(tmp_path)!r}), Path({str(tool)!r})).install('two')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
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


def test_installers_are_not_shown_the_claim_key(
    tmp_path: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may run the code of packages, which could name layers of its choice with it."""
    shown: list[str] = []

    def seen(command: list[str], *, env: Mapping[str, str], **rest: Any) -> Any:
        shown.extend(env.values())
        return started(command, env=env, **rest)

    monkeypatch.setattr(module, "started", seen)

    own(tmp_path, tool, PACKAGER_CLAIM_KEY="packager-claim-key-1:secret").install("two")

    assert shown != []
    assert "packager-claim-key-1:secret" not in shown


def test_installers_hold_the_lock_of_their_environment(
    tmp_path: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    program = (
        "from pathlib import Path\n"
        "from tests.tools.test_environments import own\n"
        f"own(Path({str(tmp_path)!r}), Path({str(tool)!r})).install('two')\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) for _ in range(2)]

    assert [process.wait(120) for process in both] == [0, 0]
    assert len(list((tmp_path / "logs").glob("*install-two*.log"))) == 2  # venv and pip, once


@pytest.mark.parametrize(
    ("wanted", "version", "allowed"),
    [
        (">=3.11,<3.14", "3.11.7", True),
        (">=3.11,<3.14", "3.14.0", False),
        (">=3.12", "3.11.9", False),
        (">=3.11.5", "3.11.7", True),
        (">=3.11.5", "3.11.4", False),
        (">=3.11.5", "3.12.0", True),
        ("<=3.11", "3.11.7", False),
        ("==3.11.*", "3.11.7", True),
        ("==3.11", "3.11.7", False),
        ("~=3.11", "3.13.0", True),
        ("~=3.11.2", "3.12.0", False),
        ("!=3.12.*", "3.11.7", True),
        ("!=3.12.*", "3.12.1", False),
        (">=3.11", "3.15.0rc1", True),
        ("", "3.11.7", True),
    ],
)
def test_python_versions_are_compared_as_specifiers_say(
    wanted: str, version: str, allowed: bool
) -> None:
    assert allows(wanted, version) is allowed


@pytest.mark.parametrize("text", ["3.11", "python>=3.11", ">=three", ">=3.11;<4"])
def test_what_specifies_no_versions_is_refused(text: str, tmp_path: Path, tool: Path) -> None:
    (tool / "tool.toml").write_text(f'summary = "s"\npython = "{text}"\n')

    with pytest.raises(UsageError, match="are no version specifiers"):
        own(tmp_path, tool).install("two")


def test_a_tool_for_another_python_is_not_begun(tmp_path: Path, tool: Path) -> None:
    (tool / "tool.toml").write_text('summary = "s"\npython = "<3.11"\n')

    with pytest.raises(ToolUnavailable, match=r"needs Python <3\.11, packager runs on 3\."):
        own(tmp_path, tool).install("two")


def test_uv_is_left_alone_where_only_pip_knows_the_index(tmp_path: Path, tool: Path) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\nexit 1\n")
    uv.chmod(0o755)
    path = {"PATH": f"{uv.parent}:{os.environ['PATH']}"}

    assert own(tmp_path, tool, **path)._uv() is None
    assert own(tmp_path, tool, **path, UV_INDEX_URL="https://localhost")._uv() == str(uv)
