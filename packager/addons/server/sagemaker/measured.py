"""Measurements at an optimization job's end: the model before and after, in AWS's files.

Names are those that AWS's own jobs leave below `S3OutputLocation` (the saved output of its EAGLE
notebook); those of the model as it was, of a base head and of quality are ours, for AWS has
published none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from packager.addons.bench.export import json_bytes
from packager.addons.bench.names import load_name
from packager.addons.bench.tables import (
    CHUNKS,
    NOTHING,
    OUTPUT,
    OUTPUT_USER,
    TPOT,
    TTFT,
    numbers,
    value,
)
from packager.addons.bench.vllm_results import vllm_result
from packager.addons.server.sagemaker.gates import USUAL, Judged, all_gates, judge
from packager.core.bench import BenchLoad, BenchReport, Compared
from packager.core.quality import QualityReport
from packager.core.reports.report import (
    Column,
    Part,
    Row,
    Table,
    Words,
    number_columns,
)
from packager.core.units import percent
from packager.optimize.evaluate.report import quality_line

State = Literal["original", "optimized", "no_eagle", "base_eagle", "trained_eagle"]

FOLDER = "results"  # below the job's place
LOADS = (1, 2, 4, 8, 16)  # requests at a time, as AWS's jobs have them
REQUESTS = 16  # of a load
ROUNDS = 3  # fewer give no interval
PAGE, NOT_MEASURED, QUALITY = "benchmark_report.html", "not_measured.json", "quality.json"
QUALITY_STATE = "quality"  # among the states of `not_measured.json`
NAMES: Mapping[str, str] = {  # of states, as AWS's announcement has them
    "original": "Original",
    "optimized": "Optimized",
    "no_eagle": "No EAGLE",
    "base_eagle": "Base EAGLE",
    "trained_eagle": "Trained EAGLE",
}
LEAST_S = 600.0  # that the loads may take where the job's own step was shorter
# Beginnings of the fields of a request that change the model, or judge the change.
_OF_THE_CHANGE = (
    *("quantize", "calibration", "compile", "draft", "speculative", "weights", "load_format"),
    *("evaluate", "max_kld", "max_ppl", "min_top1", "try_untested"),
)


def states(*, is_drafted: bool, has_base_head: bool) -> tuple[State, ...]:
    """Return the states to measure: the original model first, the result last."""
    if not is_drafted:
        return ("original", "optimized")
    return ("no_eagle", *(("base_eagle",) if has_base_head else ()), "trained_eagle")


def request_before(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of the model as it was: the job's, without what optimizes."""
    return {name: value for name, value in request.items() if not name.startswith(_OF_THE_CHANGE)}


def loads_within(seconds: float, measured: Mapping[int, float]) -> int | None:
    """Return the next load to measure, in concurrent requests; None where none fits the time.

    `measured` are the seconds that loads took; they are begun with the largest, which is the
    shortest, and half as many requests at a time take twice as long at most.
    """
    left = [load for load in LOADS if load not in measured]
    if not left or not measured:
        return max(left, default=None)
    last = min(measured)
    likely = measured[last] * last / max(left)
    return max(left) if sum(measured.values()) + likely <= seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOutcome:
    """Results of a job's measurements, those that are missing, and the verdict."""

    report: BenchReport | None
    quality: QualityReport | None
    reasons: Mapping[str, str]  # why a state, or quality, was not measured
    skipped: tuple[int, ...]  # loads that were left out for want of time
    judged: tuple[Judged, ...]  # each gate with its default allowed loss

    @property
    def verdict(self) -> str | None:
        """Return whether the result serves more tokens a second than the model as it was."""
        return next(one.verdict for one in self.judged if one.gate.name == USUAL)


def outcome_of(
    report: BenchReport | None,
    quality: QualityReport | None,
    *,
    reasons: Mapping[str, str] = MappingProxyType({}),
    skipped: Sequence[int] = (),
) -> MeasuredOutcome:
    """Judge the measurements, once for all reports."""
    return MeasuredOutcome(
        report=with_quality(report, quality) if report is not None else None,
        quality=quality,
        reasons={**reasons, **(failures(report) if report is not None else {})},
        skipped=tuple(skipped),
        judged=tuple(judge(gate, report, quality) for gate in all_gates()),
    )


def result_files(found: MeasuredOutcome, page: str) -> dict[str, bytes]:
    """Return the files of a job's results by name: one for each state and load, and the page."""
    files = dict(reason_file(found.reasons))
    if found.quality is not None:
        figures = found.quality.model_dump(mode="json")
        files[QUALITY] = json_bytes({**figures, "measurable": found.quality.is_measurable})
    if found.report is None:
        return files
    files[PAGE] = page.encode()
    for variant in found.report.variants:
        for load in variant.loads:
            name = f"benchmark_{variant.name}_conc{load.concurrency}.json"
            files[name] = json_bytes(vllm_result(found.report, variant, load))
    return files


def reason_file(reasons: Mapping[str, str]) -> dict[str, bytes]:
    """Return the file with the reason why each state was not measured; none without reasons."""
    return {NOT_MEASURED: json_bytes({"not_measured": reasons})} if reasons else {}


def failures(report: BenchReport) -> dict[str, str]:
    """Return the reason why each state was not measured."""
    return {one.name: one.failure or "no load" for one in report.variants if not one.loads}


