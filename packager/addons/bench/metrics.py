"""Figures of a load, from what came back of its requests.

Several rounds of a load are put together: percentiles are of all their requests, a rate is all
their tokens over all their time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from packager.addons.bench.load.values import LoadResult, LoadRun
from packager.addons.bench.load_notes import load_notes
from packager.addons.bench.request_metrics import (
    APART,
    CHUNK_LATENCY,
    INPUT,
    ITL,
    LATENCY,
    MS,
    OUTPUT,
    TEXTS,
    TOKENS,
    TTFT,
    UNITS,
    chunk_latencies,
    has_content,
    input_tokens,
    is_good,
    is_other_length,
    last_content_s,
    output_tokens,
    request_metrics,
)
from packager.addons.bench.statistics import summarize
from packager.cli.serving.acceptance import combine, counted
from packager.core.bench import AdapterLoad, BenchError, BenchLoad, Limits, Metric, Round
from packager.core.speculation import Acceptance

REQUESTS, PER_SECOND, RATIO = "requests", "/sec", "ratio"
MOST_REASONS = 20  # that are kept apart; a server may put a number of its own into each
TOTALS = {  # AIPerf's names of sums
    INPUT: "total_isl",
    OUTPUT: "total_osl",
    "output_token_count": "total_output_tokens",
    "reasoning_token_count": "total_reasoning_tokens",
    "text_count": "total_text_count",
    "usage_prompt_tokens": "total_usage_prompt_tokens",
    "usage_completion_tokens": "total_usage_completion_tokens",
    "usage_total_tokens": "total_usage_total_tokens",
    "usage_reasoning_tokens": "total_usage_reasoning_tokens",
}


def load_figures(runs: Sequence[LoadRun], limits: Limits | None = None) -> BenchLoad:
    """Return the figures of one load, of which `runs` are the rounds.

    Raises `ValueError` without a round.
    """
    if not runs:
        raise ValueError("a load without a round has no figures")
    limits = limits or Limits()
    counts = _count(result for run in runs for result in run.results)
    rounds = [[_Answer.of(result) for result in _count(run.results).valid] for run in runs]
    answers = [one for answers in rounds for one in answers]
    duration = sum(_duration(run) for run in runs)
    accepted = _acceptance(runs)
    level = runs[0].level
    good = _good(answers, limits)
    metrics = {
        **_of_requests(answers),
        **_of_errors(counts),
        **_of_the_load(counts, answers, duration),
        **_of_goodput(good, len(counts.sent), duration),
        **_of_acceptance(accepted),
    }
    return BenchLoad(
        concurrency=level.concurrency,
        rate=level.rate,
        arrivals=level.arrivals,
        requests=len(counts.sent),
        answered=len(counts.answered),
        empty=counts.empty,
        tokenizer_failed=counts.tokenizer_failed,
        cancelled=counts.cancelled,
        seconds=sum(run.seconds for run in runs),
        started=_started(runs[0]),
        ended=_ended(runs[-1]),
        metrics=metrics,
        good=None if good is None else good / max(1, len(counts.sent)),
        errors=_errors(counts.failed),
        rounds=tuple(_round(run, some) for run, some in zip(runs, rounds, strict=True)),
        acceptance=accepted,
        adapters=tuple(_of_adapters(runs, duration, limits)),
        notes=load_notes(runs, metrics, limits),
        interrupted=next((reason for run in runs if (reason := _interruption(run))), ""),
    )


def _of_adapters(runs: Sequence[LoadRun], duration: float, limits: Limits) -> Iterator[AdapterLoad]:
    """Yield the figures of each adapter that requests were for."""
    results = [result for run in runs for result in run.results if result.adapter]
    for name in sorted({result.adapter for result in results}):
        counts = _count(result for result in results if result.adapter == name)
        answers = [_Answer.of(result) for result in counts.valid]
        metrics = {
            **_of_requests(answers),
            **_of_the_load(counts, answers, duration),
            **_of_goodput(_good(answers, limits), len(counts.sent), duration),
        }
        yield AdapterLoad(
            name=name, requests=len(counts.sent), answered=len(counts.answered), metrics=metrics
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    sent: Sequence[LoadResult]  # without those that the client broke off
    cancelled: int

    @property
    def answered(self) -> list[LoadResult]:
        return [result for result in self.sent if result.is_answered]

    @property
    def failed(self) -> list[LoadResult]:
        return [result for result in self.sent if not result.is_answered]

    @property
    def valid(self) -> list[LoadResult]:
        return [result for result in self.sent if has_content(result)]

    @property
    def empty(self) -> int:
        """SageMaker's: no output token, or the tokenizer could not count them."""
        return sum(
            not has_content(result) or (result.tokenizer_failed and output_tokens(result) is None)
            for result in self.answered
        )

    @property
    def tokenizer_failed(self) -> int:
        return sum(result.tokenizer_failed for result in self.sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    metrics: Mapping[str, float]
    gaps: Sequence[float]  # between pieces, in ms
    is_other_length: bool

    @classmethod
    def of(cls, result: LoadResult) -> _Answer:
        return cls(
            metrics=request_metrics(result),
            gaps=chunk_latencies(result),
            is_other_length=is_other_length(result),
        )


def _count(results: Iterable[LoadResult]) -> _Counts:
    every = list(results)
    sent = [result for result in every if result.failure != "cancelled"]
    return _Counts(sent=sent, cancelled=len(every) - len(sent))


def _of_requests(answers: Sequence[_Answer]) -> dict[str, Metric]:
    found = {
        tag: summarize([one.metrics[tag] for one in answers if tag in one.metrics], unit)
        for tag, unit in UNITS.items()
    }
    found[CHUNK_LATENCY] = summarize([gap for one in answers for gap in one.gaps], MS)
    return {tag: metric for tag, metric in found.items() if metric}


def _of_errors(counts: _Counts) -> dict[str, Metric]:
    """Return the prompts that were not used."""
    prompts = [input_tokens(one) for one in counts.sent if not has_content(one)]
    metric = summarize([prompt for prompt in prompts if prompt is not None], TOKENS)
    if metric is None:
        return {}
    return {"error_isl": metric, "total_error_isl": Metric(unit=TOKENS, avg=metric.sum or 0.0)}


def _of_the_load(counts: _Counts, answers: Sequence[_Answer], duration: float) -> dict[str, Metric]:
    """Return what has one value for the whole load, by the time of its answers."""
    sent, valid = len(counts.sent), len(answers)
    found = {
        "request_count": Metric(unit=REQUESTS, avg=valid),
        "error_request_count": Metric(unit=REQUESTS, avg=sent - valid),
    }
    if sent:
        found["completed_request_count"] = Metric(unit=REQUESTS, avg=sent)
        found["request_error_rate"] = Metric(unit="%", avg=100 * (sent - valid) / sent)
    sums = {
        tag: sum(one.metrics[tag] for one in answers if tag in one.metrics)
        for tag in TOTALS
        if any(tag in one.metrics for one in answers)
    }
    found |= {TOTALS[tag]: Metric(unit=UNITS[tag], avg=value) for tag, value in sums.items()}
    if any("osl_mismatch_diff_pct" in one.metrics for one in answers):
        others = sum(one.is_other_length for one in answers)
        found["osl_mismatch_count"] = Metric(unit=REQUESTS, avg=others)
    differences = [_differences(one) for one in answers]
    if any(differences):
        apart = sum(any(value > APART for value in values) for values in differences)
        found["usage_discrepancy_count"] = Metric(unit=REQUESTS, avg=apart)
    if duration <= 0:
        return found
    found["benchmark_duration"] = Metric(unit="sec", avg=duration)
    found["request_throughput"] = Metric(unit=f"{REQUESTS}{PER_SECOND}", avg=valid / duration)
    if "text_count" in sums:
        texts_s = Metric(unit=f"{TEXTS}{PER_SECOND}", avg=sums["text_count"] / duration)
        found["text_throughput"] = texts_s
    rates = {
        "input_token_throughput": sums.get(INPUT),
        "output_token_throughput": sums.get(OUTPUT),
        "total_token_throughput": (
            sums[INPUT] + sums[OUTPUT] if sums.keys() >= {INPUT, OUTPUT} else None
        ),
    }
    return found | {
        tag: Metric(unit=f"{TOKENS}{PER_SECOND}", avg=tokens / duration)
        for tag, tokens in rates.items()
        if tokens is not None
    }


def _differences(answer: _Answer) -> list[float]:
    """Return how far server and client are apart; empty unless both can be compared."""
    tags = ("usage_prompt_tokens_diff_pct", "usage_completion_tokens_diff_pct")
    values = [answer.metrics[tag] for tag in tags if tag in answer.metrics]
    return values if len(values) == len(tags) else []


def _good(answers: Sequence[_Answer], limits: Limits) -> int | None:
    """Count the answers within the limits; None without limits."""
    if limits == Limits():
        return None
    return sum(is_good(one.metrics, limits) for one in answers)


def _of_goodput(good: int | None, sent: int, duration: float) -> dict[str, Metric]:
    if good is None:
        return {}
    found = {
        "good_request_count": Metric(unit=REQUESTS, avg=good),
        "good_request_fraction": Metric(unit=RATIO, avg=good / max(1, sent)),
    }
    if duration > 0:
        found["goodput"] = Metric(unit=f"{REQUESTS}{PER_SECOND}", avg=good / duration)
    return found


def _of_acceptance(accepted: Acceptance | None) -> dict[str, Metric]:
    """Return acceptance over the whole load: servers do not report it for single requests."""
    if accepted is None:
        return {}
    rate = None if accepted.rate is None else 100 * accepted.rate
    found = {
        "spec_decode_token_weighted_acceptance_length": (RATIO, accepted.length),
        "spec_decode_overall_draft_acceptance_rate": ("%", rate),
        "total_spec_decode_steps": ("count", accepted.drafts),
        "total_draft_tokens": (TOKENS, accepted.draft_tokens),
        "total_accepted_draft_tokens": (TOKENS, accepted.accepted_tokens),
    }
    return {
        tag: Metric(unit=unit, avg=value)
        for tag, (unit, value) in found.items()
        if value is not None
    }


def _acceptance(runs: Sequence[LoadRun]) -> Acceptance | None:
    rounds = (
        counted(
            (run.metrics_before, run.metrics_after),
            requests=sum(result.is_answered for result in run.results),
        )
        for run in runs
        if run.metrics_before and run.metrics_after
    )
    return combine([one for one in rounds if one])


def _errors(failed: Iterable[LoadResult]) -> tuple[BenchError, ...]:
    """Return the ways of failing, the commonest first."""
    ways = Counter((one.failure or "", one.reason, one.status) for one in failed)
    ordered = sorted(ways.items(), key=lambda item: (-item[1], item[0][:2], item[0][2] or 0))
    kept = ordered[:MOST_REASONS]
    others = Counter[str]()
    for (kind, _reason, _status), count in ordered[MOST_REASONS:]:
        others[kind] += count
    return (
        *(
            BenchError(kind=kind, reason=reason, status=status, count=count)
            for (kind, reason, status), count in kept
        ),
        *(
            BenchError(kind=kind, reason="other reasons", count=count)
            for kind, count in sorted(others.items())
        ),
    )


def _round(run: LoadRun, answers: Sequence[_Answer]) -> Round:
    counts = _count(run.results)
    metrics = {**_of_requests(answers), **_of_the_load(counts, answers, _duration(run))}

    def average(tag: str) -> float | None:
        return metrics[tag].avg if tag in metrics else None

    def median(tag: str) -> float | None:
        return metrics[tag].p50 if tag in metrics else None

    return Round(
        seconds=run.seconds,
        requests=len(counts.sent),
        failed=len(counts.failed),
        output_token_throughput=average("output_token_throughput"),
        request_throughput=average("request_throughput"),
        ttft_p50_ms=median(TTFT),
        tpot_p50_ms=median(ITL),
        latency_p50_ms=median(LATENCY),
    )


def _duration(run: LoadRun) -> float:
    """Return AIPerf's duration in seconds: first valid request to the last content of one."""
    valid = [result for result in run.results if has_content(result)]
    if not valid:
        return 0.0
    return max(map(last_content_s, valid)) - min(one.sent_s for one in valid)


def _started(run: LoadRun) -> str:
    return _time(run, min((result.sent_s for result in run.results), default=0.0))


def _ended(run: LoadRun) -> str:
    ends = (last_content_s(one) for one in run.results if has_content(one))
    return _time(run, max(ends, default=run.seconds))


def _time(run: LoadRun, seconds: float) -> str:
    """Return the time of a moment of the load, in UTC; "" where its beginning is unknown."""
    if not run.started:
        return ""
    moment = datetime.fromisoformat(run.started) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _interruption(run: LoadRun) -> str:
    return run.lost or ("it was interrupted" if run.cancelled else "")
