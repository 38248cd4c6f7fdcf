"""Jobs that nobody runs, in memory: what pages show of them can be made up."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from packager.addons.server.jobs.errors import JobExists, JobMissing, job_running
from packager.addons.server.jobs.values import (
    ENDED,
    BackgroundJob,
    JobPage,
    JobQuery,
    JobStatus,
    NewJob,
    Stage,
)

BEGAN = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)
STATUSES: tuple[JobStatus, ...] = ("completed", "running", "queued", "failed", "stopped")


class MadeUpJobs:
    """A store of jobs; `packager.addons.server.services.Jobs`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[tuple[str, str], BackgroundJob] = {}
        self.lock = threading.Lock()

    def create(self, new: NewJob) -> BackgroundJob:
        with self.lock:
            if (new.kind, new.name) in self.jobs:
                raise JobExists(new.kind, new.name)
            number = len(self.jobs)
            folder = self.folder / f"{number:032x}"
            folder.mkdir(parents=True)
            for name, data in new.files.items():
                (folder / name).write_bytes(data)
            when = BEGAN + timedelta(minutes=number)
            job = BackgroundJob(
                id=f"{number:032x}",
                asked=replace(new, files={}),
                status="queued",
                folder=folder,
                created=when,
                modified=when,
            )
            self.jobs[new.kind, new.name] = job
            return job

    def get(self, kind: str, name: str) -> BackgroundJob:
        try:
            return self.jobs[kind, name]
        except KeyError:
            raise JobMissing(kind, name) from None

    def list(self, query: JobQuery) -> JobPage:
        found = [
            job
            for job in self.jobs.values()
            if query.kind in (None, job.kind)
            and query.name_contains.lower() in job.name.lower()
            and (not query.statuses or job.status in query.statuses)
        ]
        found.sort(key=lambda job: getattr(job, query.sort_by), reverse=query.descending)
        start = int(query.after or 0)
        shown = tuple(found[start : start + query.most])
        more = start + query.most < len(found)
        return JobPage(shown, str(start + query.most) if more else "")

    def stop(self, kind: str, name: str) -> BackgroundJob:
        job = self.get(kind, name)
        return job if job.status in ENDED else self.change(job, status="stopping")

    def delete(self, kind: str, name: str) -> None:
        if self.get(kind, name).status not in ENDED:
            raise job_running(kind, name)
        del self.jobs[kind, name]

    def change(self, job: BackgroundJob, **changes: Any) -> BackgroundJob:
        """Let a job be in another state."""
        self.jobs[job.kind, job.name] = replace(job, **changes)
        return self.jobs[job.kind, job.name]


def new_job(name: str, **changes: Any) -> NewJob:
    """Return a job of the two stages that most have."""
    given: dict[str, Any] = {
        "kind": "optimization",
        "name": name,
        "document": {
            "ModelSource": {"S3": {"S3Uri": "s3://models/llama/"}},
            "DeploymentInstanceType": "ml.g5.xlarge",
        },
        "stages": (
            Stage("train", ("draft", "train", "--model", "s3://models/llama/")),
            Stage("build", ("build", "--request", "{job}/request.json")),
        ),
    }
    return NewJob(**(given | changes))


def fifty_jobs(folder: Path) -> MadeUpJobs:
    """Return fifty jobs of every status, with logs."""
    jobs = MadeUpJobs(folder)
    for number in range(50):
        job = jobs.create(new_job(f"llama-{number:02}"))
        status = STATUSES[number % len(STATUSES)]
        changes: dict[str, Any] = {"status": status, "stage": 2 if status == "completed" else 0}
        if status != "queued":
            changes |= {"started": job.created, "attempt": 1}
            job.log.write_text("train: began\ntrain: read 12 texts\n", encoding="utf-8")
        if status in ENDED:
            changes["ended"] = job.created + timedelta(seconds=95)
        if status == "failed":
            changes["failure"] = "no space left on '/scratch'"
        if status == "running":
            (job.folder / "progress.json").write_text(PROGRESS, encoding="utf-8")
        jobs.change(job, **changes)
    return jobs


PROGRESS = (
    '{"stage": 0, "steps": [{"step": "train", "detail": "speculators", "done": 53, '
    '"total": 100, "seconds": 61.0, "eta_s": 50.0}]}'
)