def with_quality(report: BenchReport, quality: QualityReport | None) -> BenchReport:
    """Return a report whose last variant, the result, has what quantizing cost."""
    if quality is None:
        return report
    *others, last = report.variants
    changed = last.model_copy(update={"quality": quality})
    return report.model_copy(update={"variants": (*others, changed)})


def summary_lines(found: MeasuredOutcome) -> list[str]:
    """Return the verdicts, then a line per load with both figures of AWS's report."""
    lines = [f"{_state(name)} not measured: {why}" for name, why in found.reasons.items()]
    report = found.report
    if report is not None and not failures(report):
        before, after = report.variants[0], report.variants[-1]
        lines.append(f"{after.name} over {before.name}")
    lines += [one.words for one in found.judged if one.verdict is not None]
    if found.quality is not None:
        lines.append(quality_line(found.quality))
    if report is not None:
        lines += _load_lines(report)
    if found.skipped:
        loads = ", ".join(map(str, found.skipped))
        lines.append(f"not measured, beyond the time of the job's own step: {loads} at a time")
    return lines


def state_table(report: BenchReport) -> Table:
    """Return all states and loads with the columns of AWS's announcement of trained heads.

    Times are means, as in the files beside them; the last column is over the first state.
    """
    columns = (
        ("TTFT, ms", TTFT),
        ("TPOT, ms", TPOT),
        ("ITL, ms", CHUNKS),
        ("requests/s", "request_throughput"),
        ("output tokens/s", OUTPUT),
        ("tokens/s of a request", OUTPUT_USER),
    )
    found = [
        (variant.name, load)
        for variant in report.variants
        for load in sorted(variant.loads, key=lambda one: one.concurrency or 0)
    ]
    written = [numbers([value(load, tag) for _, load in found]) for _, tag in columns]
    lengths = numbers([one.acceptance.length if one.acceptance else None for _, one in found])
    rows = tuple(
        Row(
            (
                NAMES.get(name, name),
                load_name(load),
                *(column[at] for column in written),
                lengths[at],
                _times(report, name, load),
            )
        )
        for at, (name, load) in enumerate(found)
    )
    figures = (name for name, _ in columns)
    return Table(
        columns=(
            Column("configuration"),
            *number_columns("concurrency", *figures, "acceptance length", "tokens/s, times"),
        ),
        rows=rows,
        title="states",
        caption="Before and after",
        is_right=True,
        indent=2,
    )


def state_parts(found: MeasuredOutcome) -> tuple[Part, ...]:
    """Return the table of states, with the verdicts and why one was not measured."""
    judged = tuple(
        Words(one.words, is_soft=False) for one in found.judged if one.verdict is not None
    )
    if found.report is None:
        return judged
    notes = tuple(
        Words(f"{NAMES.get(name, name)} was not measured: {why}", is_soft=False)
        for name, why in failures(found.report).items()
    )
    return (*judged, replace(state_table(found.report), title=""), *notes)


def recorded(report: BenchReport | None, quality: QualityReport | None) -> MeasuredOutcome | None:
    """Return the measurements of a job's record; None where no job measured it."""
    if report is not None and not {one.name for one in report.variants} <= NAMES.keys():
        return None  # of a separate, later benchmark
    if report is None and quality is None:
        return None
    return outcome_of(report, quality)


def state_document(found: MeasuredOutcome) -> dict[str, Any]:
    """Return the verdicts and the table of states, as JSON."""
    table = state_table(found.report) if found.report is not None else None
    return {
        "gates": {one.gate.name: {"verdict": one.verdict, "says": one.words}
                  for one in found.judged},
        "states": [_named(table, row) for row in table.rows]
        if table is not None
        else [],
        "quality": found.quality.model_dump(mode="json") if found.quality is not None else None,
    }  # fmt: skip


def _named(table: Table, row: Row) -> dict[str, str]:
    return {column.name: cell for column, cell in zip(table.columns, row.cells, strict=True)}


def _state(name: str) -> str:
    return f"{name} was" if name != QUALITY_STATE else "quality was"


def _load_lines(report: BenchReport) -> Iterator[str]:
    before, after = report.variants[0], report.variants[-1]
    for load in after.loads:
        first = next((one for one in before.loads if one.concurrency == load.concurrency), None)
        if first is None:
            continue
        figures = [
            f"{value(one, OUTPUT) or 0:,.1f} tokens/s, TTFT {value(one, TTFT, 'p50') or 0:,.1f} ms"
            for one in (first, load)
        ]
        ratio = _ratio(report.compared, after.name, load)
        change = f" ({_change(ratio)})" if ratio is not None else ""
        yield f"{load.concurrency} at a time: {' → '.join(figures)}{change}"


def _times(report: BenchReport, name: str, load: BenchLoad) -> str:
    found = _ratio(report.compared, name, load)
    if found is None:
        return NOTHING
    if found.low is None or found.high is None:
        return f"{found.ratio:.2f}"
    return f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})"


def _ratio(compared: Sequence[Compared], name: str, load: BenchLoad) -> Compared | None:
    return next(
        (
            one
            for one in compared
            if (one.variant, one.metric, one.concurrency) == (name, OUTPUT, load.concurrency)
        ),
        None,
    )


def _change(one: Compared) -> str:
    change = f"{'+' if one.ratio >= 1 else '-'}{percent(abs(one.ratio - 1))}"
    if one.low is None or one.high is None:
        return change
    return f"{change}, 95 % between x{one.low:.2f} and x{one.high:.2f}"
