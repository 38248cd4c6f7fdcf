"""Running the real command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "examples" / "tiny-llama"


@dataclass(frozen=True)
class Done:
    """A finished command."""

    status: int
    out: str
    err: str


Packager = Callable[..., Done]


def packager_in(directory: Path, *, timeout_s: float = 500) -> Packager:
    """Give a function that runs `packager` with arguments from `directory`."""

    def run(*arguments: str, cwd: Path = directory, env: Mapping[str, str] | None = None) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "packager", *arguments],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run
