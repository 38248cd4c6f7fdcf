"""Commands in forks of a preloaded process are what commands of a new interpreter are."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.commandline import TINY, packager_in
from tests.support.places import ROOT

pytestmark = pytest.mark.extended

PLAN = ("plan", "--model", str(TINY), "--instance", "local")
CASES = {
    "a result": ("list", "families"),
    "a plan": PLAN,
    "a usage error": ("plan", "--nonsense"),
    "a file that is not there": ("plan", "--model", "nowhere", "--instance", "local"),
    "an image of the directory": ("inspect", "oci:out"),
}


@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES)
def test_a_fork_ends_as_a_new_interpreter_does(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    new = subprocess.run(
        [sys.executable, "-m", "packager", *arguments], cwd=tmp_path, capture_output=True, text=True
    )

    forked = packager_in(tmp_path)(*arguments)

    assert (forked.status, forked.out, forked.err) == (new.returncode, new.stdout, new.stderr)


@pytest.mark.parametrize("variable", ["PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"])
def test_commands_are_forks_whatever_python_is_told(tmp_path: Path, variable: str) -> None:
    """Where it was one of these, each command was a new interpreter, for half a second."""
    code = (
        "import subprocess\n"
        "from pathlib import Path\n"
        "from tests.support.commandline import packager_in\n"
        "subprocess.run = None\n"
        f"assert packager_in(Path({str(tmp_path)!r}))('--help').status == 0"
    )
    asked = [sys.executable, "-c", "import tests.conftest\n" + code]

    done = subprocess.run(
        asked, cwd=ROOT, env={**os.environ, variable: "1"}, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


def test_a_fork_has_the_environment_that_was_asked_for(tmp_path: Path) -> None:
    """Here: where to find a Docker Engine, which nobody has."""
    asked = {"DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"}

    done = packager_in(tmp_path)("inspect", "docker:one", env=asked)

    assert done.status != 0
    assert "nobody.sock" in done.err


def test_forks_run_side_by_side_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    def ask(number: int) -> str:
        name = f"model-{number}"
        done = packager_in(tmp_path)(*PLAN, "--served-name", name, "--format", "json")
        return name if f'"{name}"' in done.out else done.out + done.err

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(ask, range(8))] == [f"model-{number}" for number in range(8)]


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    """It asks a registry that never answers, which sees the connection end."""
    with socket.create_server(("127.0.0.1", 0)) as registry:
        address = "{}:{}".format(*registry.getsockname())
        command = ("inspect", f"{address}/one:two", "--insecure-registry", address)
        registry.setblocking(False)
        for timeout_s in (0.2, 5, 20, 80):  # on a busy machine it may not have asked so soon
            with pytest.raises(subprocess.TimeoutExpired):
                packager_in(tmp_path, timeout_s=timeout_s)(*command)
            with suppress(BlockingIOError):
                asking, _ = registry.accept()
                break
        with asking:
            asking.settimeout(120)
            while asking.recv(10_000):
                pass
