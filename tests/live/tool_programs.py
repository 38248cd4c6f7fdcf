"""Programs beside the live tests, run by a tool's Python."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packager.core.share import share_dir

TOOLS = share_dir("containers") / "tools"


def run_program(python: Path, program: str, *arguments: str, tools: tuple[str, ...] = ()) -> str:
    """Run a program of `tests/live` among the modules of tools; return what it printed.

    It has one thread and no GPUs.
    """
    return _printed(python, tools, str(Path(__file__).with_name(program)), *arguments)


def told_by(python: Path, program: str, *tools: str) -> Any:
    """Run a text of Python among the modules of tools; return the document that it printed last."""
    with TemporaryDirectory() as place:
        script = Path(place, "program.py")
        script.write_text(program)
        return json.loads(_printed(python, tools, str(script)).splitlines()[-1])


def _printed(python: Path, tools: tuple[str, ...], *words: str) -> str:
    path = ":".join(str(TOOLS / tool) for tool in (*tools, "common"))
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    return printed_by(python, *words, **quiet, PYTHONPATH=path)


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
