"""launch.py runs the rendered command, or says why it cannot."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import cases_of
from tests.support.workers import SERVING

cases = cases_of(__file__, "launches")


PR_SET_CHILD_SUBREAPER = 36

# Ends with a status of its own: a server that ends with 0 by itself is one that failed.
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)])); sys.exit(3)"

# A server that stops as vLLM's does: on a signal, with status 0 and all its work done.
SERVER = """
import os, signal
def stop(number, frame):
    os.write(1, f"{signal.Signals(number).name}\\n".encode())  # not print: it may be in one
    os._exit(0)
for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1"):
    signal.signal(getattr(signal, name), stop)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""

# Counts how often it is interrupted, and ends when it is asked for the number.
COUNTING = """
import os, signal
count = 0
def interrupted(number, frame):
    global count
    count += 1
    os.write(1, b"interrupted\\n")
def end(number, frame):
    os.write(1, f"{count}\\n".encode())
    os._exit(0)
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGUSR1, end)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""

# Leaves a grandchild behind, which ends when its parent is gone: whoever adopted it must reap it.
ORPHAN = """
import os, signal
reading, writing = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(writing, str(os.getpid()).encode())
    os._exit(0)
os.wait()
signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
os.write(1, os.read(reading, 20) + b"\\n")
while True:
    signal.pause()
"""


class Launcher:
    """A copy of launch.py in a directory of its own, as in an image."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copy(SERVING / "vllm" / "launch.py", directory)

    def write(self, command: object) -> None:
        text = command if isinstance(command, str) else json.dumps(command)
        (self.directory / "command.json").write_text(text)

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        adopts: bool = False,
        ignores: signal.Signals | None = None,
    ) -> subprocess.Popen[str]:
        argv = [sys.executable, str(self.directory / "launch.py"), *arguments]
        environment = {"PATH": os.environ["PATH"], **(env or {})}

        def prepare() -> None:
            for number in (signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)  # a background job ignores both
            if ignores is not None:
                signal.signal(ignores, signal.SIG_IGN)
            if adopts:
                assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0

        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv, env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=prepare
        )

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> tuple[int, list[Any], str]:
        process = self.start(*arguments, env=env)
        stdout, stderr = process.communicate(timeout=120)
        return process.returncode, json.loads(stdout or "[]"), stderr


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    launcher = Launcher(tmp_path)
    launcher.write(
        {"argv": [sys.executable, "-c", SHOW, "--port", "8080"], "env": {"THREADS": "1"}}
    )
    return launcher


@cases("arguments")
def test_arguments_of_the_container_follow_the_command(
    launcher: Launcher, given: list[str], received: list[str]
) -> None:
    assert launcher.run(*given)[1][0] == received


@cases("speculation")
def test_speculation_can_be_switched_off(launcher: Launcher, asked: list[str]) -> None:
    """With the words before and after it left alone."""
    base = [sys.executable, "-c", SHOW, "--port", "8080"]
    launcher.write({"argv": [*base, *asked, "--enforce-eager"]})
    plain = ["--port", "8080", "--enforce-eager", "--seed", "7"]

    off = launcher.run("--seed", "7", env={"PACKAGER_SPECULATION": "off"})[1][0]
    on = launcher.run("--seed", "7")[1][0]

    assert off == plain
    assert on == ["--port", "8080", *asked, "--enforce-eager", "--seed", "7"]


def test_speculation_asked_for_at_the_start_is_switched_off_too(launcher: Launcher) -> None:
    off = {"PACKAGER_SPECULATION": "off"}

    assert launcher.run("--speculative-config", "{}", env=off)[1][0] == ["--port", "8080"]


def test_the_environment_of_the_container_wins(launcher: Launcher) -> None:
    assert launcher.run()[1][1]["THREADS"] == "1"
    assert launcher.run(env={"THREADS": "8"})[1][1]["THREADS"] == "8"


def test_the_server_can_import_what_lies_beside_the_launcher(launcher: Launcher) -> None:
    assert launcher.run()[1][1]["PYTHONPATH"] == str(launcher.directory)

    given = launcher.run(env={"PYTHONPATH": "/elsewhere"})[1][1]["PYTHONPATH"]

    assert given == f"{launcher.directory}:/elsewhere"


