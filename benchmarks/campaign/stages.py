"""Stages of a campaign: each a process with a time limit, whose result is kept in a file.

    <directory>/settings.json      what the campaign was begun with
    <directory>/stages/NAME.json   of a stage that has ended: its state, seconds and figures
    <directory>/logs/NAME.log      what its commands wrote on stderr

A stage that is done is not run again.  One that failed, was killed or ran past its limit is.
Standard library only: this runs before any package is unpacked.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DONE, FAILED, TIMED_OUT, NOT_RUN = "done", "failed", "timed out", "not run"
LONGEST_S = 600.0  # of any stage, its end included
GRACE_S = 20.0  # between SIGTERM and SIGKILL


class Failure(Exception):
    """A stage, or the whole campaign, cannot go on; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A piece of work that ends within its limit, and the stages whose results it needs."""

    name: str
    does: str
    work: Callable[[], dict[str, Any]]
    after: tuple[str, ...] = ()  # without all of these it is not run


class Journal:
    """What is known of the stages that have ended."""

    def __init__(self, directory: Path) -> None:
        self._place = directory / "stages"
        self._logs = directory / "logs"

    def read(self, name: str) -> dict[str, Any]:
        """Return what a stage left; empty where it has not ended or its file is damaged."""
        try:
            found = json.loads((self._place / f"{name}.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, name: str, document: dict[str, Any]) -> None:
        """Replace what is known of a stage, whole or not at all."""
        self._place.mkdir(parents=True, exist_ok=True)
        part = self._place / f"{name}.part"
        part.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        part.replace(self._place / f"{name}.json")

    def is_done(self, name: str) -> bool:
        """Check whether a stage ended well."""
        return self.read(name).get("state") == DONE

    def log(self, name: str) -> Path:
        """Return where the log of a stage is."""
        self._logs.mkdir(parents=True, exist_ok=True)
        return self._logs / f"{name}.log"


def run_stages(
    stages: Iterable[Stage],
    journal: Journal,
    command: Sequence[str],
    limit_s: float,
    tell: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Run what is not done, in order; `command` and a stage's name make the process of it."""
    results: dict[str, dict[str, Any]] = {}
    for stage in stages:
        if journal.is_done(stage.name):
            tell(f"{stage.name}: done before")
        elif missing := [name for name in stage.after if not journal.is_done(name)]:
            journal.write(stage.name, {"state": NOT_RUN, "why": f"needs {', '.join(missing)}"})
            tell(f"{stage.name}: not run, since it needs {', '.join(missing)}")
        else:
            tell(f"{stage.name}: {stage.does}")
            found = run_limited([*command, stage.name], journal, stage.name, limit_s)
            why = f": {found['why']}" if found.get("why") else ""
            tell(f"{stage.name}: {found['state']} in {found['seconds']:.1f} s{why}")
        results[stage.name] = journal.read(stage.name)
    return results


def run_limited(
    command: Sequence[str], journal: Journal, name: str, limit_s: float
) -> dict[str, Any]:
    """Run the process of a stage, and end it and all that it started when its time is over.

    It gets SIGTERM first, soon enough for SIGKILL to come within the limit.
    """
    grace_s = min(GRACE_S, limit_s / 4)
    started = time.monotonic()
    journal.write(name, {})
    with journal.log(name).open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            timed_out = not _ended(process, limit_s - grace_s)
            if timed_out:
                _signal(process, signal.SIGTERM)
                _ended(process, grace_s)
        finally:  # also what a stage left running when it ended, or when we are interrupted
            _signal(process, signal.SIGKILL)
            process.wait()
    seconds = round(time.monotonic() - started, 3)
    found = journal.read(name)
    if timed_out:
        found = {"state": TIMED_OUT, "why": f"it had not ended after {limit_s - grace_s:.0f} s"}
    elif found.get("state") not in (DONE, FAILED):
        found = {"state": FAILED, "why": f"its process ended with status {process.returncode}"}
    found["seconds"] = seconds
    journal.write(name, found)
    return found


def work_on(stage: Stage, journal: Journal) -> int:
    """Do the work of a stage in this process, and write its result."""
    try:
        figures = stage.work()
    except Failure as failure:
        journal.write(stage.name, {"state": FAILED, "why": str(failure), "hint": failure.hint})
        print(f"error: {failure}", file=sys.stderr)
        return 1
    journal.write(stage.name, {"state": DONE, "figures": figures})
    return 0


def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to all processes of a stage; a leader that has ended may leave others."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
