"""Progress of a job, from its stage's events, in one small file.

The file is a convenience for whoever looks: it is written at most once a second, is not forced to
the disk, and a job whose file is gone or damaged runs on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packager.addons.server.jobs.folders import PROGRESS_FILE
from packager.core.documents import NotStrict, parse_object
from packager.core.files.atomic import read_regular

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST_STEPS = 200
_MAX_BYTES = 256 * 1024
_MOST_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """A step of a stage: it runs, or has ended."""

    step: str  # such as "quantize", "layers"
    detail: str = ""
    is_finished: bool = False
    done: int = 0  # bytes
    total: int | None = None  # None: not counted
    seconds: float = 0.0
    eta_s: float | None = None  # None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the stage that runs is."""

    stage: int = 0  # its position, from 0
    ran_s: float = 0.0  # the whole job so far, in all attempts
    starts: int = 0  # of the stage's command, since a step was last finished for the first time
    most_finished: int = 0  # steps, by any start of the stage's command
    read: int = 0  # bytes of the command's output that are in the log
    steps: tuple[StepProgress, ...] = ()  # in the order they began
    done: int = 0  # bytes of an image's layers
    total: int | None = None
    rate: float | None = None  # bytes a second
    eta_s: float | None = None  # of the layers

    @property
    def step(self) -> StepProgress | None:
        """Return the step that runs; of several the one that began first."""
        return next((one for one in self.steps if not one.is_finished), None)

    @property
    def left_s(self) -> float | None:
        """Return the seconds left of the current step; None where unknown."""
        step = self.step
        return step.eta_s if step is not None and step.eta_s is not None else self.eta_s

    @property
    def share(self) -> float | None:
        """Return the finished share of the current step, from 0 to 1; None where unknown."""
        step = self.step
        if step is not None and step.total:
            return min(1.0, step.done / step.total)
        if step is not None and step.eta_s is not None and step.seconds + step.eta_s > 0:
            return step.seconds / (step.seconds + step.eta_s)
        return min(1.0, self.done / self.total) if self.total else None


def take_event(progress: Progress, event: Mapping[str, Any]) -> Progress:
    """Return the progress after an event of `--progress json`; ignore unknown events."""
    match event:
        case {"event": "step", "step": str(step), "state": "started" | "running" | "finished"}:
            return replace(progress, steps=_with_step(progress.steps, _text(step), event))
        case {"event": "image", "total": int(total)}:
            return replace(progress, done=0, total=total, rate=None, eta_s=None)
        case {"event": "total", "bytes": int(done), "total": int(total)}:
            return replace(
                progress,
                done=done,
                total=total,
                rate=_number(event.get("rate")),
                eta_s=_number(event.get("eta_s")),
            )
    return progress


def count_finished(progress: Progress) -> Progress:
    """Reset the count of starts once the stage's command got further than in earlier ones."""
    finished = sum(one.is_finished for one in progress.steps)
    if finished <= progress.most_finished:
        return progress
    return replace(progress, most_finished=finished, starts=min(progress.starts, 1))


def read_progress(folder: Path) -> Progress:
    """Return the progress of the folder's job; no progress where the file is unreadable."""
    with suppress(OSError, NotStrict, ValueError):
        data = read_regular(folder / PROGRESS_FILE, _MAX_BYTES)
        parse_object(data, max_bytes=_MAX_BYTES)
        return _reader().validate_json(data)
    return Progress()


def write_progress(folder: Path, progress: Progress) -> None:
    """Replace the file; where the disk does not let us, the old one stays."""
    place = folder / PROGRESS_FILE
    temporary = place.with_name(f".{PROGRESS_FILE}.tmp")  # one runner at a time writes
    with suppress(OSError):
        data = _reader().dump_json(progress)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(data)
        temporary.replace(place)


def _with_step(
    steps: tuple[StepProgress, ...], name: str, event: Mapping[str, Any]
) -> tuple[StepProgress, ...]:
    total = event.get("total")
    done = event.get("bytes")
    now = StepProgress(
        step=name,
        detail=_text(event.get("detail")),
        is_finished=event["state"] == "finished",
        done=done if isinstance(done, int) else 0,
        total=total if isinstance(total, int) else None,
        seconds=_number(event.get("seconds")) or 0.0,
        eta_s=_number(event.get("eta_s")),
    )
    for number in range(len(steps) - 1, -1, -1):
        if steps[number].step == name and not steps[number].is_finished:
            return (*steps[:number], now, *steps[number + 1 :])
    return (*steps, now)[-MOST_STEPS:]


def _text(value: object) -> str:
    return value[:_MOST_TEXT] if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


@cache
def _reader() -> TypeAdapter[Progress]:
    from pydantic import TypeAdapter

    return TypeAdapter(Progress)
