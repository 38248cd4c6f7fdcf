"""Notes on stderr about jobs that are waited for, each once."""

from __future__ import annotations

from packager.addons.server.jobs.folders import is_watched
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import BackgroundJob
from packager.addons.server.jobs.waiting import place_in_queue
from packager.cli.terminal import note, warn
from packager.core.errors import PackagerError


class WaitNotes:
    """Prints why a job waits: other jobs, no runner, or the stage that runs."""

    def __init__(self, store: JobStore, *, shows_stages: bool = True, works: bool = False) -> None:
        self._store = store
        self._shows_stages = shows_stages
        self._works = works  # this process works off the queue
        self._said: set[tuple[str, str]] = set()

    def look(self, job: BackgroundJob) -> BackgroundJob:
        """Print a job's state if it is new; return the job."""
        if job.status == "queued":
            if not self._works and not is_watched(self._store.root):
                self._say(job, "unwatched", "nobody runs jobs here: `packager jobs run` does")
            place = place_in_queue(self._store, job)
            if place is not None and place.is_behind:
                self._say(job, place.text, f"{job.name}: waits, {place.text}")
        elif job.status in ("running", "stopping") and self._shows_stages:
            text = f"{job.name}: {job.asked.stages[job.stage].name}"
            self._say(job, text, text)
        return job

    def fail(self, error: PackagerError) -> None:
        """Warn of what keeps the queue from being worked off, such as a full disk."""
        if ("", error.message) not in self._said:
            self._said.add(("", error.message))
            warn(f"jobs: {error.message}; it is tried again")

    def _say(self, job: BackgroundJob, what: str, line: str) -> None:
        if (job.id, what) not in self._said:
            self._said.add((job.id, what))
            note(line)
