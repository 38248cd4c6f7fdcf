"""The program before an image's own entrypoint: files first, then that very process."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import run_python
from tests.support.workers import SERVING

PROGRAM = SERVING / "vllm" / "with_compiled.py"
COPY = Path("/tmp/packager-compiled")
TELL = "import os, sys; print(os.getpid(), sys.argv[1:])"


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """Lay out what an image brings; what an earlier container left is removed."""
    place = tmp_path / "compiled"
    (place / "vllm").mkdir(parents=True)
    (place / "vllm/graph").write_bytes(b"graph")
    manifest = {
        "schema": 1,
        "for": {"machine": platform.machine()},
        "files": {"vllm/graph": {"size": 5, "sha256": hashlib.sha256(b"graph").hexdigest()}},
    }
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_python(PROGRAM, *words, env=env, status=None)


def test_the_entrypoint_gets_its_arguments_and_the_files(compiled: Path) -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    try:
        done = run(sys.executable, "-c", TELL, "serve", PACKAGER_COMPILED=str(compiled))
        found = (COPY / "vllm/graph").read_bytes()
    finally:
        shutil.rmtree(COPY, ignore_errors=True)

    assert done.stdout.endswith("['serve']\n")
    assert "packager: 1 files compiled ahead of time are in place" in done.stderr
    assert found == b"graph"


def test_switched_off_nothing_is_copied_and_the_entrypoint_runs(compiled: Path) -> None:
    done = run(sys.executable, "-c", TELL, "serve", PACKAGER_COMPILED="off")

    assert (done.returncode, done.stderr) == (0, "")
    assert compiled.is_dir()


def test_the_entrypoint_is_the_same_process_and_gets_its_signals(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, str(PROGRAM), sys.executable, "-c", f"{TELL}; sys.stdout.flush(); "
         "import time; time.sleep(60)"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert started.stdout is not None
    told = started.stdout.readline()
    started.send_signal(signal.SIGTERM)

    assert int(told.split()[0]) == started.pid
    assert started.wait(10) == -signal.SIGTERM


def test_an_entrypoint_that_is_not_there_is_told() -> None:
    done = run("/usr/local/bin/no-entrypoint.sh", "serve")

    assert done.returncode == 127
    assert "error: cannot run '/usr/local/bin/no-entrypoint.sh'" in done.stderr
