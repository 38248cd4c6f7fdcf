"""`packager jobs render`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from packager.addons.fleet.cluster import Cluster
from packager.addons.server.commands.jobs_changes import find_job, kind_option
from packager.addons.server.jobs.folders import given_files
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import JOB_FOLDER, BackgroundJob
from packager.cli.field_options import options_from, take_fields
from packager.cli.terminal import print_text, warn
from packager.cli.wiring.settings import jobs_dir
from packager.core.errors import UsageError
from packager.core.units import parse_size

_OF_PLANS = ("plan_url", "parallelism")


def _size(context: click.Context, parameter: click.Parameter, text: str | None) -> int:  # noqa: ARG001
    try:
        return int(str(parse_size(text or "0")))
    except ValueError as error:
        what, _, how = str(error).partition("; ")
        raise UsageError(what, hint=how) from error


@click.command()
@click.argument("name")
@kind_option
@options_from(Cluster, leave_out=_OF_PLANS)
@click.option(
    "--cpus", type=click.IntRange(0, 1024), metavar="N", default=0, help="Processors of the pod."
)
@click.option("--memory", callback=_size, metavar="SIZE", help="Memory of the pod, such as 64GiB.")
@click.option(
    "--gpus", type=click.IntRange(0, 64), metavar="N", default=0, help="NVIDIA GPUs of the pod."
)
def render(name: str, kind: str | None, cpus: int, memory: int, gpus: int, **given: Any) -> None:
    """Print a Kubernetes Job that does what a job would, for `kubectl apply -f -`.

    One pod runs the stages in order. It reaches what its references name: buckets,
    hubs, registries, a shared cache. The job itself stays as it is.

    \b
    packager jobs render nightly --image registry/packager:1 --secret aws --gpus 1
    """
    from packager.addons.server.jobs.kubernetes import PodSize, render_job

    job = find_job(JobStore(jobs_dir(os.environ)), name, kind)
    cluster = take_fields(Cluster, given)
    for warning in _warnings(job, cluster):
        warn(warning)
    size = PodSize(cpus=cpus, memory_bytes=memory, gpus=gpus)
    print_text(render_job(job, given_files(job.folder), cluster, size))


def _warnings(job: BackgroundJob, cluster: Cluster) -> list[str]:
    """Return what pods will lack that is here."""
    stages = job.asked.stages
    found = []
    here = [one.directory for one in stages if one.directory != JOB_FOLDER]
    here += [word for one in stages for word in one.arguments if word.startswith("/")]
    local = next((place for place in here if Path(place).exists()), None)
    if local is not None and not cluster.claim:
        found.append(f"{local!r} is a file or directory here; pods need a --claim that has it")
    if not cluster.shared and not cluster.secret:
        found.append("no shared cache is named: a pod that is tried again repeats every step")
    return found
