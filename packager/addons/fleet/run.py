"""Runs a plan on a fleet: cached results are skipped, temporary failures are tried again.

All state is the plan and the cache.  Another run of the same plan, after any end of this process,
does only what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from packager.core.documents import NotStrict, parse_object
from packager.core.documents import field as field_of
from packager.core.errors import UsageError
from packager.core.events import EventSink, StagesEvent, StepEvent, ignore
from packager.core.warmup import (
    FETCH,
    PERMANENT,
    Ended,
    Fleet,
    Job,
    Node,
    Outcome,
    State,
    WarmPlan,
    fits,
    pause_before,
)
from packager.optimize.steps.presence import Presence

POLL_S = 0.5
ASKING_AT_ONCE = 16


def warmup_needs_shared_cache(count: int) -> UsageError:
    """Return an error: results of several machines have to meet somewhere."""
    return UsageError(
        f"{count} machines would build, and no shared store takes their results",
        hint="name one that may be written: --cache-shared s3://BUCKET/PREFIX",
        code="WarmupNeedsSharedCache",
    )


@dataclass(slots=True)
class _Progress:
    """A job on the way."""

    tries: int = 0
    lost: int = 0
    began: float = 0.0
    not_before: float = 0.0


def run_plan(
    plan: WarmPlan,
    fleet: Fleet,
    presence: Presence,
    *,
    retries: int = 3,
    on_event: EventSink = ignore,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Outcome, ...]:
    """Run every job that can run; return the outcome of each, in the plan's order."""
    nodes = fleet.nodes()
    if len(nodes) > 1 and not fleet.is_shared and not presence.is_shared:
        raise warmup_needs_shared_cache(len(nodes))
    run = _Run(
        plan, fleet, presence, retries=retries, on_event=on_event, clock=clock, started=clock()
    )
    on_event(StagesEvent(stages=tuple(job.label for job in plan.jobs)))
    run.mark_cached_jobs_done()
    run.refuse_infeasible(nodes)
    while run.is_unfinished:
        run.submit_ready()
        for ended in fleet.poll(POLL_S):
            run.take(ended)
    return tuple(run.outcomes[job.index] for job in plan.jobs)