@cases("signals", status=0, ignored="")
def test_a_server_gets_the_signal_and_ends_the_container_with_0_if_it_was_stopped(
    launcher: Launcher, name: str, status: int, ignored: str
) -> None:
    """A background job of a shell ignores SIGINT; some supervisors ignore SIGCHLD."""
    launcher.write({"argv": [sys.executable, "-c", SERVER]})
    process = launcher.start(ignores=getattr(signal, ignored) if ignored else None)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"

    process.send_signal(getattr(signal, name))
    stdout, stderr = process.communicate(timeout=120)

    assert (process.returncode, stdout) == (status, f"{name}\n")
    assert bool(stderr) == bool(status)


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("raise SystemExit(0)", 70),
        ("raise SystemExit(1)", 1),
        ("raise SystemExit(137)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
    ],
    ids=["shut-down-as-if-asked", "failed", "any-status", "killed", "crashed"],
)
def test_an_engine_that_died_ends_the_container_with_another_status_than_0(
    launcher: Launcher, program: str, status: int
) -> None:
    launcher.write({"argv": [sys.executable, "-c", program]})

    found, _, message = launcher.run()

    assert found == status
    assert ("its engine died" in message) == (status == 70)


@pytest.mark.parametrize("asked", [["--help"], ["-h"], ["serve", "--version"], ["--help=all"]])
def test_a_command_that_only_tells_something_ends_with_0(
    launcher: Launcher, asked: list[str]
) -> None:
    launcher.write({"argv": [sys.executable, "-c", "print([])"]})

    assert launcher.run(*asked) == (0, [], "")


def test_a_server_stopped_before_it_listens_to_signals_ends_as_one_that_was_killed(
    launcher: Launcher,
) -> None:
    program = "import signal; print('importing', flush=True)\nwhile True: signal.pause()"
    launcher.write({"argv": [sys.executable, "-c", program]})
    process = launcher.start()
    assert process.stdout is not None and process.stdout.readline() == "importing\n"

    process.terminate()
    process.communicate(timeout=120)

    assert process.returncode == 143


def test_processes_that_lost_their_parent_are_reaped(launcher: Launcher) -> None:
    """As the first process of a container adopts them; here it is told to."""
    launcher.write({"argv": [sys.executable, "-c", ORPHAN]})
    process = launcher.start(adopts=True)
    assert process.stdout is not None
    orphan = process.stdout.readline().strip()

    deadline = time.monotonic() + 60
    while Path("/proc", orphan).exists():  # a zombie is there for as long as nobody reaps it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()

    assert process.wait(timeout=120) == 0


def test_ctrl_c_in_a_terminal_reaches_the_server_once(launcher: Launcher) -> None:
    """The terminal sends it to both; a second one makes servers drop what they are answering."""
    launcher.write({"argv": [sys.executable, "-c", COUNTING]})
    ours, theirs = pty.openpty()
    argv = [sys.executable, str(launcher.directory / "launch.py")]

    def take_terminal() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        argv,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(theirs)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    os.write(ours, b"\x03")
    assert process.stdout.readline() == b"interrupted\n"
    process.send_signal(signal.SIGUSR1)  # after whatever the launcher did with the first
    stdout, stderr = process.communicate(timeout=120)
    os.close(ours)

    assert (process.returncode, stdout, stderr) == (0, b"1\n", b"")


@cases("broken")
def test_a_broken_command_is_a_configuration_error(
    launcher: Launcher, command: str | None, why: str
) -> None:
    if command is None:
        (launcher.directory / "command.json").unlink()
    else:
        launcher.write(command)

    status, _, message = launcher.run()

    assert status == 78
    assert message.startswith(f"error: {launcher.directory}/command.json: ")
    assert why in message
    assert "hint: " in message


def test_a_program_that_is_not_in_the_image_is_named(launcher: Launcher) -> None:
    launcher.write({"argv": ["no-such-engine"]})

    status, _, message = launcher.run()

    assert status == 127
    assert message.startswith("error: cannot run 'no-such-engine': No such file or directory")
