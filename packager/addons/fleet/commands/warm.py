"""`packager warm`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from packager.addons.fleet.cluster import Cluster
from packager.addons.fleet.commands.warm_step import step, tool
from packager.addons.fleet.fleets.table import FLEETS
from packager.addons.fleet.grid import read_grid_or_plan, read_plan
from packager.addons.fleet.one import job_exit_codes, run_one
from packager.addons.fleet.planning import canonical, make_warm_plan
from packager.addons.fleet.report import (
    ENDED_WELL,
    outcome_document,
    outcome_report,
    plan_report,
    refusal_lines,
)
from packager.addons.fleet.run import run_plan
from packager.addons.fleet.wiring import fleet_for
from packager.cli.choices import NameChoice
from packager.cli.commands.cache_options import cache_place_options, take_cache_options
from packager.cli.field_options import options_from, take_fields
from packager.cli.options import gpus_option
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import catalog_option, format_option
from packager.cli.terminal import (
    note_lines,
    print_json,
    print_json_text,
    print_report,
    print_result,
    print_text,
    warn,
)
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.caches import open_artifact_cache
from packager.cli.wiring.presence import presence_for
from packager.cli.wiring.settings import Settings
from packager.core.devices import GpuRequest
from packager.core.errors import UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.warmup import Grid, WarmPlan

EXIT_REFUSED = 3  # as of a plan
EXIT_FAILED = 6  # as of a step

steps_option = click.option(
    "--steps",
    type=click.Choice(("local", "docker")),
    default="local",
    show_default=True,
    help="Run tools as processes, or in containers of a Docker Engine beside the job.",
)
index_option = click.option(
    "--index", type=click.IntRange(0), required=True, metavar="N", help="Index of the job."
)
plan_option = click.option(
    "--plan", "plan_file", required=True, metavar="PLAN", help="File or URL of the plan."
)


class RunByDefault(click.Group):
    """Group of commands in which `packager warm FILE` means `packager warm run FILE`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Insert `run` before a first argument that is neither a command nor an option."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=RunByDefault)
def warm() -> None:
    """Fill caches ahead of time, so that builds and fleets find their work done.

    FILE is a grid of requests: models, instances, shapes, quantization, drafts.
    Each artifact is made once; what is in the cache is not made again.

    \b
    packager warm FILE                       the same as `packager warm run FILE`
    packager warm plan FILE --output plan.json
    packager warm render kubernetes plan.json --image registry/packager:1
    """


@warm.command("plan")
@click.argument("file")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PLAN",
    help="Write the plan here, as canonical JSON.",
)
@gpus_option
@catalog_option
@cache_place_options
@format_option
def plan_(
    file: str, output: Path | None, gpus: GpuRequest, output_format: str, **given: Any
) -> int:
    """Plan a grid: jobs, cache hits, time and price.

    Ends with status 3 when a request cannot be planned; the others are.

    \b
    packager warm plan grid.toml --output plan.json
    """
    settings = replace(_settings(given), runs_elsewhere=True)
    found = _planned(read_grid_or_plan(file), settings, gpus)
    if output is not None:
        with explain_disk_errors(output):
            write_atomically(output, canonical(found))
    if output_format == "json":
        print_json_text(canonical(found).decode())
    else:
        print_report(plan_report(found))
    _say_refused(found)
    return EXIT_REFUSED if found.refused else 0


