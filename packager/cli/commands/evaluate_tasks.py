"""`packager evaluate --tasks`: the same questions to two servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from packager.cli.run.images import started_image
from packager.cli.serving.opening import MeasuredServer, Opener
from packager.cli.serving.tasks import AT_ONCE, compare_on_tasks
from packager.core.errors import QualityRejected
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.reports.report import Lines, Report, one_section
from packager.core.tasks import TaskOptions, TaskReport, TaskShare
from packager.core.text import json_text
from packager.core.units import percent
from packager.images.docker_engine import connect_engine
from packager.models.samples.tasks import load_tasks

READY_S = 600.0  # until an image must answer


def compare_servers(
    base: str,
    candidate: str,
    asked: TaskOptions,
    *,
    count: int | None,
    gpus: bool,
    output: Path | None,
    on_progress: Callable[[str], None],
) -> tuple[dict[str, Any], Report]:
    """Ask both servers the questions; return the document and the report."""
    tasks = load_tasks(asked.tasks, count)
    connect = cache(connect_engine)
    opener = Opener(
        connect=connect,
        deadline_s=READY_S,
        connections=AT_ONCE,
        on_progress=on_progress,
        gpus=gpus,
        purpose="evaluate",
    )
    first, second = (
        MeasuredServer(name=started_image(one, "evaluate", connect), env={})
        for one in (base, candidate)
    )
    found = compare_on_tasks(first, second, tasks, asked, opener, on_progress)
    document = found.model_dump(mode="json")
    if output is not None:
        with explain_disk_errors(output):
            write_atomically(output, (json_text(document) + "\n").encode())
    return document, one_section("Tasks", Lines(tuple(task_lines(found)), ""))


def demand_recovery(document: dict[str, Any]) -> None:
    """Raise `QualityRejected` where the candidate is surely below what was asked for."""
    found = TaskReport.model_validate(document)
    if found.verdict == "missed" and found.min_recovery is not None:
        raise QualityRejected(
            f"the candidate keeps {_share(found.recovery)} of the base's right answers; "
            f"{_share(found.min_recovery)} are asked for",
            hint="choose another scheme, keep more layers unquantized, or lower --min-recovery",
            figures=document,
        )


def task_lines(found: TaskReport) -> Iterator[str]:
    """Return the figures as lines."""
    for name, one in (("base", found.base), ("candidate", found.candidate)):
        yield f"{name:<9} {_line(one, found.questions)}"
    yield (
        f"changed   {found.lost} right answers lost, {found.gained} gained, {found.changed} other "
        f"texts; p {found.p_value:.2g} (McNemar)"
    )
    if found.recovery is not None and found.recovery_ci95 is not None:
        low, high = found.recovery_ci95
        yield f"recovery  {_share(found.recovery)} ({_share(low)} to {_share(high)})"
    if found.verdict:
        needed = found.questions_to_decide
        more = f"; some {needed:,} questions would decide it" if needed else ""
        yield f"verdict   {_share(found.min_recovery)}: {found.verdict}{more}"


def _line(one: TaskShare, questions: int) -> str:
    low, high = one.share_ci95
    parts = [f"{one.right} of {questions} right, {_share(one.share)} "
             f"({_share(low)} to {_share(high)})"]  # fmt: skip
    parts += [f"{one.cut} cut"] if one.cut else []
    parts += [f"{one.failed} without an answer"] if one.failed else []
    return f"{', '.join(parts)}: {one.server}"


def _share(value: float | None) -> str:
    return "none" if value is None else percent(value, 1)
