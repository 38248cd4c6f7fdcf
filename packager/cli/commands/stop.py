"""`packager stop`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import click

from packager.cli.field_options import TimeRange
from packager.cli.run.containers import Run, find_engine, find_run, list_runs, stop_run
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_json, print_line
from packager.core.errors import UsageError


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="Stop every run.")
@click.option(
    "--timeout",
    "timeout_s",
    type=TimeRange(0, 86_400, whole=True),
    metavar="TIME",
    help="Time that running requests get; by default what the plan says. 0: none.",
)
@format_option
def stop(names: tuple[str, ...], every: bool, timeout_s: int | None, output_format: str) -> None:
    """Stop runs, let their requests end, and remove their containers.

    NAME is one of `packager ps`. Images stay: the next `packager run` of the
    model starts at once. Prints the names of what was stopped.

    \b
    packager stop --all
    """
    if every == bool(names):
        raise UsageError(
            "name what to stop, or give --all" if not every else "--all takes no names",
            hint="`packager ps` lists the names",
        )
    engine = find_engine()
    runs = list_runs(engine) if every else [find_run(engine, name) for name in dict.fromkeys(names)]

    def end(run: Run) -> None:
        stop_run(engine, run, timeout_s)

    with ThreadPoolExecutor(max_workers=8) as threads:
        list(threads.map(end, runs))
    if output_format == "json":
        print_json([run.name for run in runs])
        return
    for run in runs:
        print_line(run.name)
    if not runs:
        note("nothing runs")
