"""Every Python process of an engine on processors asks for AMX's tiles, which strace shows.

The kernel refuses where there is no AMX: that the call is made is what can be seen everywhere.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import need
from tests.support.cases import cases
from tests.support.processes import run_program
from tests.support.workers import SERVING

PROGRAM = SERVING / "vllm" / "sitecustomize.py"
CALL = "arch_prctl(ARCH_REQ_XCOMP_PERM, 0x12"

# What an engine is: a server, a core started anew, and a worker that the core forks.
ENGINE = """
import multiprocessing, os, subprocess, sys

def core():
    forked = multiprocessing.get_context("fork").Process(target=print, args=("worker",))
    forked.start()
    forked.join()

if __name__ == "__main__":
    spawned = multiprocessing.get_context("spawn").Process(target=core)
    spawned.start()
    spawned.join()
    subprocess.run([sys.executable, "-c", "print('helper')"], check=True)
    print("server")
    sys.exit(3)
"""

needs_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="only x86-64 has AMX, and the call"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of the launcher, as it is in an image."""
    place = tmp_path / "serving"
    place.mkdir()
    shutil.copy(PROGRAM, place)
    shutil.copy(SERVING / "vllm" / "launch.py", place)
    return place


def environment(directory: Path, **more: str) -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(directory), **more}


def start(directory: Path, program: str, **more: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", program]
    env = environment(directory, **more)
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)


def traced(place: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run Python with these words; return its end, and the system calls of all its processes."""
    trace = place / "trace"
    calls = ("-f", "-e", "trace=execve,arch_prctl", "-o", str(trace))
    env = {"PATH": os.environ["PATH"]}
    command = (need("strace"), *calls, sys.executable, *words)
    done = run_program(*command, env=env, alone=True, status=None)
    return done, trace.read_text()


@needs_x86
def test_no_python_process_of_an_engine_is_without_permission_for_amx(
    directory: Path, tmp_path: Path
) -> None:
    """Without it the first short prompt ended the worker with SIGILL."""
    engine = tmp_path / "engine.py"
    engine.write_text(ENGINE)
    (directory / "command.json").write_text(json.dumps({"argv": [sys.executable, str(engine)]}))

    done, trace = traced(tmp_path, str(directory / "launch.py"))

    assert done.returncode == 3, done.stderr
    assert sorted(done.stdout.split()) == ["helper", "server", "worker"]
    lines = trace.splitlines()
    launcher = lines[0].split()[0]
    # The server's execve is the first of its process; exec clears what was granted before.
    started = {line.split()[0] for line in lines if "execve(" in line and line.endswith("= 0")}
    asked = {line.split()[0] for line in lines if CALL in line}
    assert started - asked == {launcher}  # it computes nothing
    assert len(started) >= 4  # launcher, server, core, helper


def test_nothing_is_printed_and_nothing_fails(directory: Path) -> None:
    done = start(directory, "import sitecustomize")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@cases("a_start_without_what_it_needs_goes_on")
def test_a_start_without_what_it_needs_goes_on(directory: Path, broken: str) -> None:
    program = f"{broken}\nimport importlib, sitecustomize\nimportlib.reload(sitecustomize)"

    done = start(directory, program)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_x86
def test_other_machines_are_not_asked(directory: Path, tmp_path: Path) -> None:
    """The number of the call means another call there."""
    (tmp_path / "os_of_arm.py").write_text(
        "import os, sys\n"
        "os.uname = lambda: type('Machine', (), {'machine': 'aarch64'})\n"
        f"sys.path.insert(0, {str(directory)!r})\n"
        "sys.modules.pop('sitecustomize', None)\n"
        "import sitecustomize\n"
    )

    done, trace = traced(tmp_path, "-S", str(tmp_path / "os_of_arm.py"))

    assert done.returncode == 0, done.stderr
    assert CALL not in trace


def test_the_customization_of_the_base_still_runs(directory: Path, tmp_path: Path) -> None:
    """Instrumentation comes this way: ours stands first on the path and would hide it."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('instrumented')\nNAME = 'theirs'\n")
    both = os.pathsep.join((str(directory), str(other)))

    done = start(directory, "import sitecustomize; print(sitecustomize.NAME)", PYTHONPATH=both)

    assert (done.stdout, done.stderr) == ("instrumented\ntheirs\n", "")
