"""`packager bench`."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import click

from packager.addons.bench.baseline import against_baseline, refuse_slower, take_baseline
from packager.addons.bench.commands.bench_startup import (
    StartupOptions,
    bench_startup,
    check_startup,
    parse_places,
)
from packager.addons.bench.commands.bench_work import BenchWork, command_words, judge, make_work
from packager.addons.bench.commands.spec_options import take_spec, workload_spec_option
from packager.addons.bench.history import append_report, check_history
from packager.addons.bench.load.spec import RequestSpec
from packager.addons.bench.merge import Named
from packager.addons.bench.options import BenchOptions, check_asked
from packager.addons.bench.outputs import (
    OutputPlace,
    append_requests,
    check_archive,
    files_of,
    forget_requests,
    parse_output,
    write_output_files,
)
from packager.addons.bench.report import bench_report
from packager.addons.bench.sending import Sender
from packager.addons.bench.session import OneLoad, Results
from packager.addons.bench.targets import BenchTarget
from packager.cli.field_options import FiniteRange, TimeRange, options_from, take_fields
from packager.cli.interrupts import interrupt
from packager.cli.options import container_environment, env_option
from packager.cli.progress import progress_options, shown_progress
from packager.cli.serving.containers import digests_of, find_image
from packager.cli.shared_options import catalog_option, format_option_of
from packager.cli.terminal import note, print_result
from packager.core.bench import BenchReport
from packager.core.errors import UsageError
from packager.core.files.atomic import check_place
from packager.images.docker_engine import connect_engine
from packager.pipeline.records import is_record_of, load_record, put_bench

# Options of loads that are not fields of the request.
_OF_LOADS = {
    "--tokenizer": "tokenizer",
    "--usd-per-hour": "usd_per_hour",
    "--discount": "discount",
}


@click.command()
@click.argument("servers", nargs=-1, required=True, metavar="IMAGE|URL...")
@options_from(BenchOptions)
@options_from(RequestSpec)
@workload_spec_option
@click.option(
    "--tokenizer",
    metavar="MODEL|FILE",
    help="Also count tokens here: a model's directory, org/name on a hub, or a tokenizer.json.",
)
@click.option(
    "--without-draft",
    "drafts_off",
    is_flag=True,
    help="Measure every image that has a draft with its draft switched off, too.",
)
@click.option(
    "--startup",
    is_flag=True,
    help="Measure cold starts instead of loads: each container from nothing to its first token, "
    "--rounds times (3), by phase.",
)
@click.option(
    "--pull",
    "pulls",
    is_flag=True,
    help="With --startup: remove each image from the engine and pull it anew before every start.",
)
@click.option(
    "--usd-per-hour",
    type=FiniteRange(min=0, min_open=True, max=1e6),
    metavar="USD",
    help="Price of an hour of the machine; by default the catalog's, of the image's instance.",
)
@click.option(
    "--discount",
    type=FiniteRange(0, 1, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="Discount on the hourly price: 0.26 for 26 %.",
)
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
    "--record",
    "record_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Build record to add the figures to; by default each image's own.",
)
@click.option(
    "--output",
    "places",
    multiple=True,
    metavar="PLACE",
    help="Also write the results here: a file *.json, *.html or output.tar.gz, a directory with "
    "a slash at its end, or such a name behind s3://BUCKET/. Repeatable.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    help="Compare with an earlier benchmark of one server, or the last of a history: end with "
    "status 9 when an interval says slower.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.jsonl",
    help="Add the figures to this file, a line each time; `packager report` draws it.",
)
@catalog_option
@progress_options
@format_option_of("json", "html", help="Output format on stdout; html is a self-contained page.")
def bench(
    servers: tuple[str, ...],
    spec_file: Path | None,
    drafts_off: bool,
    startup: bool,
    pulls: bool,
    env: tuple[str, ...],
    record_file: Path | None,
    places: tuple[str, ...],
    progress: str,
    quiet: bool,
    output_format: str,
    baseline: str | None,
    history: Path | None,
    prepared: Sequence[BenchTarget] = (),
    **given: Any,
) -> None:
    """Measure servers under load: speed, price of a token, requests that keep the limits.

    IMAGE is started in the Docker Engine; a URL is a server that runs, whose API key is
    taken from OPENAI_API_KEY.  sagemaker://NAME, kubernetes://NAMESPACE/NAME and
    kserve://NAMESPACE/NAME are deployments, found as `packager deploy` finds them.  Several
    are measured in turns and compared.

    Ends with status 7 when --min-goodput is missed, 9 when slower than --baseline, 4 when a
    server failed, 130 when interrupted; what was measured until then is printed and written.

    \b
    packager bench IMAGE --concurrency 1,4,16 --output results/
    packager bench http://localhost:8000 --find max-concurrency --ttft-ms 500 --tpot-ms 50
    packager bench IMAGE --startup
    """
    if spec_file is not None:
        take_spec(spec_file, given)
    asked, spec = take_fields(BenchOptions, given), take_fields(RequestSpec, given)
    engine = cache(partial(connect_engine, without="or give the URL of a server that runs"))
    if startup:
        check_startup(asked, spec, {flag: given[name] for flag, name in _OF_LOADS.items()})
        options = StartupOptions(
            servers=servers,
            rounds=asked.rounds,
            env=container_environment(env),
            pulls=pulls,
            drafts_off=drafts_off,
            deadline_s=given["deadline_s"],
            outputs=parse_places(places),
            catalog_file=given["catalog_file"],
            progress=progress,
            quiet=quiet,
            output_format=output_format,
        )
        _check_places(options.outputs, record_file)
        bench_startup(options, engine, lambda targets: record_places(targets, record_file, engine))
        return
    earlier, asked = take_baseline(baseline, asked)
    _check_loads(asked, pulls=pulls)
    kept = _Kept(
        outputs=tuple(map(parse_output, places)),
        record_file=record_file,
        earlier=earlier,
        history=check_history(history),
    )
    _check_places(kept.outputs, record_file)
    work = make_work(asked, spec, engine=engine, command=command_words(sys.argv[1:]), **given)
    targets = tuple(prepared) or work.targets(
        servers, container_environment(env), drafts_off=drafts_off
    )
    _bench_loads(
        targets, asked, work, kept, progress=progress, quiet=quiet, output_format=output_format
    )


def _check_loads(asked: BenchOptions, *, pulls: bool) -> None:
    if pulls:
        raise UsageError("--pull is of cold starts", hint="add --startup, or leave --pull out")
    check_asked(asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Where figures go, and what they are held against."""

    outputs: tuple[OutputPlace, ...]
    record_file: Path | None
    earlier: Named | None
    history: Path | None


