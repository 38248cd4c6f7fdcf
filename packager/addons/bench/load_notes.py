"""What a reader of a load's figures must know before they believe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from packager.addons.bench.load.values import LoadResult, LoadRun
from packager.addons.bench.request_metrics import APART, OUTPUT, has_content, output_tokens
from packager.core.bench import Limits, Metric

BUSY = 0.8  # of one processor: a client that is busier times itself
SPAN = 0.9  # share of a load's time that its answers must cover


def load_notes(
    runs: Sequence[LoadRun], metrics: Mapping[str, Metric], limits: Limits
) -> tuple[str, ...]:
    """Return what is doubtful about the figures of a load."""
    valid = [result for run in runs for result in run.results if has_content(result)]
    return tuple(
        note
        for note in (
            _of_estimates(runs),
            _of_adapters(runs),
            *_of_counts(valid, metrics),
            _of_pieces(valid),
            _of_limits(valid, limits),
            _of_lengths(valid, metrics),
            _of_time(runs, metrics),
            _of_client(runs),
        )
        if note
    )


def _of_estimates(runs: Sequence[LoadRun]) -> str:
    if not any(run.estimated_lengths for run in runs):
        return ""
    return (
        "lengths of prompts are estimates: the server does not count the tokens of a prompt; "
        "--tokenizer names who does"
    )


def _of_adapters(runs: Sequence[LoadRun]) -> str:
    if not any(run.unproven_adapters for run in runs):
        return ""
    return (
        "the server shows no odds of tokens: that adapters answered, and not the base, is not shown"
    )


def _of_counts(valid: Sequence[LoadResult], metrics: Mapping[str, Metric]) -> Iterable[str]:
    answers = [one for one in valid if not one.texts]
    unknown = sum(output_tokens(one) is None for one in answers)
    if answers and OUTPUT not in metrics:
        yield (
            "output tokens are unknown: the server sends no `usage` and there is no tokenizer "
            "to count them with"
        )
    elif unknown:
        yield (
            f"the output tokens of {unknown:,} of {len(valid):,} answers are unknown: tokens per "
            "second are too low, and prices too high"
        )
    yield _apart("input", [(one.input_tokens, one.own_input_tokens) for one in valid])
    yield _apart("output", [(one.output_tokens, one.own_output_tokens) for one in valid])


def _apart(what: str, counts: Iterable[tuple[int | None, int | None]]) -> str:
    both = [(server, own) for server, own in counts if server is not None and own is not None]
    server, own = sum(one for one, _ in both), sum(one for _, one in both)
    if not own or 100 * abs(server - own) <= APART * own:
        return ""
    why = "a chat template adds its own, or " if what == "input" and server > own else ""
    return (
        f"the server counts {server:,} {what} tokens, the tokenizer {own:,}: {why}the tokenizer "
        "is another model's; the server's count is used"
    )


def _of_pieces(valid: Sequence[LoadResult]) -> str:
    whole = sum(
        one.is_streamed and len(one.chunks) == 1 and (output_tokens(one) or 0) > 1 for one in valid
    )
    if not whole:
        return ""
    return (
        f"{whole:,} of {len(valid):,} streamed answers came in one piece: their inter-token "
        "latency is unknown"
    )


def _of_limits(valid: Sequence[LoadResult], limits: Limits) -> str:
    if limits.ttft_ms is None and limits.tpot_ms is None:
        return ""
    if not valid or any(one.is_streamed for one in valid):
        return ""
    return (
        "no request can keep a limit on the time to its first token or on each token: "
        "answers are not streamed"
    )


def _of_lengths(valid: Sequence[LoadResult], metrics: Mapping[str, Metric]) -> str:
    other = metrics.get("osl_mismatch_count")
    if other is None or not other.avg:
        return ""
    return (
        f"{other.avg:,.0f} of {len(valid):,} answers are longer or shorter than was asked for: "
        "compare only with answers of the same lengths"
    )


def _of_time(runs: Sequence[LoadRun], metrics: Mapping[str, Metric]) -> str:
    seconds = sum(run.seconds for run in runs)
    duration = metrics.get("benchmark_duration")
    if duration is None or duration.avg >= SPAN * seconds:
        return ""
    return (
        f"answers came in {duration.avg:,.1f} s of {seconds:,.1f} s; tokens and requests per "
        "second are of those"
    )


def _of_client(runs: Sequence[LoadRun]) -> str:
    seconds = sum(run.seconds for run in runs)
    busy = sum(run.client_cpu_s for run in runs)
    if not seconds or busy < BUSY * seconds:
        return ""
    return (
        f"the client used {busy / seconds:.0%} of a processor: times may be its own; measure "
        "from a faster or an idle machine"
    )
