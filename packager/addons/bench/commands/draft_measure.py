"""`packager draft measure`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import click

from packager.addons.bench.draft_measure.report import draft_report
from packager.addons.bench.draft_measure.run import DraftMeasureOptions
from packager.addons.bench.draft_measure.run import measure as run_measurement
from packager.addons.bench.draft_measure.servers import AUTO, NONE, Opener, is_address, targets
from packager.cli.field_options import TimeRange, options_from, take_fields
from packager.cli.options import container_environment, env_option
from packager.cli.run.images import started_image
from packager.cli.serving.containers import digests_of, find_image
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_result
from packager.cli.wiring.settings import state_dir
from packager.core.errors import SpeculationRejected, UsageError
from packager.core.files.atomic import check_place, explain_disk_errors, write_atomically
from packager.core.samples import DEFAULT, choose_samples
from packager.core.speculation import MEASURED_SAMPLES, Demands, SpeculationReport
from packager.core.text import json_text
from packager.images.docker_engine import connect_engine
from packager.models.samples.load import load_samples
from packager.pipeline.records import find_record, is_record_of, load_record, put_speculation


class _Measure(click.Command):
    """The command, whose --require-identical takes a value after `=` only: never the next word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        bare = "--require-identical"
        return super().parse_args(ctx, [f"{bare}=ties" if arg == bare else arg for arg in args])


@click.command(cls=_Measure)
@click.argument("server", metavar="IMAGE|URL")
@click.option(
    "--data",
    default=DEFAULT,
    show_default=True,
    metavar="DATA",
    help="Prompts: a file, a directory, s3://…, hf://datasets/….",
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=MEASURED_SAMPLES,
    show_default=True,
    metavar="N",
    help="Number of prompts to use.",
)
@click.option(
    "--broken",
    type=click.Choice(("skip", "refuse")),
    default="skip",
    show_default=True,
    help="What to do with rows that cannot be parsed.",
)
@options_from(DraftMeasureOptions)
@click.option(
    "--plain",
    default=AUTO,
    show_default=True,
    metavar="PLAIN",
    help="What to compare with: auto (IMAGE with its draft switched off; nothing for a URL), "
    "none, an image or a URL without a draft.",
)
@options_from(Demands)
@click.option(
    "--timeout",
    "deadline_s",
    type=TimeRange(1),
    default=600.0,
    show_default=True,
    metavar="TIME",
    help="Time until /ping of an image must answer.",
)
@env_option
@click.option(
    "--gpus",
    type=click.Choice(["all", "0"]),
    is_flag=False,
    flag_value="all",  # as it was written in the version before
    default="0",
    show_default=True,
    help="GPUs of the container.",
)
@click.option(
    "--record",
    "record_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Build record to add the figures to; by default the image's own.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the figures here, as JSON.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@format_option
def measure(
    server: str,
    record_file: Path | None,
    output: Path | None,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Measure what a draft gains: acceptance, tokens a second, and whether answers stay the same.

    IMAGE is started in the Docker Engine, with its draft and then without; a URL
    is a server that runs.  Ends with status 7 when a demand is not met.

    \b
    packager draft measure IMAGE --data prompts.jsonl --require-identical
    packager draft measure http://localhost:8000 --plain http://localhost:8001
    """
    as_json = output_format == "json"
    demands = take_fields(Demands, given)
    for place in (output, record_file):
        if place is not None:
            check_place(place)
    found = load_samples(given.pop("data"), broken=given.pop("broken"))
    engine = cache(connect_engine)
    environment = container_environment(given.pop("env"))
    given["gpus"] = given["gpus"] == "all"
    named, plain = started_image(server, "draft measure", engine), given.pop("plain")
    if plain not in (AUTO, NONE):
        plain = started_image(plain, "draft measure", engine)
    first, second = targets(named, plain, environment, engine)
    record = _record_place(first.name, record_file, engine)

    def say(line: str) -> None:
        if not (quiet or as_json):
            note(line)

    if found.skipped_count:
        row = found.skipped[0]
        say(f"warning: {found.skipped_count} rows are not samples; {row.place}: {row.reason}")
    chosen = choose_samples(found, given.pop("samples"), given["seed"])
    asked = take_fields(DraftMeasureOptions, given, samples=chosen)
    opener = Opener(connect=engine, connections=max(asked.concurrency), on_progress=say, **given)
    report = run_measurement(
        first,
        second,
        asked,
        opener,
        measured=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        on_progress=say,
    )
    if record is not None:
        put_speculation(record, report)
    document = {**report.model_dump(mode="json"), "record": str(record) if record else None}
    if output is not None:
        with explain_disk_errors(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(output, (json_text(document) + "\n").encode())
    print_result("json" if as_json else "text", document, draft_report(report))
    say(f"in the record {record}" if record else "no build record of it here: --record names one")
    _demand(demands, report)


def _demand(demands: Demands, report: SpeculationReport) -> None:
    missed = list(demands.missed_by(report))
    if missed:
        raise SpeculationRejected(
            f"the draft misses its requirements: {'; '.join(missed)}",
            hint="the figures are above; another draft, or fewer --speculative-tokens, may",
        )


def _record_place(name: str, record_file: Path | None, engine: Any) -> Path | None:
    """Find the record before anything is measured; refuse that of another image."""
    if is_address(name):
        if record_file is not None:
            load_record(record_file)
        return record_file
    digests = digests_of(find_image(engine(), name))
    if record_file is None:
        return find_record(state_dir(os.environ), digests)
    if not is_record_of(load_record(record_file), digests):
        raise UsageError(
            f"{str(record_file)!r} is the record of another image than {name!r}",
            hint="name the record that its build wrote, or leave --record out",
        )
    return record_file
