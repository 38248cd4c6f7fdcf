"""What an optimization job measures at its end: the model before and after, in AWS's files.

Names are those that AWS's own jobs leave below `S3OutputLocation` (the saved output of its EAGLE
notebook); those of the model as it was and of a base head are ours, for AWS has published none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from packager.bench.export import json_bytes
from packager.bench.tables import OUTPUT, TTFT, value
from packager.bench.vllm_results import vllm_result
from packager.core.bench import BenchReport, Compared
from packager.core.units import percent

State = Literal["original", "optimized", "no_eagle", "base_eagle", "trained_eagle"]
Verdict = Literal["better", "worse", "undecided"]

FOLDER = "results"  # below the job's place
LOADS = (1, 2, 4, 8, 16)  # requests at a time, as AWS's jobs have them
REQUESTS = 16  # of a load
ROUNDS = 3  # fewer give no interval
PAGE, NOT_MEASURED = "benchmark_report.html", "not_measured.json"
LEAST_S = 600.0  # that the loads may take where the job's own step was shorter
# Beginnings of the fields of a request that change the model, or judge the change.
_OF_THE_CHANGE = (
    *("quantize", "calibration", "compile", "draft", "speculative", "weights", "load_format"),
    *("evaluate", "max_kld", "max_ppl", "min_top1", "try_untested"),
)


def states(*, is_drafted: bool, has_base_head: bool) -> tuple[State, ...]:
    """Return what is measured, the model as it was first, the result last."""
    if not is_drafted:
        return ("original", "optimized")
    return ("no_eagle", *(("base_eagle",) if has_base_head else ()), "trained_eagle")


def request_before(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of the model as it was: the job's, without what optimizes."""
    return {name: value for name, value in request.items() if not name.startswith(_OF_THE_CHANGE)}


def loads_within(seconds: float, measured: Mapping[int, float]) -> int | None:
    """Return the next load to measure, in requests at a time; None where none fits any more.

    `measured` are the seconds that loads took; they are begun with the largest, which is the
    shortest, and half as many requests at a time take twice as long at most.
    """
    left = [load for load in LOADS if load not in measured]
    if not left or not measured:
        return max(left, default=None)
    last = min(measured)
    likely = measured[last] * last / max(left)
    return max(left) if sum(measured.values()) + likely <= seconds else None


def result_files(report: BenchReport, page: str) -> dict[str, bytes]:
    """Return the files of a job's results by name: one for each state and load, and the page."""
    found = {PAGE: page.encode(), **reason_file(failures(report))}
    for variant in report.variants:
        for load in variant.loads:
            name = f"benchmark_{variant.name}_conc{load.concurrency}.json"
            found[name] = json_bytes(vllm_result(report, variant, load))
    return found


def reason_file(reasons: Mapping[str, str]) -> dict[str, bytes]:
    """Return the file that says why states were not measured, by state; none without reasons."""
    return {NOT_MEASURED: json_bytes({"not_measured": reasons})} if reasons else {}


def failures(report: BenchReport) -> dict[str, str]:
    """Return why states have no figures."""
    return {one.name: one.failure or "no load" for one in report.variants if not one.loads}


def verdict(report: BenchReport) -> Verdict:
    """Return whether the result serves more tokens a second than the model as it was.

    A load tells where the 95 % interval of the ratio leaves 1 out.  Most loads must tell the same,
    and none the opposite: of five loads without a difference, one in four measurements has such
    an interval by chance.
    """
    ratios = _of_result(report, OUTPUT)
    told = [one.ratio > 1 for one in ratios if one.is_noise is False]
    if 2 * len(told) <= len(ratios) or len(set(told)) != 1:
        return "undecided"
    return "better" if told[0] else "worse"


def summary_lines(report: BenchReport) -> list[str]:
    """Return a line for each load: both figures of AWS's report, before and after."""
    before, after = report.variants[0], report.variants[-1]
    ratios = {one.concurrency: one for one in _of_result(report, OUTPUT)}
    lines = [f"{state} was not measured: {why}" for state, why in failures(report).items()]
    if not lines:
        lines.append(f"{after.name} over {before.name}: {_VERDICTS[verdict(report)]}")
    for load in after.loads:
        first = next((one for one in before.loads if one.concurrency == load.concurrency), None)
        if first is None:
            continue
        figures = [
            f"{value(one, OUTPUT) or 0:,.1f} tokens/s, TTFT {value(one, TTFT, 'p50') or 0:,.1f} ms"
            for one in (first, load)
        ]
        ratio = ratios.get(load.concurrency)
        told = f" ({_change(ratio)})" if ratio is not None else ""
        lines.append(f"{load.concurrency} at a time: {' → '.join(figures)}{told}")
    return lines


_VERDICTS: Mapping[Verdict, str] = {
    "better": "faster",
    "worse": "slower",
    "undecided": "no difference that is more than noise",
}


def _of_result(report: BenchReport, metric: str) -> list[Compared]:
    name = report.variants[-1].name
    return [one for one in report.compared if one.variant == name and one.metric == metric]


def _change(one: Compared) -> str:
    told = f"{'+' if one.ratio >= 1 else '-'}{percent(abs(one.ratio - 1))}"
    if one.low is None or one.high is None:
        return told
    return f"{told}, 95 % between x{one.low:.2f} and x{one.high:.2f}"
