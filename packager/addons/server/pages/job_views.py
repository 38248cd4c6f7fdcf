"""Jobs as pages show them: labels, progress and commands, from the store's data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from packager.addons.server.jobs.progress import read_progress
from packager.addons.server.jobs.values import ENDED, JOB_FOLDER, BackgroundJob, JobStatus
from packager.core.command_line import command_text
from packager.core.errors import PackagerError
from packager.core.record import BuildRecord
from packager.core.reports.report import Pair
from packager.core.text import json_text
from packager.core.units import counted, decimal
from packager.images.target import ENGINE, REGISTRY, parse_target
from packager.pipeline.records import load_record

TONES: Mapping[JobStatus, str] = {
    "queued": "note",
    "running": "run",
    "stopping": "warning",
    "completed": "yes",
    "failed": "error",
    "stopped": "warning",
}
KINDS = {
    "optimization": "Optimization",
    "command": "Command",
    "benchmark": "Benchmark",
    "recommendation": "Recommendation",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of a job that changes while it runs; also sent to the pages' script."""

    kind: str
    name: str
    status: JobStatus
    tone: str
    words: str  # current work, or why it ended
    left: str  # "" where unknown
    share: float | None  # of what runs now, from 0 to 1
    stage: int  # how many stages are complete
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """A stage with the command that users can run by hand."""

    name: str
    state: str
    command: str


def job_path(job: BackgroundJob) -> str:
    """Return the address of a job's page, behind the root of all."""
    return f"jobs/{quote(job.kind, safe='')}/{quote(job.name, safe='')}"


def state_of(job: BackgroundJob) -> JobState:
    """Return a job's state, with the progress in its folder."""
    words, left, share = "", "", None
    if job.status == "running":
        progress = read_progress(job.folder)
        step = progress.step
        share = progress.share
        words = _stage_name(job)
        if step is not None:
            words = " · ".join(filter(None, (words, step.step, step.detail)))
        if progress.left_s is not None:
            left = f"{duration(progress.left_s)} left"
    elif job.status == "stopping":
        words = "ends its work"
    elif job.status == "queued":
        words = "waits for its turn" if not job.attempt else "will be started again"
    elif job.failure:
        words = job.failure
    return JobState(
        kind=job.kind,
        name=job.name,
        status=job.status,
        tone=TONES[job.status],
        words=words,
        left=left,
        share=None if share is None else round(share, 3),
        stage=job.stage,
        ended=job.status in ENDED,
    )


def row_of(job: BackgroundJob, now: datetime) -> dict[str, Any]:
    """Return a row of the list."""
    return {
        "path": job_path(job),
        "key": f"{job.kind}/{job.name}",
        "kind": KINDS.get(job.kind, job.kind),
        "name": job.name,
        "state": state_of(job),
        "created": minute(job.created),
        "took": _took(job, now),
        "of": list(_asked(job.asked.document)),
    }


def stages_of(job: BackgroundJob) -> Iterator[StageView]:
    """Yield the stages in order, as commands that one can copy."""
    for number, stage in enumerate(job.asked.stages):
        if number < job.stage:
            state = "complete"
        elif number > job.stage or job.status == "queued":
            state = "not begun" if job.status in ENDED else "to come"
        else:
            state = job.status
        arguments = [one.replace(JOB_FOLDER, str(job.folder)) for one in stage.arguments]
        yield StageView(
            name=stage.name, state=state, command=command_text(("packager", *arguments))
        )


def facts_of(job: BackgroundJob, now: datetime) -> Iterator[Pair]:
    """Yield names and values of a job's properties."""
    yield Pair("Kind", KINDS.get(job.kind, job.kind))
    yield Pair("Created", second(job.created))
    if job.started:
        yield Pair("Started", second(job.started))
    if job.ended:
        yield Pair("Ended", second(job.ended))
    if took := _took(job, now):
        yield Pair("Took" if job.ended else "Runs for", took)
    if job.attempt > 1:
        ended = counted(job.attempt - 1, "time")
        yield Pair("Starts", f"{job.attempt}: its runner was ended {ended}")
    limits = job.asked.limits
    if limits.run_s:
        yield Pair("Time limit", duration(limits.run_s))
    if limits.wait_s:
        yield Pair("Limit of waiting", duration(limits.wait_s))
    for name, value in sorted(job.asked.tags.items()):
        yield Pair(f"Tag {name}", value)
    yield Pair("Folder", str(job.folder))


def asked_of(job: BackgroundJob) -> str:
    """Return the document that requested the job, as JSON."""
    return json_text(dict(job.asked.document))


def record_of(job: BackgroundJob) -> BuildRecord | None:
    """Return the build record of the job; None where there is none, or none that can be read."""
    with suppress(PackagerError, OSError):
        if job.record.is_file():
            return load_record(job.record)
    return None


def result_of(record: BuildRecord) -> Iterator[Pair]:
    """Yield names and values of a build's result."""
    for image in record.images:
        yield Pair("Image", image.name)
    for tree in record.trees:
        yield Pair("Files", f"{tree.name}, {counted(tree.files, 'file')}, {decimal(tree.size)}")
    yield Pair("Digest", record.digest)
    yield Pair("Layers", f"{len(record.layers)}, {decimal(sum(one.size for one in record.layers))}")
    yield Pair("Served by", f"{record.engine} {record.engine_version}, TP {record.tp_degree}")
    for step in record.steps:
        how = "reused from the cache" if step.reused else f"ran {duration(step.seconds)}"
        yield Pair(step.name.capitalize(), f"{step.tool}: {how}")
    if record.draft:
        what = record.draft.name or record.draft.kind
        many = counted(record.draft.speculative_tokens, "token")
        yield Pair("Draft", f"{what}, {many} at a time")


def can_run(record: BuildRecord) -> bool:
    """Return whether Docker has the build's image, or the base that serves its files."""
    schemes = {parse_target(one.target).scheme for one in record.images}
    return not schemes or not schemes.isdisjoint({ENGINE, REGISTRY})


def duration(seconds: float) -> str:
    """Return a time for people: `12 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def minute(moment: datetime) -> str:
    """Return a time in UTC, to the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def second(moment: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _took(job: BackgroundJob, now: datetime) -> str:
    if job.started is None:
        return ""
    return duration(((job.ended or now) - job.started).total_seconds())


def _stage_name(job: BackgroundJob) -> str:
    stages = job.asked.stages
    if len(stages) < 2 or job.stage >= len(stages):
        return ""
    return f"{stages[job.stage].name} ({job.stage + 1} of {len(stages)})"


def _asked(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the model and the machine, where the document names them, or the command."""
    words = document.get("command")
    if isinstance(words, list | tuple):
        yield command_text(("packager", *map(str, words)))
    source = document.get("ModelSource")
    s3 = source.get("S3") if isinstance(source, Mapping) else None
    model = s3.get("S3Uri") if isinstance(s3, Mapping) else document.get("model")
    for found in (model, document.get("DeploymentInstanceType") or document.get("instance")):
        if isinstance(found, str) and found:
            yield found
