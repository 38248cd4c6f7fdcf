"""`packager jobs measure`: the model of an optimization job before and after, under load.

Jobs run it, not users. A file lists what could not be measured here, which fails no job; only
`--gate` does, where the result lost more than it allows.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from packager.addons.bench.assemble import make_report
from packager.addons.bench.commands.bench_work import make_work
from packager.addons.bench.load.spec import RequestSpec
from packager.addons.bench.options import BenchOptions
from packager.addons.bench.outputs import report_bytes, write_files
from packager.addons.bench.report import bench_report
from packager.addons.bench.session import Results, Session
from packager.addons.bench.targets import BenchTarget, find_targets
from packager.addons.server.commands.job_options import gate_option
from packager.addons.server.commands.jobs_quality import job_quality
from packager.addons.server.sagemaker.gates import judge, parse_gates
from packager.addons.server.sagemaker.measured import (
    FOLDER,
    LEAST_S,
    LOADS,
    QUALITY_STATE,
    REQUESTS,
    ROUNDS,
    MeasuredOutcome,
    State,
    loads_within,
    outcome_of,
    request_before,
    result_files,
    states,
    summary_lines,
)
from packager.cli.field_options import TimeRange
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option
from packager.cli.terminal import note_lines, print_json, print_lines
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings, settings_for, state_dir
from packager.core.bench import BenchReport
from packager.core.documents import parse_object
from packager.core.errors import BenchRejected, PackagerError, UsageError
from packager.core.files.user_files import read_user_file
from packager.core.instance import LOCAL
from packager.core.record import BuildRecord
from packager.core.references import parse_bucket_place
from packager.core.reports.page import report_html
from packager.core.request import parse_request
from packager.images.docker_engine import connect_engine
from packager.pipeline import pipeline
from packager.pipeline.records import load_record, put_measured

_HINT = "the job wrote it: run the job again"
_OWN_IMAGES = "packager-measured"
_STARTED_S = 900.0  # until a server must answer
_SPARE_S = 60.0  # of the job's time, for its other stages


def out_of_time(message: str, *, hint: str = "") -> UsageError:
    """Return an error: the job's remaining time is too short to measure."""
    return UsageError(message, hint=hint, code="OutOfTime")


@click.command("measure", hidden=True)
@click.option(
    "--request", "request_file", type=click.Path(path_type=Path), required=True,
    metavar="FILE", help="Request of the job's build.",
)  # fmt: skip
@click.option(
    "--record", "record_file", type=click.Path(path_type=Path), required=True,
    metavar="FILE", help="Record of the job's build.",
)  # fmt: skip
@click.option("--output", required=True, metavar="s3://…", help="Place of the job's results.")
@click.option("--name", required=True, metavar="NAME", help="The job's name.")
@click.option("--draft", metavar="DRAFT", help="The head that the job trained.")
@click.option("--base-draft", metavar="DRAFT", help="The head that it was trained from.")
@click.option("--data", default="", metavar="DATA", help="Prompts; made ones by default.")
@click.option(
    "--within", type=TimeRange(0), metavar="TIME", help="How long the whole job may take."
)
@gate_option
@progress_options
@format_option
def measure(
    request_file: Path,
    record_file: Path,
    output: str,
    name: str,
    draft: str | None,
    base_draft: str | None,
    data: str,
    within: float | None,
    gate: str,
    progress: str,
    quiet: bool,
    output_format: str,
) -> None:
    """Measure the model of a job as it was, and its result; keep both where AWS's jobs do."""
    place = parse_bucket_place(output)
    if place is None:
        raise UsageError(f"--output {output!r} is no place in a bucket", hint=_HINT)
    results = replace(place, key=f"{place.key.rstrip('/')}/{FOLDER}")
    fields = parse_object(read_user_file(request_file, what="the request", hint=_HINT))
    record = load_record(record_file)
    asked = states(is_drafted=draft is not None, has_base_head=base_draft is not None)
    own_step = max(sum(step.seconds for step in record.steps if not step.reused), LEAST_S)
    from packager.core.remote.s3_write import put_files

    reasons: dict[str, str] = {}
    skipped: list[int] = []
    quality, report = None, None
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        try:
            seconds = min(own_step, _left(request_file, within))
            quality = job_quality(fields, record, output, within_s=seconds, on_event=on_event)
        except PackagerError as error:
            reasons[QUALITY_STATE] = _reason(error)
        try:
            with _Images(fields, record, name=name, draft=draft, base_draft=base_draft) as images:
                targets = images.targets(asked)
                seconds = min(own_step, _left(request_file, within))
                report, skipped = _measured(
                    targets, data, seconds=seconds, connect=images.engine, on_event=on_event
                )
        except PackagerError as error:
            reasons |= dict.fromkeys(asked, _reason(error))
    found = outcome_of(report, quality, reasons=reasons, skipped=skipped)
    page = report_html(bench_report(found.report)) if found.report is not None else ""
    put_files(results, result_files(found, page))
    put_measured(record_file, found.report, found.quality)
    if found.report is not None:
        write_files(record_file.parent, {"bench.json": report_bytes(found.report)})
    lines = summary_lines(found)
    if output_format == "json":
        print_json(
            {
                "measured": report is not None,
                "verdict": found.verdict,
                "loads": lines,
                "gates": {one.gate.name: one.verdict for one in found.judged},
                **({"reason": reasons[asked[-1]]} if asked[-1] in reasons else {}),
            }
        )
        note_lines(lines)
    else:
        print_lines(lines)
    _check_gates(gate, found, asked)


