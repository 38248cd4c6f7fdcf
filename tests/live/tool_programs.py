"""Programs beside the live tests, run by a tool's Python."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any


def run_program(python: Path, program: str, *arguments: str) -> str:
    """Run a program of `tests/live` on one thread, without GPUs; return what it printed."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [str(python), str(Path(__file__).with_name(program)), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def documents_in(printed: str) -> list[dict[str, Any]]:
    """Return the JSON documents among printed lines; libraries print others."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