@warm.command()
@click.argument("file")
@click.option(
    "--executor",
    type=NameChoice(lambda: FLEETS),
    default="local",
    show_default=True,
    help="Executor of the jobs.",
)
@click.option("--address", default="", metavar="HOST:PORT", help="Address of a Ray cluster.")
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    metavar="N",
    help="Retries of a job after a transient failure.",
)
@click.option(
    "--jobs", "at_once", type=click.IntRange(1), metavar="N", help="Most concurrent jobs."
)
@gpus_option
@steps_option
@catalog_option
@cache_place_options
@progress_options
@format_option
def run(
    file: str,
    executor: str,
    retries: int,
    gpus: GpuRequest,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> int:
    """Run the jobs of a grid or plan FILE whose results are not cached.

    After any interruption the same command goes on.  Ends with status 6 when
    a job failed, and with 3 when a request could not be planned.

    \b
    packager warm run plan.json --jobs 2
    """
    as_json = output_format == "json"
    settings = replace(_settings(given), runs_elsewhere=executor != "local")
    found = _planned(read_grid_or_plan(file), settings, gpus)
    artifacts = open_artifact_cache(settings, always_hash=True)
    presence = presence_for(settings, artifacts)
    with tempfile.TemporaryDirectory(prefix="packager-warm-") as own:
        place = Path(own) / "plan.json"
        place.write_bytes(canonical(found))
        with shown_progress(progress, quiet=quiet, as_json=as_json) as on_event:
            fleet = fleet_for(executor, place, settings, **given)
            try:
                outcomes = run_plan(found, fleet, presence, retries=retries, on_event=on_event)
            finally:
                fleet.close()
    document = outcome_document(found, outcomes)
    print_result("json" if as_json else "text", document, outcome_report(outcomes))
    _say_refused(found)
    if any(one.state not in ENDED_WELL for one in outcomes):
        return EXIT_FAILED
    return EXIT_REFUSED if found.refused else 0


@warm.command()
@plan_option
@index_option
@click.option(
    "--first",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Offset added to the index: start of a Job's part of the plan.",
)
@steps_option
@catalog_option
@cache_place_options
def one(
    plan_file: str,
    index: int,
    first: int,
    steps: str,
    **given: Any,
) -> None:
    """Run one job of a plan, as laptops, Ray tasks and pods do.

    Prints what it made, as JSON.  Ends with 64 to 78 for what will not work
    next time either, and with 75 for what may, SIGTERM included.

    \b
    packager warm one --plan plan.json --index 0
    """
    with job_exit_codes():
        settings = replace(_settings(given), headers_only=False, executor=steps)
        artifacts = open_artifact_cache(settings, always_hash=True)
        done = run_one(
            read_plan(plan_file),
            first + index,
            services_for(settings),
            presence_for(settings, artifacts),
        )
        print_json(asdict(done))


warm.add_command(step)
warm.add_command(tool)


@warm.group()
def render() -> None:
    """Write a plan down for a scheduler."""


@render.command()
@click.argument("plan_file", metavar="PLAN")
@options_from(Cluster)
@click.option("--any-node", is_flag=True, help="Do not select nodes by instance type.")
def kubernetes(plan_file: str, any_node: bool, **given: Any) -> None:
    """Print Indexed Jobs for `kubectl apply -f -`, one for each stage and sort of machine.

    \b
    packager warm render kubernetes plan.json --image registry/packager:1
    """
    from packager.addons.fleet.kubernetes import render_jobs
    from packager.catalog.instances import instances

    found = read_plan(plan_file)
    cluster = take_fields(Cluster, given, pin_nodes=not any_node)
    if not cluster.shared and not cluster.secret:
        raise UsageError(
            "no pod would know where results go",
            hint="name the shared cache with --cache-shared, or a --secret that has "
            "PACKAGER_CACHE_SHARED",
        )
    local = sorted({job.request.model for job in found.jobs if Path(job.request.model).exists()})
    if local and not cluster.claim:
        warn(f"{local[0]!r} is a directory here; pods need a --claim that has it")
    print_text(render_jobs(found, cluster, instances()))


@warm.command()
def schema() -> None:
    """Print the JSON schema of a plan.

    \b
    packager warm schema
    """
    print_json(WarmPlan.model_json_schema(by_alias=True))


def _settings(given: dict[str, Any]) -> Settings:
    return Settings(
        catalog_file=given.pop("catalog_file"),
        cache_dir=given.pop("cache_dir"),
        cache=take_cache_options(given),
        headers_only=True,
        read_local=True,
        on_warning=warn,
    )


def _planned(found: Grid | WarmPlan, settings: Settings, gpus: GpuRequest) -> WarmPlan:
    """Plan a grid, whose own rows win over `gpus`; a plan is taken as it is."""
    if isinstance(found, WarmPlan):
        if gpus is not None:
            raise UsageError(
                "--gpus is given, and the file is a plan",
                hint="its jobs have their GPUs; make the plan again from the grid",
            )
        return found
    if gpus is not None:
        found = found.model_copy(update={"defaults": {"gpus": gpus, **found.defaults}})
    return make_warm_plan(found, services_for(settings))


def _say_refused(found: WarmPlan) -> None:
    note_lines(refusal_lines(found))
