"""Programs beside the live tests, run by a tool's Python."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packager.core.share import share_dir

TOOLS = share_dir("containers") / "tools"
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
LOOK_S = 0.1


def run_program(python: Path, program: str, *arguments: str, tools: tuple[str, ...] = ()) -> str:
    """Run a program of `tests/live` among the modules of tools; return what it printed.

    It has one thread and no GPUs.
    """
    return _printed(python, tools, str(Path(__file__).with_name(program)), *arguments)


@contextmanager
def started_program(
    python: Path, program: str, *arguments: str, place: Path
) -> Iterator[Iterator[dict[str, Any]]]:
    """Start a program as `run_program` does; yield the documents that it prints, as they come.

    What it prints lies in `place`; it is ended with the context.
    """
    path, errors = place / "printed", place / "errors"
    words = (str(python), str(Path(__file__).with_name(program)), *arguments)
    with path.open("wb") as output, errors.open("wb") as told:
        env = {**os.environ, **QUIET, "PYTHONPATH": _path_of(())}
        process = subprocess.Popen(words, env=env, stdout=output, stderr=told)
    try:
        yield _documents_of(process, path, errors)
    finally:
        process.kill()
        process.wait()


def _documents_of(
    process: subprocess.Popen[bytes], path: Path, errors: Path
) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as printed:
        line, is_over = "", False
        while not is_over:
            is_over = process.poll() is not None  # what it printed before is read once more
            while line := line + printed.readline():
                if not line.endswith("\n"):
                    break
                yield from documents_in(line)
                line = ""
            time.sleep(0 if is_over else LOOK_S)
    told = errors.read_text(errors="replace")[-4000:]
    raise AssertionError(f"the program ended with {process.returncode}: {told}")


def told_by(python: Path, program: str, *tools: str) -> Any:
    """Run a text of Python among the modules of tools; return the document that it printed last."""
    with TemporaryDirectory() as place:
        script = Path(place, "program.py")
        script.write_text(program)
        return json.loads(_printed(python, tools, str(script)).splitlines()[-1])


def _printed(python: Path, tools: tuple[str, ...], *words: str) -> str:
    return printed_by(python, *words, env={**os.environ, **QUIET}, PYTHONPATH=_path_of(tools))


def _path_of(tools: tuple[str, ...]) -> str:
    return ":".join(str(TOOLS / tool) for tool in (*tools, "common"))


def printed_by(*command: str | Path, env: Mapping[str, str] = os.environ, **variables: str) -> str:
    """Run a command, which must succeed, with more variables; return what it printed."""
    done = subprocess.run(
        command, env={**env, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def documents_in(printed: str) -> list[dict[str, Any]]:
    """Return the JSON documents among printed lines; libraries print others."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