@dataclass(slots=True)
class _Run:
    """The state of a run: every job is waiting, on its way, or has an outcome."""

    plan: WarmPlan
    fleet: Fleet
    presence: Presence
    retries: int = field(kw_only=True)
    on_event: EventSink = field(kw_only=True)
    clock: Callable[[], float] = field(kw_only=True)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    started: float = 0.0
    waiting: dict[int, _Progress] = field(default_factory=dict)
    running: dict[int, _Progress] = field(default_factory=dict)

    @property
    def is_unfinished(self) -> bool:
        return len(self.outcomes) < len(self.plan.jobs)

    def mark_cached_jobs_done(self) -> None:
        """Mark jobs as cached whose artifact exists, and downloads that no job needs any more."""
        keyed = [job for job in self.plan.jobs if job.key]
        with ThreadPoolExecutor(ASKING_AT_ONCE) as asking:
            there = asking.map(lambda job: self.presence.has(job.artifact, job.key), keyed)
            for job, is_there in zip(keyed, there, strict=True):
                if is_there:
                    self._settle(job, "there")
        wanted = {
            needed
            for job in self.plan.jobs
            if job.index not in self.outcomes
            for needed in job.needs
        }
        for job in self.plan.jobs:
            if job.index in self.outcomes:
                continue
            if job.step == FETCH and job.index not in wanted:
                self._settle(job, "there")
            else:
                self.waiting[job.index] = _Progress()

    def refuse_infeasible(self, nodes: Sequence[Node]) -> None:
        """Fail jobs that no machine can run: schedulers would let them wait for ever."""
        for job in self._jobs(self.waiting):
            if not any(fits(job.resources, node) for node in nodes):
                self._give_up(job, "infeasible", reason=_lack(job, nodes))

    def submit_ready(self) -> None:
        """Submit the jobs whose needs are met, the longest first."""
        now = self.clock()
        ready = [
            job
            for job in self._jobs(self.waiting)
            if self.waiting[job.index].not_before <= now
            and all(needed in self.outcomes for needed in job.needs)
        ]
        for job in sorted(ready, key=lambda job: (-(job.seconds or 0), job.index)):
            progress = self.waiting.pop(job.index)
            progress.tries += 1
            if progress.tries == 1:
                progress.began = now
                self.on_event(StepEvent(step=job.label, state="started", detail=job.tool))
            self.running[job.index] = progress
            self.fleet.submit(job)

    def take(self, ended: Ended) -> None:
        """Finish a job after an attempt, or retry it."""
        job = self.plan.jobs[ended.index]
        progress = self.running.pop(ended.index)
        reason = self._failure(job, ended)
        if not reason:
            self._settle(job, "built", progress, work_s=ended.seconds)
            return
        if ended.lost:
            progress.lost += 1
        if ended.code in PERMANENT or progress.tries > self.retries:
            self._give_up(job, "failed", progress, code=ended.code, reason=reason)
            return
        pause = 0.0 if ended.lost else pause_before(progress.tries)
        progress.not_before = self.clock() + pause
        self.waiting[job.index] = progress
        self.on_event(StepEvent(step=job.label, state="running", detail=f"again: {reason}"))

    def _failure(self, job: Job, ended: Ended) -> str:
        """Return why an attempt failed; status 0 counts only when the artifact is in the cache."""
        if ended.lost:
            return ended.lost
        if ended.code:
            return _last_words(ended.log) or f"it ended with status {ended.code}"
        if job.step == FETCH:
            return ""
        try:
            said = parse_object(ended.said.encode())
            artifact, key = field_of(said, "artifact", str), field_of(said, "key", str)
        except (NotStrict, UnicodeEncodeError):
            return "it exited with status 0 but printed no result"
        if job.key and key != job.key:
            return f"it made {key[:12]} instead"
        if key and not self.presence.has(artifact, key):
            return "its result is not in the cache"
        return ""

    def _give_up(
        self,
        job: Job,
        state: State,
        progress: _Progress | None = None,
        *,
        code: int = 0,
        reason: str = "",
    ) -> None:
        """Finish a job that will not run, and all jobs that need it."""
        self.waiting.pop(job.index, None)
        self._settle(job, state, progress, code=code, reason=reason)
        for other in self.plan.jobs:
            if job.index in other.needs and other.index not in self.outcomes:
                self._give_up(other, "skipped", reason=f"it needs {job.label!r}")

    def _settle(
        self,
        job: Job,
        state: State,
        progress: _Progress | None = None,
        *,
        code: int = 0,
        reason: str = "",
        work_s: float = 0.0,
    ) -> None:
        now = self.clock()
        tries = progress or _Progress(began=now)
        self.outcomes[job.index] = Outcome(
            job=job,
            state=state,
            tries=tries.tries,
            lost=tries.lost,
            code=code,
            reason=reason,
            began_s=round(tries.began - self.started, 3),
            ended_s=round(now - self.started, 3),
            work_s=round(work_s, 3),
        )
        self.on_event(
            StepEvent(
                step=job.label,
                state="finished",
                detail=f"{state}{f': {reason}' if reason else ''}, "
                f"{len(self.outcomes)} of {len(self.plan.jobs)}",
            )
        )

    def _jobs(self, indices: Iterable[int]) -> Iterator[Job]:
        return iter([self.plan.jobs[index] for index in indices])


def _lack(job: Job, nodes: Sequence[Node]) -> str:
    needs = job.resources
    wanted = f"{needs.devices} × {needs.device or needs.accelerator}" if needs.devices else ""
    parts = [
        wanted,
        f"{needs.cpus} processors",
        f"{needs.memory_bytes / 2**30:.1f} GiB of memory" if needs.memory_bytes else "",
    ]
    return f"none of {len(nodes)} machines has {', '.join(part for part in parts if part)}"


def _last_words(log: str) -> str:
    """Return the line with packager's error message, else the last line."""
    lines = [line for line in log.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("error: ")), "")
    return said.removeprefix("error: ") or (lines[-1] if lines else "")
