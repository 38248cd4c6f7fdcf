"""`packager jobs add`, `run`, `stop` and `delete`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import get_args

import click

from packager.addons.server.jobs.errors import JobMissing, job_ambiguous, job_running
from packager.addons.server.jobs.folders import is_watched, watching
from packager.addons.server.jobs.report import ended_text, job_document
from packager.addons.server.jobs.scheduler import AT_ONCE, LOOK_S, Scheduler
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import (
    ENDED,
    BackgroundJob,
    JobKind,
    JobLimits,
    NewJob,
    Stage,
)
from packager.addons.server.jobs.waiting import check_all_completed
from packager.cli.field_options import RenamedOption, TimeRange
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_json, print_lines, print_value
from packager.cli.wiring.settings import jobs_dir
from packager.core.errors import UsageError
from packager.core.suggestions import guess

kind_option = click.option(
    "--kind", type=click.Choice(get_args(JobKind)), help="Only jobs of this kind."
)


def find_job(store: JobStore, name: str, kind: str | None) -> BackgroundJob:
    """Return the job of a name; raises `JobMissing`, and `UsageError` for one of several."""
    if kind is not None:
        return store.get(kind, name)
    found = store.find(name)
    if not found:
        raise JobMissing("", name)
    if len(found) > 1:
        raise job_ambiguous(name, tuple(job.kind for job in found))
    return found[0]


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...")
@click.option(
    "--run-limit",
    "run_s",
    type=TimeRange(0, min_open=True),
    metavar="TIME",
    help="Stop the job when it has run for so long, such as 30m or 2h.",
)
@click.option(
    "--wait-limit",
    "wait_s",
    type=TimeRange(0, min_open=True),
    metavar="TIME",
    help="Stop the job when it has waited in the queue for so long.",
)
@format_option
def add(
    name: str,
    words: tuple[str, ...],
    run_s: float | None,
    wait_s: float | None,
    output_format: str,
) -> None:
    """Add a command of packager to the queue.

    It runs in this directory, when its turn comes. `{job}` in an argument stands
    for the folder of the job.

    \b
    packager jobs add night-build -- build --model examples/tiny-llama \\
      --instance local --base scratch --output oci:out
    """
    from packager.cli.app import Commands

    known = Commands().table
    if words[0] not in known:
        raise UsageError(
            f"there is no command {words[0]!r}",
            hint=guess(words[0], known, "`packager --help` lists them all"),
        )
    store = _store()
    job = store.create(
        NewJob(
            kind="command",
            name=name,
            document={"command": list(words)},
            stages=(Stage(words[0], words, directory=str(Path.cwd())),),
            limits=JobLimits(run_s=_whole(run_s), wait_s=_whole(wait_s)),
        )
    )
    if output_format == "json":
        print_json(job_document(job))
    else:
        print_value(job.name)
    if not is_watched(store.root):
        note("nobody runs jobs here: `packager jobs run` does")


@click.command()
@click.option(
    "--jobs",
    "at_once",
    cls=RenamedOption,
    earlier="--at-once",
    type=click.IntRange(1, 100),
    default=AT_ONCE,
    show_default=True,
    metavar="N",
    help="Run so many jobs at a time; a step may use all of a machine.",
)
@format_option
def run(at_once: int, output_format: str) -> None:
    """Run the jobs of the queue, one after another, until it is empty.

    Jobs that a killed process left are taken up again. Ctrl-C ends this command
    alone: a job that runs goes on, and `packager jobs stop` ends it.

    \b
    Status: 0 all completed; 6 one has failed; 130 one was stopped, and none has
    failed.

    \b
    packager jobs run
    """
    store = _store()
    scheduler = Scheduler(store, at_once=at_once)
    seen: dict[str, BackgroundJob] = {}
    store.sweep()
    with watching(store.root):
        try:
            _tell_all(seen, store)  # also of those that have waited for too long
            while scheduler.tick():
                _tell_all(seen, store)
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            if any(job.status == "running" for job in store.unfinished()):
                note("jobs that run go on: `packager jobs ls --status running` lists them")
            raise
    now = [_now(store, job) for job in seen.values()]
    ended = [job for job in now if job is not None]
    for job in ended:
        _tell(seen, job)
    if output_format == "json":
        print_json([job_document(job) for job in ended])
    elif ended:
        print_lines(f"{job.name} {job.status}" for job in ended)
    note(ended_text(ended) if ended else "the queue is empty")
    check_all_completed(ended)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@kind_option
@format_option
def stop(names: tuple[str, ...], kind: str | None, output_format: str) -> None:
    """Stop jobs: one in the queue at once, one that runs as soon as its command has ended.

    The command gets half a minute to clean up. What is complete stays in the
    caches. `packager jobs wait` waits for the end.

    \b
    packager jobs stop night-build
    """
    store = _store()
    found = [find_job(store, name, kind) for name in dict.fromkeys(names)]
    stopped = [store.stop(job.kind, job.name) for job in found]
    scheduler = Scheduler(store)
    for job in stopped:
        if job.status == "stopping":
            scheduler.look_after(job)  # its runner may have been killed
    _print(stopped, output_format)


@click.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@kind_option
@format_option
def delete(names: tuple[str, ...], kind: str | None, output_format: str) -> None:
    """Delete jobs that have ended, with their folders and logs.

    Images and results in caches stay.

    \b
    packager jobs rm night-build
    """
    store = _store()
    found = [find_job(store, name, kind) for name in dict.fromkeys(names)]
    for job in found:
        if job.status not in ENDED:  # checked before the first is deleted
            raise job_running(job.kind, job.name)
    for job in found:
        store.delete(job.kind, job.name)
    if output_format == "json":
        print_json([job.name for job in found])
    else:
        print_lines(job.name for job in found)


def _print(found: list[BackgroundJob], output_format: str) -> None:
    if output_format == "json":
        print_json([job_document(job) for job in found])
    else:
        print_lines(f"{job.name} {job.status}" for job in found)


def _tell_all(seen: dict[str, BackgroundJob], store: JobStore) -> None:
    for job in store.unfinished():
        _tell(seen, job)


def _tell(seen: dict[str, BackgroundJob], job: BackgroundJob) -> None:
    """Print a job's changes since it was last read."""
    before = seen.get(job.id)
    seen[job.id] = job
    if job.status == "queued" or (
        before is not None and (before.status, before.stage) == (job.status, job.stage)
    ):
        return
    if job.status in ENDED:
        note(f"{job.name}: {job.status}{f', {job.failure}' if job.failure else ''}")
    else:
        note(f"{job.name}: {job.status}, {job.asked.stages[job.stage].name}")


def _now(store: JobStore, job: BackgroundJob) -> BackgroundJob | None:
    try:
        return store.get_by_id(job.id)
    except JobMissing:  # deleted meanwhile
        return None


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds))


def _store() -> JobStore:
    return JobStore(jobs_dir(os.environ))
