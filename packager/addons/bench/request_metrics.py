"""Metrics of one request, by AIPerf's tag.

Names, units and definitions are those of AIPerf 0.13 (`aiperf/metrics/types`), with one
exception: an answer of several tokens that came in one piece has no inter-token latency.  AIPerf
would say 0 ms, and an engine that keeps its answers back would be the fastest of all.

Tokens are the server's (`usage`), else the client's; pieces are never counted as tokens, for
an engine that speculates puts several into one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType

from packager.addons.bench.load.values import LoadResult
from packager.core.bench import Limits

MS, TOKENS, PER_USER, PERCENT = "ms", "tokens", "tokens/sec/user", "%"
TEXTS = "texts"
LATENCY, TTFT, ITL = "request_latency", "time_to_first_token", "inter_token_latency"
INPUT, OUTPUT = "input_sequence_length", "output_sequence_length"
CHUNK_LATENCY = "inter_chunk_latency"

# Metrics with one value a request. Their order is that of tables.
UNITS: Mapping[str, str] = MappingProxyType(
    {
        TTFT: MS,
        "time_to_second_token": MS,
        "time_to_first_output_token": MS,
        LATENCY: MS,
        "decode_duration": MS,
        ITL: MS,
        "output_token_throughput_per_user": PER_USER,
        "e2e_output_token_throughput": PER_USER,
        "prefill_throughput_per_user": PER_USER,
        OUTPUT: TOKENS,
        INPUT: TOKENS,
        "text_count": TEXTS,
        "output_token_count": TOKENS,
        "reasoning_token_count": TOKENS,
        "usage_prompt_tokens": TOKENS,
        "usage_completion_tokens": TOKENS,
        "usage_total_tokens": TOKENS,
        "usage_reasoning_tokens": TOKENS,
        "usage_prompt_tokens_diff_pct": PERCENT,
        "usage_completion_tokens_diff_pct": PERCENT,
        "osl_mismatch_diff_pct": PERCENT,
    }
)
LIMITED = {"ttft_ms": TTFT, "tpot_ms": ITL, "latency_ms": LATENCY}

APART = 10.0  # percent by which the counts of server and client may differ
OTHER_LENGTH, OTHER_LENGTH_TOKENS = 0.05, 50  # share and tokens an answer may differ from asked


def has_content(result: LoadResult) -> bool:
    """Whether a whole answer came and held something: AIPerf's valid request."""
    found = result.chunks if result.is_streamed else result.text
    return result.is_answered and bool(result.texts or found)


def last_content_s(result: LoadResult) -> float:
    """Return when the last content of an answer with content came, in seconds of its load."""
    return result.chunks[-1].at_s if result.is_streamed else result.ended_s


def input_tokens(result: LoadResult) -> int | None:
    """Return the prompt's tokens; None if uncounted."""
    return result.own_input_tokens if result.input_tokens is None else result.input_tokens


def output_tokens(result: LoadResult) -> int | None:
    """Return the answer's tokens, reasoning included; None if uncounted."""
    return result.own_output_tokens if result.output_tokens is None else result.output_tokens


def request_metrics(result: LoadResult) -> dict[str, float]:
    """Return the metrics of an answer with content; unknown ones are left out."""
    times = _times(result)
    tokens = _tokens(result)
    return {**times, **tokens, **_speeds(times, tokens)}


def chunk_latencies(result: LoadResult) -> list[float]:
    """Return the gaps between pieces, in ms; empty where the answer was not streamed."""
    if not result.is_streamed:
        return []
    times = [chunk.at_s for chunk in result.chunks]
    return [1e3 * (after - before) for before, after in pairwise(times)]


def is_good(metrics: Mapping[str, float], limits: Limits) -> bool:
    """Whether a request kept every limit. One without the metric kept none of it."""
    return all(
        metrics.get(LIMITED[name], float("inf")) <= limit
        for name, limit in limits.model_dump(exclude_none=True).items()
    )


def is_other_length(result: LoadResult) -> bool:
    """Whether an answer's length differs from the requested one by AIPerf's thresholds."""
    asked, tokens = result.asked_tokens, output_tokens(result)
    if not asked or tokens is None:
        return False
    return abs(tokens - asked) > min(asked * OTHER_LENGTH, OTHER_LENGTH_TOKENS)


def _times(result: LoadResult) -> dict[str, float]:
    last = last_content_s(result)
    times = {LATENCY: 1e3 * (last - result.sent_s)}
    if not result.is_streamed:
        return times
    first = result.chunks[0].at_s
    times[TTFT] = 1e3 * (first - result.sent_s)
    times["decode_duration"] = 1e3 * (last - first)
    if len(result.chunks) > 1:
        times["time_to_second_token"] = 1e3 * (result.chunks[1].at_s - first)
    answer = next((chunk.at_s for chunk in result.chunks if not chunk.is_reasoning), None)
    if answer is not None:
        times["time_to_first_output_token"] = 1e3 * (answer - result.sent_s)
    later = _later_tokens(result)
    if later:
        times[ITL] = 1e3 * (last - first) / later
    return times


def _later_tokens(result: LoadResult) -> int | None:
    """Return the tokens after the first piece; None where they, or their time, are unknown."""
    tokens = output_tokens(result)
    if tokens is None or tokens < 2 or len(result.chunks) < 2:
        return None
    first = result.chunks[0].tokens
    if first is None or not 0 < first < tokens:  # not told, or told too late
        first = 1
    return tokens - first


def _tokens(result: LoadResult) -> dict[str, float]:
    prompt, answer, thoughts = input_tokens(result), output_tokens(result), result.reasoning_tokens
    found: dict[str, float | None] = {
        INPUT: prompt,
        OUTPUT: answer,
        "text_count": result.texts or None,
        "reasoning_token_count": thoughts,
        "output_token_count": None if answer is None else (answer - (thoughts or 0)) or None,
        "usage_prompt_tokens": result.input_tokens,
        "usage_completion_tokens": result.output_tokens,
        "usage_total_tokens": (
            None
            if result.input_tokens is None or result.output_tokens is None
            else result.input_tokens + result.output_tokens
        ),
        "usage_reasoning_tokens": thoughts,
        "usage_prompt_tokens_diff_pct": _apart(result.input_tokens, result.own_input_tokens),
        "usage_completion_tokens_diff_pct": _apart(result.output_tokens, result.own_output_tokens),
    }
    if answer is not None and result.asked_tokens:
        asked = result.asked_tokens
        found["osl_mismatch_diff_pct"] = 100 * (answer - asked) / asked
    return {tag: float(value) for tag, value in found.items() if value is not None}


def _speeds(times: Mapping[str, float], tokens: Mapping[str, float]) -> dict[str, float]:
    """Return tokens per second, where there are tokens and their time is not 0."""
    found = {}
    if times.get(ITL):
        found["output_token_throughput_per_user"] = 1e3 / times[ITL]
    if times[LATENCY] and OUTPUT in tokens:
        found["e2e_output_token_throughput"] = 1e3 * tokens[OUTPUT] / times[LATENCY]
    if times.get(TTFT) and INPUT in tokens:
        found["prefill_throughput_per_user"] = 1e3 * tokens[INPUT] / times[TTFT]
    return found


def _apart(server: int | None, client: int | None) -> float | None:
    """Return how far two counts are apart, in percent of the client's."""
    if server is None or not client:
        return None
    return 100 * abs(server - client) / client
