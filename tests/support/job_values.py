"""Jobs for tests: small ones, and commands that stand for packager's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from packager.addons.server.jobs.values import NewJob, Stage

OUTSIDE = Path(__file__).parent / "outside" / "job_command"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def new_job(name: str = "a", **changes: Any) -> NewJob:
    given: dict[str, Any] = {
        "kind": "optimization",
        "document": {"ModelSource": {"S3": {"S3Uri": "s3://models/llama"}}},
        "stages": (Stage("build", ("build", "--request", "{job}/request.json")),),
    }
    return NewJob(name=name, **{**given, **changes})


def stage(name: str, *arguments: str) -> Stage:
    """A stage whose command is `tests/support/outside/job_command`, not packager."""
    return Stage(name, arguments, {"PYTHONPATH": str(OUTSIDE)})


class Clock:
    """A clock that goes on by a second each time it is asked, unless it is set."""

    def __init__(self, now: datetime = NOON, step_s: float = 1.0) -> None:
        self.now = now
        self.step = timedelta(seconds=step_s)

    def __call__(self) -> datetime:
        self.now += self.step
        return self.now
