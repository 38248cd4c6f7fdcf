"""Runs of the worker that trains draft heads, in its real environment, and what they leave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.model import ModelFiles
from packager.models.reference import parse_model_reference
from packager.plugins.contexts import SourceContext
from packager.plugins.tables import SOURCES
from packager.share import share_dir
from tests.support.places import ROOT

TOOLS = share_dir("containers") / "tools"
SAMPLES = ROOT / "packager" / "catalog" / "data" / "samples.jsonl"
LIBRARIES = ("torch", "transformers", "speculators.models.eagle3", "speculators.train.data")
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(TOOLS / "common"),
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
Event = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """One step's directory: what is asked, what was kept, what came of it."""

    root: Path
    python: Path

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.output / "training.json").read_text())
        return report

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.output.iterdir())}

    def run(
        self,
        parameters: dict[str, Any],
        inputs: dict[str, Path],
        *,
        kill_at: Callable[[Event], bool] | None = None,
    ) -> dict[str, Any]:
        """Run the worker, or kill it at an event; give its result, empty when it was killed.

        As packager does, a run finds the work directory of the one before and an empty output.
        """
        shutil.rmtree(self.output, ignore_errors=True)
        self.output.mkdir(parents=True)
        self.work.mkdir(exist_ok=True)
        result = self.root / "result.json"
        result.unlink(missing_ok=True)
        spec = {
            "protocol": 1,
            "tool": "draft-heads",
            "step": "train",
            "inputs": {role: str(place) for role, place in inputs.items()},
            "parameters": parameters,
            "output": str(self.output),
            "work": str(self.work),
            "result": str(result),
            "gpus": 0,
        }
        (self.root / "spec.json").write_text(json.dumps(spec))
        command = [str(TOOLS / "draft-heads/worker.py"), "../spec.json"]
        env = {**ENVIRONMENT, "HOME": str(self.root)}
        with worker(self.python, command, self.work, env, self.root / "log") as (pid, lines):
            for line in lines:
                if kill_at and kill_at(json.loads(line)):
                    os.kill(pid, signal.SIGKILL)
                    return {}
        told: dict[str, Any] = json.loads(result.read_text())
        return told


@contextmanager
def worker(
    python: Path, command: list[str], place: Path, env: dict[str, str], log: Path
) -> Iterator[tuple[int, Iterator[str]]]:
    """Start a worker where the libraries are loaded; give its pid and the lines it prints."""
    request = json.dumps({"command": command, "cwd": str(place), "env": env})
    reading, writing = os.pipe()
    with log.open("ab") as stderr, os.fdopen(reading) as lines:
        connection = preloaded(python)
        socket.send_fds(connection, [request.encode()], [writing, stderr.fileno()])
        os.close(writing)
        pid = int(connection.recv(64))
        try:
            yield pid, iter(lines)
        except BaseException:  # it runs still
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise


@cache
def preloaded(python: Path) -> socket.socket:
    """Start the process that workers are forked from; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = str(Path(__file__).with_name("preloaded.py"))
    with theirs:
        subprocess.Popen(
            [str(python), script, str(theirs.fileno()), *LIBRARIES],
            env=ENVIRONMENT,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
        )
    return ours


def shipped_samples(place: Path, train: int, held_out: int) -> Path:
    """Write some of the shipped conversations as a step's samples."""
    rows = map(json.loads, SAMPLES.read_text().splitlines())
    lines = [json.dumps(row) + "\n" for row in rows if "messages" in row]
    place.mkdir(parents=True)
    (place / "train.jsonl").write_text("".join(lines[held_out : held_out + train]))
    (place / "held-out.jsonl").write_text("".join(lines[:held_out]))
    return place


def read_files(place: Path, *, is_draft: bool) -> ModelFiles:
    """Read a model or a head as packager does: configuration and headers."""
    source = SOURCES.find("local").make(SourceContext(headers_only=True, is_draft=is_draft))
    found: ModelFiles = source.facts(parse_model_reference(str(place)))
    return found


def during(message: str, done: int, notes: list[str] | None = None) -> Callable[[Event], bool]:
    """Tell the event from which on so much of something is done; collect notes before it."""

    def reached(event: Event) -> bool:
        if notes is not None and event["event"] == "note":
            notes.append(event["message"])
        said = event.get("message", "")
        return bool(said.startswith(message) and event.get("done", 0) >= done)

    return reached


def spoil(path: Path, at: int | None = None) -> None:
    """Change a byte: in the middle, if no place is told."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)
