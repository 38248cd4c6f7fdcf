"""What the scripts know of their daemons, and of packages, after a run that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.places import SCRIPTS
from tests.support.running_jobs import until
from tests.support.workers import load

daemons = load(SCRIPTS / "_daemons.py")

SLEEPER = "import sys, time; time.sleep(600)"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that names its configuration file below the root."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, str(tmp_path / "daemon.json")])
    yield process
    process.kill()
    process.wait()


def test_a_recycled_pid_is_no_daemon(tmp_path: Path, daemon: subprocess.Popen[bytes]) -> None:
    (tmp_path / "registry.pid").write_text(f"{daemon.pid} 12345\n")

    assert daemons.pid_of(tmp_path, "registry") is None
    assert not daemons.end_all(tmp_path, "registry", tmp_path / "other.json", 5)
    assert daemon.poll() is None
    assert not (tmp_path / "registry.pid").exists()


@pytest.mark.parametrize("text", ["", "17", "x y", "17 1 1"])
def test_half_a_pid_file_names_no_daemon(text: str, tmp_path: Path) -> None:
    (tmp_path / "registry.pid").write_text(text)

    assert daemons.pid_of(tmp_path, "registry") is None


def test_a_daemon_without_a_pid_is_ended(tmp_path: Path, daemon: subprocess.Popen[bytes]) -> None:
    assert daemons.running_with(tmp_path / "daemon.json") == [daemon.pid]

    assert daemons.end_all(tmp_path, "dockerd", tmp_path / "daemon.json", 5)

    daemon.wait(120)
    assert daemons.running_with(tmp_path / "daemon.json") == []


def test_services_are_allowed_again_after_an_installation_that_was_killed(tmp_path: Path) -> None:
    """Ours, left by a killed run, would forbid services for ever."""
    policy = tmp_path / "policy-rc.d"

    assert daemons.forbid_services(policy)
    assert policy.stat().st_mode & 0o111
    assert daemons.forbid_services(policy)  # the killed run never removed it


def test_a_policy_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n")

    assert not daemons.forbid_services(policy)
    assert policy.read_text() == "#!/bin/sh\nexit 0\n"


@cases("a_half_unpacked_package_is_not_an_installed_one", known=None)
def test_a_half_unpacked_package_is_not_an_installed_one(
    status: str, known: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its programs are there and its parts are not, so `command -v` finds an engine."""
    program = tmp_path / "dpkg-query"
    program.write_text(f"#!/bin/sh\nprintf %s {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert daemons.installed("docker.io") is known


def test_what_ends_with_a_process_is_stopped_when_that_is_killed(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    script = tmp_path / "watch.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "import _daemons\n"
        "_daemons.wait_for_end(int(sys.argv[-1]))\n"
        f"open({str(stopped)!r}, 'w').close()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", SLEEPER])
    try:
        with daemons.ending_with(owner.pid, script, tmp_path):
            pass
        assert daemons.pid_of(tmp_path, "watcher") is not None
        assert not stopped.exists()
    finally:
        owner.kill()
        owner.wait()

    until(stopped.exists)


def test_a_start_that_fails_leaves_no_watcher(tmp_path: Path) -> None:
    script = tmp_path / "watch.py"
    script.write_text(SLEEPER)

    with pytest.raises(ZeroDivisionError), daemons.ending_with(os.getpid(), script, tmp_path):
        assert daemons.pid_of(tmp_path, "watcher") is not None
        raise ZeroDivisionError

    assert daemons.pid_of(tmp_path, "watcher") is None
