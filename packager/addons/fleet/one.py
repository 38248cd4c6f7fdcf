"""One job of a plan: the same code on a laptop, in a Ray task and in a pod.

Its results are in the artifact cache afterwards.  It may run twice, even at the same time,
and may be killed anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from artifact_cache.key import key_of
from packager.addons.fleet.planning import plan_job
from packager.core.errors import (
    OutputFailed,
    PackagerError,
    PlanRejected,
    StepFailed,
    Unavailable,
    UsageError,
)
from packager.core.recipe import Recipe, Step
from packager.core.warmup import FETCH, PERMANENT, RETRIABLE, Job, WarmPlan
from packager.optimize.steps.presence import Presence
from packager.optimize.steps.running import with_cache_healed
from packager.pipeline.running import run_recipe, with_tools_installed
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Planned


def no_such_job(index: int, count: int) -> UsageError:
    """Return an error: the plan has no job of this index."""
    return UsageError(
        f"the plan has no job {index}",
        hint=f"it has {count}, from 0 to {count - 1}" if count else "it has none at all",
        code="NoSuchJob",
    )


def stale_plan(job: Job, key: str) -> PackagerError:
    """Return an error: the same request has another key here than in the plan."""
    return PackagerError(
        f"job {job.index} is for {job.id[:12]}, and here its key is {key[:12]}",
        hint="make the plan again where the tools are installed, with the same version "
        "of packager; the model may have changed, too",
        code="StalePlan",
        exit_code=65,
    )


def not_kept(job: Job) -> OutputFailed:
    """Return an error: the work is done, but its result cannot be shared."""
    return OutputFailed(
        f"the result of {job.label!r} could not be put where others find it",
        hint="warnings above say why; `packager cache check` asks the stores",
        code="NotKept",
    )


def stopped(message: str, *, hint: str = "") -> PackagerError:
    """Return an error: the job got SIGTERM."""
    return PackagerError(message, hint=hint, code="Stopped", exit_code=RETRIABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """Result of a job, printed on stdout as JSON."""

    index: int
    id: str
    artifact: str = ""
    key: str = ""
    reused: bool = False  # it was there already
    seconds: float = 0.0  # of the tool


def run_one(plan: WarmPlan, index: int, services: BuildServices, presence: Presence) -> JobDone:
    """Run the steps of a job that are not cached, and the earlier steps they need."""
    if not 0 <= index < len(plan.jobs):
        raise no_such_job(index, len(plan.jobs))
    job = plan.jobs[index]
    if job.step == FETCH:
        services.pin_files(services.find_model(services.parse_model_reference(job.request.model)))
        return JobDone(index=index, id=job.id)
    if job.key and presence.has(job.artifact, job.key):
        return JobDone(index=index, id=job.id, artifact=job.artifact, key=job.key, reused=True)
    planned = with_tools_installed(plan_job(job.request, services), services)
    step = _step_of(planned, job)
    if job.key and step.key is not None:
        _check_key(job, step)
    with services.run_steps() as run_step:
        recipe = Recipe(_up_to(planned, step))
        done = with_cache_healed(services, lambda: run_recipe(recipe, planned.facts, run_step))
        outcome = done.outcomes[step.name]
    artifact = job.artifact or (step.key.kind if step.key else "")
    if outcome.key and not presence.ensure(artifact, outcome.key):
        raise not_kept(job)
    return JobDone(
        index=index,
        id=job.id,
        artifact=artifact,
        key=outcome.key,
        reused=outcome.reused,
        seconds=outcome.result.seconds,
    )


@contextmanager
def job_exit_codes() -> Iterator[None]:
    """Set the exit codes that schedulers use: permanent failure, or worth a retry."""
    try:
        yield
    except PackagerError as error:
        error.exit_code = exit_code_of(error)
        raise
    except KeyboardInterrupt as error:
        raise stopped("stopped; nothing is lost, another try goes on") from error


def exit_code_of(error: PackagerError) -> int:
    """Map a failure to 64 … 78; 75 means that another try may do."""
    if isinstance(error, StepFailed):
        return 65 if getattr(error, "permanent", False) else RETRIABLE
    if isinstance(error, Unavailable | OutputFailed):
        return RETRIABLE  # a service that is down, a disk that is full: elsewhere, or later
    if isinstance(error, UsageError):
        return 64
    if isinstance(error, PlanRejected):
        return 65
    return error.exit_code if error.exit_code in (*PERMANENT, RETRIABLE) else 70


def _step_of(planned: Planned, job: Job) -> Step:
    found = next((step for step in planned.recipe.steps if step.name == job.step), None)
    if found is None:
        raise stale_plan(job, "")
    return found


def _check_key(job: Job, step: Step) -> None:
    """Refuse to fill the cache with unplanned entries."""

    assert step.key is not None
    if (key := key_of(step.key)) != job.key:
        raise stale_plan(job, key)


def _up_to(planned: Planned, last: Step) -> tuple[Step, ...]:
    """Return the steps whose results the last one needs, in order."""
    needed = {last.name}
    kept: list[Step] = []
    for step in reversed(planned.recipe.steps):
        if step.name in needed:
            needed |= {given.result_of for given in step.inputs.values() if given.result_of}
            kept.append(step)
    return tuple(reversed(kept))
