"""What an interrupted run leaves for the next: whole files only, and only of the same job.

A file gets its name when all of it is on the disk.  The name holds the digest of
its bytes: one that was spoilt since is not taken.  Its bytes hold what it is of: one of
another job or place is not taken either.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from figures import Tally
from lasting import finish
from packager_worker import Spec
from rows import Row
from safetensors import safe_open
from safetensors.torch import save_file

SUFFIX = ".pt"
MARKS = 8


def job_of(spec: Spec, *rows: Sequence[Row]) -> str:
    """Identify what is asked for: parameters, tokens, and the files of model and head by size.

    On its own machine an executor names the work directory for the digests of all that.
    """
    asked = [spec.work.resolve().name, dict(spec.parameters)]
    whole = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    for role, place in sorted(spec.inputs.items()):
        files = sorted(path for path in place.rglob("*") if path.is_file())
        listed = [(str(path.relative_to(place)), path.stat().st_size) for path in files]
        whole.update(json.dumps([role, listed]).encode())
    whole.update(json.dumps(rows).encode())
    return whole.hexdigest()


class Checkpoints:
    """The last state of a job, below a directory of its own."""

    def __init__(self, place: Path, job: str) -> None:
        self._place = place
        self._job = job
        place.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Write the state after `step`; the one before goes when this one stands."""
        earlier = list(self._place.iterdir())
        draft = self._place / "part"
        with draft.open("wb") as file:
            hashing = _Hashing(file)
            torch.save({"job": self._job, "step": step, "state": dict(state)}, hashing)
        finish(draft, self._place / f"{step:09}-{hashing.digest}{SUFFIX}")
        for path in earlier:
            path.unlink(missing_ok=True)

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """Give the last step and the state after it, if this job left one that is whole."""
        for path in sorted(self._place.glob(f"*{SUFFIX}"), reverse=True):
            if path.stem.rpartition("-")[2] != digest_of(path):
                continue
            kept = torch.load(path, weights_only=False, map_location="cpu")
            if kept["job"] == self._job:
                return kept["step"], kept["state"]
        return None


class Best:
    """The weights whose proposals are accepted longest on held-out texts, and after which step.

    Loss does not tell: accepted length may fall while it falls.  It decides between equals.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._state = dict(state or {"step": 0, "score": None, "weights": {}})

    @property
    def step(self) -> int:
        """How many steps were made before it was measured."""
        return int(self._state["step"])

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The weights by their names."""
        return dict(self._state["weights"])

    def offer(self, step: int, tally: Tally, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Keep these weights if they are better than what is kept."""
        score = [tally.expected_length, -tally.loss]
        if math.isfinite(tally.loss) and (self._state["score"] or score) <= score:
            copies = {name: value.detach().cpu().clone() for name, value in weights}
            self._state = {"step": step, "score": score, "weights": copies}

    def state(self) -> dict[str, Any]:
        """Give all of it."""
        return self._state


def measured_after(steps: int) -> frozenset[int]:
    """Name the steps after which a training is measured: some, in equal distances, and the last."""
    return frozenset(math.ceil(steps * mark / MARKS) for mark in range(1, MARKS + 1))


class Pace:
    """Says when to save: every few seconds, but a twentieth of the time is all that it may take."""

    def __init__(self, every_s: float = 5.0) -> None:
        self._every_s = every_s
        self._next = time.monotonic() + every_s

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._next

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure how long it takes."""
        started = time.monotonic()
        yield
        now = time.monotonic()
        self._next = now + max(self._every_s, 19 * (now - started))


def keep_tensors(place: Path, number: int, tensors: Mapping[str, torch.Tensor]) -> Path:
    """Write the tensors of the `number`-th piece of some work."""
    draft = place / "part"
    save_file(dict(tensors), draft, metadata=_piece(place, number))
    file = place / f"{number:06}-{digest_of(draft)}.safetensors"
    finish(draft, file)
    return file


def kept_tensors(place: Path, number: int) -> Path | None:
    """Find what an earlier run wrote of this piece, unless it was spoilt since."""
    for file in place.glob(f"{number:06}-*.safetensors"):
        if file.stem.rpartition("-")[2] == digest_of(file):
            with safe_open(file, framework="pt") as opened:
                if opened.metadata() == _piece(place, number):
                    return file
        file.unlink()
    return None


def _piece(place: Path, number: int) -> dict[str, str]:
    """Say what a file is of; the directory above the place is named for the job."""
    return {"piece": f"{place.parent.name}/{place.name}/{number}"}


def digest_of(path: Path) -> str:
    """Digest a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Hashing:
    """A file that digests what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._whole = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._whole.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    @property
    def digest(self) -> str:
        return self._whole.hexdigest()
