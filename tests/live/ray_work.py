"""Commands whose work is done on the nodes of a Ray cluster, and the processes of both."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.commandline import Done, packager_in
from tests.support.doubles.ray_nodes import Nodes
from tests.support.doubles.s3 import Bucket
from tests.support.processes import parent_of
from tests.support.tool_steps import OUTSIDE


def environment_of(bucket: Bucket) -> dict[str, str]:
    """Return what nodes and commands are told: a bucket that all reach, and tools that copy."""
    return {
        **bucket.environment,
        "PYTHONPATH": os.pathsep.join((str(OUTSIDE), str(Path.cwd()))),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@dataclass
class Work:
    """Somebody's directory, and what their commands are told."""

    place: Path
    environment: dict[str, str]

    def run(self, *words: str) -> Done:
        return packager_in(self.place)(*words, env=self.environment)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command whose end is not waited for."""
        with (self.place / "out.txt").open("wb") as out, (self.place / "err.txt").open("ab") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "packager", *words],
                cwd=self.place,
                env={**os.environ, **self.environment},
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> str:
        return (self.place / "out.txt").read_text()

    @property
    def err(self) -> str:
        return (self.place / "err.txt").read_text()


def processes() -> list[tuple[int, str]]:
    """List the processes of this machine with their command lines."""
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append((int(place.name), words))
    return found


def naming(text: str) -> list[str]:
    """Return the command lines that have a text in them."""
    return [words for _, words in processes() if text in words]


def busy_workers(nodes: Nodes) -> list[int]:
    """Workers of this cluster that have a job now."""
    found = []
    for pid, words in processes():
        with suppress(OSError):  # it has ended meanwhile
            if words.startswith("ray::packager") and parent_of(pid) in nodes.raylets:
                found.append(pid)
    return found
