"""`packager jobs`; commands that change jobs are in the module beside."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import Any, get_args

import click

from packager.addons.server.commands.jobs_changes import (
    add,
    delete,
    find_job,
    kind_option,
    run,
    stop,
)
from packager.addons.server.commands.jobs_measure import measure
from packager.addons.server.commands.jobs_notes import WaitNotes
from packager.addons.server.commands.jobs_register import register_model
from packager.addons.server.commands.jobs_render import render
from packager.addons.server.jobs.logs import log_lines
from packager.addons.server.jobs.report import job_document, jobs_report, show_document, show_report
from packager.addons.server.jobs.store import JobStore, utc_now
from packager.addons.server.jobs.values import BackgroundJob, JobQuery, JobStatus
from packager.addons.server.jobs.waiting import check_all_completed, place_in_queue, wait_for_all
from packager.addons.server.sagemaker.measured import (
    MeasuredOutcome,
    recorded,
    state_document,
    state_parts,
)
from packager.cli.field_options import TimeRange
from packager.cli.lazy import ShortNames
from packager.cli.shared_options import format_option, format_option_of
from packager.cli.terminal import (
    note,
    print_json,
    print_json_text,
    print_line,
    print_lines,
    print_result,
)
from packager.cli.wiring.settings import jobs_dir
from packager.core.errors import PackagerError
from packager.pipeline.records import load_record


@click.group(cls=ShortNames)
def jobs() -> None:
    """List, follow, stop and run jobs: commands of packager in the background.

    Jobs survive the end of what made them. A server of the API runs them, and
    `packager jobs run` does without one.

    \b
    Status: 0 done; 2 wrong arguments; 6 a job has failed; 65 the database of jobs
    is damaged; 66 no such job; 69 busy, or not ended in time; 74 the disk is full;
    130 a job was stopped.
    """


@click.command("ls")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(get_args(JobStatus)),
    help="List only jobs with this status; may be repeated.",
)
@kind_option
@click.option("--name", "part", metavar="TEXT", default="", help="Only names with this in them.")
@click.option(
    "--sort",
    type=click.Choice(("created", "name", "status")),
    default="created",
    show_default=True,
    help="Sort order; of `created` the newest first.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=100,
    show_default=True,
    help="Most jobs.",
)
@click.option("--after", metavar="TOKEN", default="", help="Go on after a page that was listed.")
@format_option
def ls(
    statuses: tuple[JobStatus, ...],
    kind: Any,
    part: str,
    sort: Any,
    limit: int,
    after: str,
    output_format: str,
) -> None:
    """List jobs.

    \b
    packager jobs ls --status running --status queued
    """
    query = JobQuery(
        kind=kind,
        name_contains=part,
        statuses=frozenset(statuses),
        sort_by=sort,
        descending=sort == "created",
        most=limit,
        after=after,
    )
    page = _store().list(query)
    document = {"jobs": [job_document(job) for job in page.jobs], "next": page.token or None}
    if page.jobs or output_format == "json":
        print_result(output_format, document, jobs_report(page.jobs, utc_now()))
    else:
        note("there are no such jobs" if query != JobQuery() else "there are no jobs")
    if page.token and output_format != "json":
        note(f"there are more: `packager jobs ls --after {page.token}`, with the same options")


@click.command()
@click.argument("name")
@kind_option
@format_option_of("json", "html")
def show(name: str, kind: str | None, output_format: str) -> None:
    """Show a job in full: its stages, how far it is, why it failed.

    \b
    packager jobs show night-build
    """
    store = _store()
    job = find_job(store, name, kind)
    queue = place_in_queue(store, job) if job.status == "queued" else None
    measured = _measured(job)
    measurement = {"measured": state_document(measured)} if measured is not None else {}
    parts = state_parts(measured) if measured is not None else ()
    document = {**show_document(job, queue), **measurement}
    print_result(output_format, document, show_report(job, utc_now(), queue, parts))


@click.command()
@click.argument("name")
@kind_option
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the job ends.")
@click.option(
    "--tail", type=click.IntRange(0), metavar="N", help="Begin with the last N lines; all of them."
)
@format_option
def logs(name: str, kind: str | None, follow: bool, tail: int | None, output_format: str) -> None:
    """Print the log of a job, also while it runs.

    Each line begins with its time and the stage. With --format json each is an
    object.

    \b
    packager jobs logs night-build --follow
    """
    store = _store()
    job = find_job(store, name, kind)
    for line in log_lines(job, lambda: store.get(job.kind, job.name), follow=follow, tail=tail):
        if output_format == "json":
            print_json_text(json.dumps(asdict(line), ensure_ascii=False))
        else:
            print_line(f"{line.time} {line.stage:<8} {line.text}")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@kind_option
@click.option(
    "--timeout",
    "timeout_s",
    type=TimeRange(0, 1e7),
    metavar="TIME",
    help="Wait for so long at most, for all of them; by default as long as it takes.",
)
@format_option
def wait(
    names: tuple[str, ...], kind: str | None, timeout_s: float | None, output_format: str
) -> None:
    """Wait until jobs have ended, and print how.

    \b
    Status: 0 all completed; 6 one has failed; 69 not ended in time; 130 one was
    stopped, and none has failed.

    \b
    packager jobs wait night-build --timeout 3600
    """
    store = _store()
    notes = WaitNotes(store)
    found = [find_job(store, name, kind) for name in dict.fromkeys(names)]
    ended = wait_for_all(store, found, timeout_s, notes.look)
    if output_format == "json":
        print_json([job_document(job) for job in ended])
    else:
        print_lines(f"{job.name} {job.status}" for job in ended)
    check_all_completed(ended)


def _measured(job: BackgroundJob) -> MeasuredOutcome | None:
    """Return the measurements at an optimization job's end; None where there are none."""
    with suppress(PackagerError, OSError):
        if job.record.is_file():
            record = load_record(job.record)
            return recorded(record.bench, record.quality)
    return None


def _store() -> JobStore:
    return JobStore(jobs_dir(os.environ))


for command in (ls, show, logs, wait, stop, delete, add, run, render, register_model, measure):
    jobs.add_command(command)