def _check_gates(text: str, found: MeasuredOutcome, asked: Sequence[State]) -> None:
    """Fail the job where a requested gate is not met."""
    gates = parse_gates(text) if text else ()
    judged = [judge(one, found.report, found.quality) for one in gates]
    if lost := [one.words for one in judged if one.fails]:
        raise BenchRejected(
            f"{asked[-1]} is worse than {asked[0]}: {'; '.join(lost)}",
            hint="the figures are beside the results; leave --gate out to keep such a result, or "
            "allow a loss, such as --gate first-token=10%",
        )


def _reason(error: PackagerError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


class _Images:
    """The images that are measured, in the Docker Engine; those that were made for it go again."""

    def __init__(
        self,
        fields: dict[str, Any],
        record: BuildRecord,
        *,
        name: str,
        draft: str | None,
        base_draft: str | None,
    ) -> None:
        self._fields = fields
        self._record = record
        self._name = name
        self._drafts = {"base_eagle": base_draft, "trained_eagle": draft}
        self._made: list[str] = []
        self.engine: Callable[[], Any] = cache(connect_engine)  # one connection for all

    def __enter__(self) -> _Images:
        return self

    def __exit__(self, *_: object) -> None:
        for image in self._made:
            with suppress(Exception):  # an image that remains does no harm
                self.engine().images.remove(image, force=True)

    def targets(self, asked: Sequence[State]) -> tuple[BenchTarget, ...]:
        """Return a server for each state, named for it; raises what building them does."""
        _check_machine(str(self._fields["instance"]))
        self.engine()
        result = self._result(asked[-1])
        if asked[0] == "no_eagle":
            plain, trained = self._found(result, drafts_off=True)
            found = [plain, trained]
            if "base_eagle" in asked:
                found.insert(1, self._found(self._build("base_eagle"))[0])
        else:
            before = self._build("original")
            found = [self._found(before)[0], self._found(result)[0]]
        return tuple(
            replace(target, name=state) for state, target in zip(asked, found, strict=True)
        )

    def _result(self, state: State) -> str:
        """Return the image of the job's result: its own, where the Docker Engine has it."""
        for image in self._record.images:
            with suppress(Exception):
                self.engine().images.get(image.name)
                return image.name
        return self._build(state)

    def _build(self, state: State) -> str:
        image = f"{_OWN_IMAGES}:{self._name}-{state}"
        fields = self._fields
        if state not in ("optimized", "trained_eagle"):
            fields = request_before(fields)
        draft = self._drafts.get(state)
        request = parse_request(
            {**fields, **({"draft": draft} if draft else {}), "outputs": [f"docker:{image}"]}
        )
        pipeline.build(request, services_for(settings_for(request)))
        self._made.append(image)
        return image

    def _found(self, image: str, *, drafts_off: bool = False) -> tuple[BenchTarget, ...]:
        """Return the image as a server; with `drafts_off` without its draft first."""
        found = find_targets(
            [image],
            {},
            connect=self.engine,
            state_dir=state_dir(os.environ),
            needs_gpus=lambda _: _here().kind == "nvidia",
            drafts_off=drafts_off,
        )
        return tuple(reversed(found)) if drafts_off else found


def _measured(
    targets: Sequence[BenchTarget],
    data: str,
    *,
    seconds: float,
    connect: Callable[[], Any],
    on_event: Callable[[Any], None],
) -> tuple[BenchReport, list[int]]:
    """Return the report of servers that were under load, and the loads that were left out."""
    asked = BenchOptions(concurrency=LOADS, requests=REQUESTS, rounds=ROUNDS)
    work = make_work(
        asked, RequestSpec(data=data), engine=connect, tokenizer=None,
        usd_per_hour=None, discount=0.0, deadline_s=_STARTED_S, catalog_file=None,
    )  # fmt: skip
    results = Results()
    done: dict[int, float] = {}
    with work.open_pool(on_event) as pool:
        session = partial(
            Session, targets=targets, pool=pool, send=work.sender(threading.Event()),
            results=results, on_event=on_event, meter=work.meter,
        )  # fmt: skip
        if not pool.can_be_together(targets):
            # Each start would be paid again for each load: all of them in one go.
            session(asked=asked).measure()
            done = dict.fromkeys(LOADS, 0.0)
        while (load := loads_within(seconds, done)) is not None:
            begun = time.monotonic()
            session(asked=replace(asked, concurrency=(load,))).measure()
            done[load] = time.monotonic() - begun
    report = make_report(targets, results, work.circumstances(targets))
    return report, [load for load in LOADS if load not in done]


def _left(request_file: Path, within: float | None) -> float:
    """Return the seconds that the job has left; raises `UsageError` where they are too few.

    The request was written when the job was made: a wait in the queue counts as if it had run.
    """
    if within is None:
        return math.inf
    left = within - (time.time() - request_file.stat().st_mtime)
    if left < _SPARE_S:
        raise out_of_time(
            f"the job may take {within:g} s, and they are nearly over",
            hint="allow more in StoppingCondition.MaxRuntimeInSeconds",
        )
    return left - _SPARE_S


@cache
def _here() -> Any:
    return services_for(Settings()).find_instance(LOCAL)


def _check_machine(instance: str) -> None:
    """Refuse an image for another machine: this one cannot measure it."""
    if instance == LOCAL:
        return
    wanted, here = services_for(Settings()).find_instance(instance), _here()
    is_same = (wanted.kind, wanted.device_name) == (here.kind, here.device_name)
    if not is_same or wanted.devices > here.devices:
        raise UsageError(
            f"the result is for {instance!r}, and this machine is none",
            hint="measure it there: packager bench IMAGE",
        )