def _bench_loads(
    targets: Sequence[BenchTarget],
    asked: BenchOptions,
    work: BenchWork,
    kept: _Kept,
    *,
    progress: str,
    quiet: bool,
    output_format: str,
) -> None:
    """Measure servers under load, print and keep the figures; raise what was judged."""
    outputs, earlier = kept.outputs, kept.earlier
    if earlier is not None and len(targets) > 1:
        raise UsageError("a baseline is of one server", hint="measure the servers one by one")
    loads = asked.levels if not asked.is_ramp else ()
    check_archive(outputs, len(targets), len(loads), searches=bool(asked.find))
    records = record_places(targets, kept.record_file, work.engine)
    as_json = output_format != "text"
    sender = work.sender(threading.Event())
    for output in outputs:
        forget_requests(output)
    with (
        shown_progress(progress, quiet=quiet, as_json=as_json) as on_event,
        _interruptible(sender),
    ):
        report, results = work.measure(
            targets, sender, on_event, on_load=lambda done: _append(outputs, done)
        )
    _keep(report, results, outputs, records, quiet=quiet or as_json)
    if kept.history is not None:
        append_report(kept.history, report)
    both = (
        against_baseline(report, earlier) if earlier is not None and not results.failures else None
    )
    _print(both or report, output_format)
    judge(report, results, asked)
    if both is not None:
        refuse_slower(both)


def page_of(report: BenchReport) -> str:
    """Return a report as a page."""
    from packager.core.reports.page import report_html  # templates are loaded for a page alone

    return report_html(bench_report(report))


def record_places(
    targets: Sequence[BenchTarget], record_file: Path | None, engine: Any
) -> dict[str, Path]:
    """Return the build record of each server; refuse a record of another image."""
    if record_file is None:
        return {one.name: one.record_place for one in targets if one.record_place is not None}
    first = targets[0]
    if len({one.server.name for one in targets}) > 1:
        raise UsageError(
            "--record names the record of one image, and several are measured",
            hint="leave it out: the records of images that were built here are found",
        )
    record = load_record(record_file)
    if not first.server.is_address:
        digests = digests_of(find_image(engine(), first.server.name))
        if not is_record_of(record, digests):
            raise UsageError(
                f"{str(record_file)!r} is the record of another image than {first.name!r}",
                hint="name the record that its build wrote, or leave --record out",
            )
    return {first.name: record_file}


def _append(outputs: Sequence[OutputPlace], done: OneLoad) -> None:
    for output in outputs:
        append_requests(output, done)


def _check_places(outputs: Sequence[OutputPlace], record_file: Path | None) -> None:
    """Refuse places that cannot be written before anything is measured."""
    for output in outputs:
        if output.bucket is None:
            check_place(Path(output.text))
    if record_file is not None:
        check_place(record_file)


def _keep(
    report: BenchReport,
    results: Results,
    outputs: Sequence[OutputPlace],
    records: dict[str, Path],
    *,
    quiet: bool,
) -> None:
    """Write every requested output, and the figures into records."""
    for output in outputs:
        write_output_files(output, files_of(output, report, results, page_of))
    for variant in report.variants:
        if variant.name in records and variant.loads:
            own = {"variants": (variant,), "compared": (), "pareto": ()}
            put_bench(records[variant.name], report.model_copy(update=own))
    if not quiet:
        for output in outputs:
            note(f"written to {output.text}")
        for place in records.values():
            note(f"in the record {place}")


def _print(report: BenchReport, output_format: str) -> None:
    document = report.model_dump(mode="json", exclude_none=True)
    print_result(output_format, document, bench_report(report))


@contextmanager
def _interruptible(sender: Sender) -> Iterator[None]:
    """Make a termination request end a load as Ctrl-C does: with what was measured."""

    def end(signum: int, frame: FrameType | None) -> None:
        assert sender.stop is not None
        sender.stop.set()
        if not sender.is_sending:
            interrupt(signum, frame)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
