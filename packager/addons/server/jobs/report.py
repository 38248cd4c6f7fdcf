"""Reports of jobs, and JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from packager.addons.server.jobs.folders import result_file
from packager.addons.server.jobs.progress import Progress, read_progress
from packager.addons.server.jobs.values import ENDED, BackgroundJob
from packager.addons.server.jobs.waiting import QueuePlace
from packager.core.reports.report import (
    Pair,
    Pairs,
    Part,
    Report,
    Section,
    one_section,
    plain_table,
)
from packager.core.units import counted


def jobs_report(jobs: Sequence[BackgroundJob], now: datetime) -> Report:
    """Return a row for each job of a list."""
    rows = [
        (
            job.name,
            job.kind,
            job.status,
            stage_text(job),
            clock(_took_s(job, now)) if job.started else "-",
            f"{job.created:%Y-%m-%d %H:%M}",
        )
        for job in jobs
    ]
    header = ("name", "kind", "status", "stage", "took", "created")
    return one_section("Jobs", plain_table(header, rows))


def show_report(
    job: BackgroundJob,
    now: datetime,
    queue: QueuePlace | None = None,
    measured: tuple[Part, ...] = (),
) -> Report:
    """Describe one job in full; `queue` is its place in the queue."""
    took = f", {clock(_took_s(job, now))}" if job.started else ""
    starts = f"{job.attempt}, as its runner was killed" if job.attempt > 1 else ""
    facts = (
        Pair("job", f"{job.name}, {job.kind}"),
        Pair("status", f"{job.status}{took}"),
        Pair("reason", job.failure),
        Pair("waits", queue.text if queue is not None else ""),
        Pair("created", _time(job.created)),
        Pair("started", _time(job.started) if job.started else ""),
        Pair("ended", _time(job.ended) if job.ended else ""),
        Pair("starts", starts),
        *(Pair("tag", f"{key}={value}") for key, value in job.asked.tags.items()),
        Pair("folder", str(job.folder)),
    )
    rows = [
        (f"{number}", stage.name, _stage_state(job, number), shlex.join(stage.arguments))
        for number, stage in enumerate(job.asked.stages, start=1)
    ]
    stages = plain_table(("", "stage", "state", "command"), rows)
    before_after = Section(
        key="measured", title="Before and after", heading="before and after", parts=measured
    )
    return Report(
        kind="Job",
        title=job.name,
        sections=(
            Section(key="job", title="The job", parts=(Pairs(facts),)),
            Section(key="stages", title="Stages", parts=(stages,)),
            *_progress_sections(job, read_progress(job.folder)),
            *((before_after,) if measured else ()),
        ),
    )


def job_document(job: BackgroundJob) -> dict[str, Any]:
    """Return a job for programs."""
    return {
        "id": job.id,
        "kind": job.kind,
        "name": job.name,
        "status": job.status,
        "failure": job.failure or None,
        "created": _iso(job.created),
        "modified": _iso(job.modified),
        "started": _iso(job.started),
        "ended": _iso(job.ended),
        "stages": [
            {
                "name": stage.name,
                "state": _stage_state(job, number),
                "command": list(stage.arguments),
                "result": str(result_file(job.folder, number, stage.name))
                if number <= job.stage
                else None,
            }
            for number, stage in enumerate(job.asked.stages, start=1)
        ],
        "starts": job.attempt,
        "folder": str(job.folder),
        "log": str(job.log),
        "tags": dict(job.asked.tags),
        "limits": {"run_s": job.asked.limits.run_s, "wait_s": job.asked.limits.wait_s},
    }


def show_document(job: BackgroundJob, queue: QueuePlace | None = None) -> dict[str, Any]:
    """Return a job as JSON, with its request, place in the queue, and progress."""
    return {
        **job_document(job),
        "document": dict(job.asked.document),
        "queue": asdict(queue) if queue is not None else None,
        "progress": _progress_document(read_progress(job.folder)) if _is_under_way(job) else None,
    }


def stage_text(job: BackgroundJob) -> str:
    """Return where a job is: `2/3 build`; of one that has ended how many stages are complete."""
    stages = job.asked.stages
    if job.status in ("running", "stopping"):
        return f"{job.stage + 1}/{len(stages)} {stages[job.stage].name}"
    return f"{job.stage}/{len(stages)}"


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, `1:05`, with hours where there are any."""
    whole = int(max(0.0, seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def progress_text(progress: Progress) -> str:
    """Return how far the running stage is: `quantize awq, 40 %, about 1:20 left`."""
    step = progress.step
    parts = []
    if step is not None:
        parts.append(f"{step.step} {step.detail}".strip())
    if progress.share is not None:
        parts.append(f"{progress.share:.0%}".replace("%", " %"))
    if progress.left_s is not None:
        parts.append(f"about {clock(progress.left_s)} left")
    return ", ".join(parts)


def _progress_sections(job: BackgroundJob, progress: Progress) -> Iterator[Section]:
    if not _is_under_way(job) or not progress.steps:
        return
    done = [one for one in progress.steps if one.is_finished]
    rows = [(one.step, one.detail, clock(one.seconds)) for one in done]
    if rows:
        steps = plain_table(("step", "", "took"), rows)
        yield Section(key="steps", title="Steps that are done", parts=(steps,))
    if text := progress_text(progress):
        yield Section(key="now", title="Now", parts=(Pairs((Pair("now", text),)),))


def _progress_document(progress: Progress) -> dict[str, Any]:
    return {
        "stage": progress.stage + 1,
        "share": None if progress.share is None else round(progress.share, 4),
        "left_s": progress.left_s,
        "ran_s": progress.ran_s,
        "bytes": progress.done,
        "total": progress.total,
        "rate": progress.rate,
        "steps": [
            {
                "step": one.step,
                "detail": one.detail,
                "state": "finished" if one.is_finished else "running",
                "bytes": one.done,
                "total": one.total,
                "seconds": one.seconds,
                "eta_s": one.eta_s,
            }
            for one in progress.steps
        ],
    }


def ended_text(jobs: Sequence[BackgroundJob]) -> str:
    """Count jobs by how they ended: `3 jobs: 2 completed, 1 failed`."""
    counts = {status: sum(job.status == status for job in jobs) for status in sorted(ENDED)}
    summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return f"{counted(len(jobs), 'job')}: {summary}" if summary else counted(len(jobs), "job")


def _stage_state(job: BackgroundJob, number: int) -> str:
    if number <= job.stage:
        return "complete"
    if number == job.stage + 1 and job.status not in ("queued", "completed"):
        return "running" if _is_under_way(job) else job.status
    return "waiting"


def _is_under_way(job: BackgroundJob) -> bool:
    return job.status in ("running", "stopping")


def _took_s(job: BackgroundJob, now: datetime) -> float:
    if job.started is None:
        return 0.0
    return max(job.ended or now, job.started).timestamp() - job.started.timestamp()


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
