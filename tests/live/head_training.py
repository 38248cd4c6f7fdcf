"""Runs of the workers that train draft heads, in their real environments, and what they leave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packager.cli.plugins.contexts import SourceContext
from packager.cli.plugins.tables import SOURCES
from packager.core.model import ModelFiles
from packager.models.reference import parse_model_reference
from tests.live.processors import caps
from tests.live.tool_programs import TOOLS
from tests.support.places import ROOT

SAMPLES = ROOT / "packager" / "catalog" / "data" / "samples.jsonl"
Event = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """One step's directory: what is asked, what was kept, what came of it."""

    root: Path
    python: Path
    tool: str = "draft-heads"

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
            "tool": self.tool,
            "step": "train",
            "gpus": 0,
            "output": str(self.output),
            "work": str(self.work),
            "result": str(result),
            "inputs": {role: str(place) for role, place in inputs.items()},
            "parameters": parameters,
        }
        (self.root / "spec.json").write_text(json.dumps(spec))
        with (self.root / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(self.python), str(TOOLS / self.tool / "worker.py"), "../spec.json"],
                cwd=self.work,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                if kill_at and kill_at(json.loads(line)):
                    os.killpg(process.pid, signal.SIGKILL)
                    process.stdout.read()  # ends when nobody can write any more
                    return {}
        told: dict[str, Any] = json.loads(result.read_text())
        return told

    def finish(self, parameters: dict[str, Any], inputs: dict[str, Path]) -> list[str]:
        """Run the worker, which must succeed; give its notes."""
        notes: list[str] = []
        told = self.run(parameters, inputs, kill_at=during("never", 0, notes))
        assert "error" not in told, told
        return notes

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            **caps(),
            "PYTHONPATH": str(TOOLS / "common"),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }


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
        return bool(event.get("message", "").startswith(message) and event.get("done", 0) >= done)

    return reached


def spoil(path: Path, at: int | None = None) -> None:
    """Change a byte: in the middle, if no place is told."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def check_foretells(
    report: dict[str, Any],
    method: str,
    counts: tuple[int, int, int],
    *,
    loss: float,
    before: float,
    after: float,
) -> None:
    """Hold a training's figures against each other: texts, held-out ones and steps are `counts`."""
    assert report["method"] == method
    assert (report["texts"], report["held_out_texts"], report["steps"]) == counts
    assert report["loss"] < loss * report["loss_before"], report
    assert report["expected_length_before"] < before
    assert report["expected_length"] > after, report
    assert sorted(report["acceptance"], reverse=True) == report["acceptance"]
    assert report["expected_length"] == pytest.approx(1 + sum(report["acceptance"]), abs=1e-4)


def check_killed_again(
    run: Training,
    whole: Training,
    asked: dict[str, Any],
    inputs: dict[str, Path],
    kills: Iterable[tuple[str, int]],
    *,
    last: int,
) -> None:
    """Kill a training at each of the events, and once more with a spoilt file; it ends the same."""
    asked, notes = {**asked, "save_every_s": 0}, list[str]()
    for message, done in kills:
        assert run.run(asked, inputs, kill_at=during(message, done)) == {}
    assert [*run.work.glob("checkpoints/*.pt")], "a state was saved"
    spoil(next(run.work.glob("*/training/*.safetensors")))
    assert run.run(asked, inputs, kill_at=during("training", last, notes)) == {}
    run.finish(asked, inputs)
    assert any("continues at step" in note for note in notes)
    assert run.files() == whole.files()
