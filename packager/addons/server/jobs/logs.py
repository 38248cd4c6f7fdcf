"""Logs of jobs as they are read: line by line, while the job may still run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from packager.addons.server.jobs.output import Tail
from packager.addons.server.jobs.values import ENDED, BackgroundJob

LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a job's log."""

    time: str  # UTC, ISO 8601
    stage: str  # "job": the runner's own lines
    text: str


def log_lines(
    job: BackgroundJob,
    now: Callable[[], BackgroundJob],
    *,
    follow: bool = False,
    tail: int | None = None,
) -> Iterator[LogLine]:
    """Yield the lines of a job's log, the last `tail` of them; with `follow` until the job ends.

    `now` returns the job's current state.
    """
    log = Tail(job.log, 0)
    lines: Iterator[str] = log.lines()
    yield from map(_parse, lines if tail is None else deque(lines, maxlen=tail))
    while follow:
        has_ended = now().status in ENDED  # read first: its last output is then read below
        yield from map(_parse, log.lines(last=has_ended))
        if has_ended:
            return
        time.sleep(LOOK_S)


def _parse(line: str) -> LogLine:
    moment, _, rest = line.partition(" ")
    stage, _, text = rest.partition(" ")
    return LogLine(moment, stage, text)
