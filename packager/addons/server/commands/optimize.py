"""`packager optimize`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from packager.addons.deploy.sagemaker.shapes import read_input, skeleton
from packager.addons.server.commands.job_options import job_options, job_settings
from packager.addons.server.commands.jobs_notes import WaitNotes
from packager.addons.server.jobs.folders import is_watched
from packager.addons.server.jobs.logs import log_lines
from packager.addons.server.jobs.scheduler import Scheduler
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import JOB_FOLDER, NOTES_FILE, BackgroundJob, SecretJob
from packager.addons.server.jobs.waiting import check_completed, place_in_queue
from packager.addons.server.sagemaker.answers import describe, job_arn
from packager.addons.server.sagemaker.optimization import OPERATION, make_job
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.sources import ModelLookup
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_json, print_line, print_lines
from packager.cli.wiring.configs import read_config_soon
from packager.cli.wiring.settings import jobs_dir
from packager.core.documents import NotStrict, parse_object, shorten
from packager.core.errors import UsageError
from packager.core.files.user_files import read_user_file
from packager.pipeline.records import load_record

MAX_BYTES = 1024 * 1024  # of a document; the service takes less
STDIN = "-"
_SKELETON = "`packager optimize --generate-cli-skeleton` prints an empty one"


@click.command()
@click.option(
    "--cli-input-json",
    "document",
    metavar="FILE",
    help="Body of CreateOptimizationJob: a file, file://FILE, - for stdin, or the JSON itself.",
)
@click.option(
    "--create-model",
    "model_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Body of CreateModel that ModelSource.SageMakerModel names. Repeatable.",
)
@job_options
@click.option(
    "--detach", is_flag=True, help="Start the job, print its ARN, and do not wait for its end."
)
@click.option(
    "--dry-run", is_flag=True, help="Print the commands that the job would run, and its request."
)
@click.option(
    "--generate-cli-skeleton",
    "wants_skeleton",
    is_flag=True,
    help="Print an empty document with every member.",
)
@click.option("--quiet", "-q", is_flag=True, help="Do not show the job's log.")
@format_option
def optimize(
    document: str | None,
    model_files: tuple[Path, ...],
    detach: bool,
    dry_run: bool,
    wants_skeleton: bool,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Run an optimization job of the SageMaker API, without a server.

    The document is the one that `aws sagemaker create-optimization-job` takes.
    The job goes on when this command is interrupted; `packager jobs` shows,
    follows and stops it. Printed is what DescribeOptimizationJob answers.

    \b
    Status: 0 the job is complete; 2 the document is refused; 6 the job has
    failed; 130 it was stopped.

    \b
    packager optimize --cli-input-json job.json --instance local --images docker:jobs
    """
    if wants_skeleton:
        print_json(skeleton(OPERATION))
        return
    settings = job_settings(given)
    if document is None:
        raise UsageError("--cli-input-json is missing", hint=_SKELETON)
    job = make_job(
        _read(document),
        settings,
        find_model=_models(model_files),
        read_config=read_config_soon,
    )
    if dry_run:
        _print_commands(job, as_json=output_format == "json")
        return
    store = JobStore(jobs_dir(os.environ))
    made = store.create(job)
    if detach:
        _start(store, made, settings)
        return
    ended = _follow(store, made, quiet=quiet)
    record = load_record(ended.record) if ended.status == "completed" else None
    print_json(describe(ended, settings, record))
    check_completed(ended)


def _start(store: JobStore, job: BackgroundJob, settings: JobSettings) -> None:
    Scheduler(store).tick()
    print_json({"OptimizationJobArn": job_arn(job.name, settings)})
    place = place_in_queue(store, job)
    if place is not None:
        note(f"{job.name}: waits, {place.text}")
        if not is_watched(store.root):
            note("nobody starts it then: `packager jobs run` does")


def _follow(store: JobStore, job: BackgroundJob, *, quiet: bool) -> BackgroundJob:
    """Look after the queue until a job has ended; return it as it ended."""
    notes = WaitNotes(store, shows_stages=False, works=True)
    scheduler = Scheduler(store, on_error=notes.fail)
    scheduler.start()
    try:
        for line in log_lines(job, lambda: notes.look(store.get_by_id(job.id)), follow=True):
            if not quiet:
                note(f"{line.stage:<5} {line.text}")
    except KeyboardInterrupt:
        note(f"the job goes on: `packager jobs stop {job.name}` ends it")
        raise
    finally:
        scheduler.close()
    return store.get_by_id(job.id)


def _print_commands(job: SecretJob, *, as_json: bool) -> None:
    files = {name: data.decode() for name, data in job.files.items()}
    notes = files.pop(NOTES_FILE, "").splitlines()
    for text in notes:
        note(text)
    if as_json:
        stages = [{"name": one.name, "arguments": list(one.arguments)} for one in job.stages]
        requests = {name: parse_object(text.encode()) for name, text in files.items()}
        print_json({"name": job.name, "stages": stages, "files": requests, "notes": notes})
        return
    for stage in job.stages:
        print_line(f"packager {' '.join(map(_quoted, stage.arguments))}")
    for name, text in files.items():
        print_line()
        print_line(f"# {JOB_FOLDER}/{name}")
        print_lines(text.splitlines())


def _quoted(word: str) -> str:
    """Quote a word for a shell, except the placeholder of the job's folder."""
    return word if shlex.quote(bare := word.replace(JOB_FOLDER, "")) == bare else shlex.quote(word)


def _models(files: tuple[Path, ...]) -> ModelLookup:
    bodies: dict[str, Mapping[str, Any]] = {}
    for file in files:
        hint = "name a file with a body of CreateModel"
        data = read_user_file(file, what="the model", hint=hint, max_bytes=MAX_BYTES)
        body = read_input("CreateModel", _parsed(data, str(file)))
        bodies[body["ModelName"]] = body
    return bodies.get


def _read(text: str) -> dict[str, Any]:
    """Read a document as the AWS CLI does."""
    if text == STDIN:
        return _parsed(sys.stdin.buffer.read(MAX_BYTES + 1), "")
    if text.lstrip().startswith("{"):
        return _parsed(text.encode(), "")
    path = Path(text.removeprefix("file://"))
    return _parsed(
        read_user_file(path, what="the document", hint=_SKELETON, max_bytes=MAX_BYTES), str(path)
    )


def _parsed(data: bytes, file: str) -> dict[str, Any]:
    try:
        return parse_object(data, max_bytes=MAX_BYTES)
    except NotStrict as error:
        what = shorten(file, 200) if file else "the document"
        raise UsageError(f"{what} cannot be read: {error}", hint=_SKELETON) from error
