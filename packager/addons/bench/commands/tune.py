"""`packager tune`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from packager.addons.bench.commands.bench_work import command_words
from packager.addons.bench.commands.spec_options import take_tune_spec, workload_spec_option
from packager.addons.bench.commands.tune_choices import named_variations, varied_axes
from packager.addons.bench.commands.tune_run import measure_field
from packager.addons.bench.commands.tune_work import Loads, TuneWork, make_candidates, make_work
from packager.addons.bench.load.spec import RequestSpec
from packager.addons.bench.options import BenchOptions as LoadAsked
from packager.addons.bench.report import bench_report
from packager.addons.bench.tune.candidates import Field
from packager.addons.bench.tune.journal import TuneJournal
from packager.addons.bench.tune.options import TuneOptions
from packager.addons.bench.tune.report import field_report, tune_report
from packager.addons.bench.tune.request_file import check_request_file, request_text
from packager.addons.bench.tune.results import field_document, measurements_of
from packager.addons.bench.tune.space import Variation
from packager.cli.commands.cache_options import cache_options, take_cache_settings
from packager.cli.field_options import FiniteRange, TimeRange, options_from, take_fields
from packager.cli.options import (
    container_environment,
    jumpstart_option,
    make_request,
    model_argument,
    request_choices,
    request_file_option,
)
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import (
    catalog_option,
    format_option_of,
    load_measured,
    measured_option,
    registry_options,
)
from packager.cli.terminal import note, note_lines, print_result, warn
from packager.core.bench import BenchReport
from packager.core.errors import SmokeFailed
from packager.core.events import EventSink
from packager.core.files.atomic import check_place, explain_disk_errors, write_atomically
from packager.core.request import BuildRequest
from packager.core.tuning import TuneReport
from packager.core.units import counted

_OF_LOADS = ("requests", "duration_s", "warm_up", "request_timeout_s")
_LIMITS = ("ttft_ms", "tpot_ms", "latency_ms")
_OF_REQUESTS = (
    *("data", "endpoint", "input_stddev", "output_stddev", "prefix_tokens", "ignore_eos"),
    "adapter_zipf",
    *("stream", "temperature", "seed", "extra"),
)
_NOT_HERE = ("ttft_limit_ms", "tpot_limit_ms", "weights")  # --ttft-ms, --tpot-ms; images alone


@click.command()
@model_argument
@options_from(BuildRequest, leave_out=_NOT_HERE, **request_choices)
@request_file_option
@jumpstart_option
@options_from(LoadAsked, *_LIMITS)
@options_from(TuneOptions)
@click.option(
    "--budget-time",
    "budget_s",
    type=TimeRange(0, min_open=True),
    metavar="TIME",
    help="Time to build, start and measure for at most, such as 30m or 2h.",
)
@click.option(
    "--try",
    "tries",
    multiple=True,
    metavar="OPTIONS",
    help='Also measure the request with these options: "--quantize awq --draft ngram".',
)
@click.option(
    "--candidate",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also measure what this request file asks for.",
)
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="FIELD=VALUE",
    help="A value to try of a field, in place of those that packager would try; once for each "
    "value: --vary quantize=none --vary quantize=awq.",
)
@options_from(LoadAsked, *_OF_LOADS)
@options_from(RequestSpec, *_OF_REQUESTS)
@workload_spec_option
@click.option(
    "--usd-per-hour",
    type=FiniteRange(min=0, min_open=True, max=1e6),
    metavar="USD",
    help="Your price of an hour of the instance; by default the catalog's.",
)
@measured_option
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of the containers.")
@click.option(
    "--timeout",
    "deadline_s",
    type=TimeRange(1),
    default=1800.0,
    show_default=True,
    metavar="TIME",
    help="Time until a server must be ready.",
)
@click.option(
    "--journal",
    "journal_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where work is written down as it is done; by default in the state directory, by request.",
)
@click.option("--fresh", is_flag=True, help="Forget what the journal holds, and measure anew.")
@click.option(
    "--request-out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a request file that repeats the best build: packager build --request FILE.",
)
@click.option(
    "--figures",
    "figures_out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write all measurements here, as JSON: packager report FILE shows them.",
)
@click.option("--dry-run", is_flag=True, help="List the candidates, and build nothing.")
@registry_options
@catalog_option
@cache_options
@progress_options
@format_option_of("json", "html", help="Output format on stdout; html is a self-contained page.")
def tune(
    request_file: Path | None,
    spec_file: Path | None,
    output_format: str,
    progress: str,
    quiet: bool,
    dry_run: bool,
    request_out: Path | None,
    figures_out: Path | None,
    **given: Any,
) -> None:
    """Find the best build of a model for a goal, by measuring candidates.

    Candidates are combinations of quantization, draft, split over devices and
    settings of the engine.  They are built through the cache, started in the
    Docker Engine and put under load in turns; those that others clearly beat
    drop out. Killed and run again, it goes on where it was.

    \b
    packager tune --model examples/tiny-llama --instance local --goal throughput
    """
    if request_out is not None:
        check_request_file(request_out)
    for place in (request_out, figures_out):
        if place is not None:
            check_place(place)
    if spec_file is not None:
        take_tune_spec(spec_file, given)
    as_json = output_format == "json"
    varied, named = varied_axes(given.pop("varied")), _named(given)
    journal_file, fresh = given.pop("journal_file"), given.pop("fresh")
    asked = take_fields(TuneOptions, given)
    retry_failed = bool(given["retry_failed"])
    work = _take_work(request_file, asked, given)
    field = make_candidates(work, varied, named, only=asked.only)
    if dry_run:
        listed = field_document(field, work.race, **work.names())
        print_result("json" if as_json else "text", listed, field_report(listed))
        return  # no measurements for a page

    @contextmanager
    def begin(journal: TuneJournal) -> Iterator[EventSink]:
        _warn_of_refused(field)
        if not (quiet or as_json):
            note_lines(_start_lines(journal, field))
        with shown_progress(progress, quiet=quiet, as_json=as_json) as on_event:
            yield on_event

    report, figures = measure_field(
        work,
        field,
        begin,
        journal_file=journal_file,
        fresh=fresh,
        retry_failed=retry_failed,
        command=command_words(sys.argv[1:]),
    )
    if request_out is not None and report.request is not None:
        _write(request_out, _request_text(request_out, report))
    if figures_out is not None:
        _write(figures_out, figures.model_dump_json(indent=2) + "\n")
    _print_report(report, figures, output_format)
    if report.best is None:
        raise SmokeFailed(
            "no candidate could be built, started and measured",
            hint="the reasons are above; --retry-failed tries them again",
        )
    if request_out is not None and not (quiet or as_json):
        note(f"to repeat the best build: packager build --request {request_out} --output OUT")


def _take_work(request_file: Path | None, asked: TuneOptions, given: dict[str, Any]) -> TuneWork:
    """Return the tune that the options ask for, but for its candidates."""
    same = ("insecure_registries", "ca_file", "catalog_file")
    own = {
        **{name: given.pop(name) for name in same},
        **take_cache_settings(given),
        "on_warning": warn,
    }
    sent = {name: given.pop(name) for name in _OF_REQUESTS}
    loads = Loads(
        spec=take_fields(
            RequestSpec,
            sent,
            workload=given["workload"] or "questions",
            images=given["images"] or "",
        ),
        load=take_fields(LoadAsked, given),
        env=container_environment(given.pop("env")),
        deadline_s=given.pop("deadline_s"),
    )
    spent = {name: given.pop(name) for name in ("budget_s", "usd_per_hour")}
    measured = load_measured(given.pop("measured_files"))
    limits = {"ttft_limit_ms": loads.load.ttft_ms, "tpot_limit_ms": loads.load.tpot_ms}
    request = make_request(request_file, **given, **limits)
    return make_work(request, asked, loads, own, measured=measured, **spent)


def _named(given: dict[str, Any]) -> tuple[Variation, ...]:
    return named_variations(given.pop("tries"), given.pop("files"))


def _warn_of_refused(field: Field) -> None:
    """Write a warning for each candidate that the user named and rules refuse."""
    for one in field.dropped:
        if one.is_asked and one.kind == "refused":
            warn(f"the candidate {one.name!r} is left out: {one.why}")


def _print_report(report: TuneReport, figures: BenchReport, output_format: str) -> None:
    if output_format == "html":
        made = bench_report(figures, report.goal, command=figures.command)
    else:
        made = tune_report(report)
    print_result(output_format, report.model_dump(mode="json"), made)


def _start_lines(journal: TuneJournal, field: Field) -> list[str]:
    """Return what is about to be done, and where it is written down."""
    count = len(field.candidates)
    lines = [f"{counted(count, 'candidate')} to measure; {len(field.dropped)} left out"]
    known = measurements_of(field, journal.events)
    begun = f"going on after {counted(known, 'measurement')}" if known else "begun"
    return [*lines, f"journal: {journal.path}, {begun}"]


def _request_text(path: Path, report: TuneReport) -> str:
    comments = (
        f"the best of {len(report.candidates)} candidates for {report.goal}: {report.best}",
        f"measured {report.started} on {report.instance} with packager {report.packager_version}",
    )
    return request_text(path, report.request or {}, comments)


def _write(path: Path, text: str) -> None:
    with explain_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
