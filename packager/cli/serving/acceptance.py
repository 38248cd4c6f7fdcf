"""Acceptance rate and length of speculative decoding, from the metrics of each engine.

vLLM counts: `vllm:spec_decode_num_drafts_total`, `…_num_draft_tokens_total`,
`…_num_accepted_tokens_total` and `…_num_accepted_tokens_per_pos_total{position}`, one of each
for every engine behind the server (docs.vllm.ai/en/v0.32.0/api/vllm/v1/spec_decode/metrics;
read from a running 0.32.0).  Without a draft there are no such counters.

TGI has a histogram `tgi_request_skipped_tokens` of the tokens of each step beyond its first
(huggingface.co/docs/text-generation-inference/reference/metrics; `backends/v3/src/backend.rs`
records `n - 1`, also for the prefill, whose one token nobody proposed).  It does not tell how
many tokens were proposed.

SGLang, started with `--enable-metrics`, has gauges of its last interval alone,
`sglang:spec_accept_length` and `sglang:spec_accept_rate`
(`python/sglang/srt/metrics/collector.py`); we take the mean of several readings.  Its counter
`sglang:spec_verify_calls_total` is in no documentation, and what it counts in a batch is not said.

TGI and SGLang were not run for this: their texts in the tests are written after those sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from packager.cli.serving.prometheus import Reading, read_metrics
from packager.core.probes import ProbeResponse
from packager.core.speculation import CHUNKS, Acceptance

_VLLM = "vllm:spec_decode_num_"
DRAFTS, DRAFT_TOKENS, ACCEPTED = (
    f"{_VLLM}{name}_total" for name in ("drafts", "draft_tokens", "accepted_tokens")
)
BY_POSITION = f"{_VLLM}accepted_tokens_per_pos_total"
SKIPPED = "tgi_request_skipped_tokens"
LENGTH, RATE = "sglang:spec_accept_length", "sglang:spec_accept_rate"
_COUNTED = (_VLLM, SKIPPED, LENGTH, RATE)  # of the some thousand numbers of a server

_LARGEST = 2**53  # numbers past it are not counted, they are made up
_POSITION = re.compile(r"0|[1-9]\d{0,3}", re.ASCII)

Counts = Mapping[tuple[str, str], float]  # (name, position) → sum over engines


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReading:
    """A server's counters at one time."""

    readings: Sequence[Sequence[Reading]]  # the first before, the last after all requests
    before: Counts
    after: Counts
    requests: int  # that were answered in between


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOf:
    """How one engine tells of speculation."""

    source: str  # `vllm`, as reports keep it
    words: str  # source, as shown to people
    read: Callable[
        [CounterReading], Acceptance | None
    ]  # None where the metrics are another engine's
    prefix: str = ""  # of all its metrics; "" where they do not tell whether there is a draft
    drafts: str = ""  # the counter that exists only with a draft


def speculates(text: str) -> bool | None:
    """Return whether the server has a draft; None where its metrics do not tell."""
    names = {reading.name for reading in _readings(text)}
    for engine in METRICS:
        if engine.prefix and any(name.startswith(engine.prefix) for name in names):
            return engine.drafts in names
    return None


def acceptance(
    texts: Sequence[str], answers: Sequence[ProbeResponse], alone: Sequence[ProbeResponse]
) -> Acceptance | None:
    """Return what was accepted between the first and the last reading of a server's metrics.

    `answers` are all those in between, `alone` those that were asked for one at a time: where
    no metric helps, their chunks do.  A server under load may put steps into one chunk.
    """
    found = counted(texts, requests=sum(not answer.error for answer in answers))
    return found or _of_chunks([answer for answer in alone if not answer.error])


def counted(texts: Sequence[str], *, requests: int) -> Acceptance | None:
    """Return acceptance over `requests` answers from the server's own metrics, if it has any."""
    readings = [_readings(text, _COUNTED) for text in texts]
    reading = CounterReading(
        readings=readings,
        before=_counts(readings[0]),
        after=_counts(readings[-1]),
        requests=requests,
    )
    return next((one for engine in METRICS if (one := engine.read(reading))), None)


def combine(rounds: Sequence[Acceptance]) -> Acceptance | None:
    """Return the acceptance of several rounds of one load; None without any.

    Counters are added.  Where there are none, each round counts the same.
    """
    if len(rounds) < 2:
        return rounds[0] if rounds else None
    drafts = _sum(one.drafts for one in rounds)
    proposed = _sum(one.draft_tokens for one in rounds)
    accepted = _sum(one.accepted_tokens for one in rounds)
    lengths = [one.length for one in rounds if one.length is not None]
    rates = [one.rate for one in rounds if one.rate is not None]
    length: float | None = fmean(lengths) if lengths else None
    rate: float | None = fmean(rates) if rates else None
    if drafts and accepted is not None:
        length = 1 + accepted / drafts
    if proposed and accepted is not None:
        rate = accepted / proposed
    places = range(max(len(one.by_position) for one in rounds))
    return Acceptance(
        source=rounds[0].source,
        length=None if length is None else _rounded(length),
        rate=None if rate is None else _rounded(rate),
        drafts=drafts,
        draft_tokens=proposed,
        accepted_tokens=accepted,
        by_position=tuple(_rounded(_at(rounds, place, drafts)) for place in places if drafts),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    every = list(counts)
    known = [count for count in every if count is not None]
    return sum(known) if len(known) == len(every) else None


def _at(rounds: Sequence[Acceptance], place: int, drafts: int) -> float:
    """Return the share of all drafts of which the token at `place` was taken."""
    taken = sum(
        one.by_position[place] * (one.drafts or 0) for one in rounds if place < len(one.by_position)
    )
    return taken / drafts


def source_words(source: str) -> str:
    """Return the source of acceptance, as shown to people."""
    if source == CHUNKS:
        return "an estimate from tokens for each streamed chunk; the server does not count"
    return next((one.words for one in METRICS if one.source == source), f"by {source}")


def _of_vllm(reading: CounterReading) -> Acceptance | None:
    if (DRAFTS, "") not in reading.after:
        return None
    grown = _grown(reading.before, reading.after)
    drafts, accepted = grown[DRAFTS, ""], grown.get((ACCEPTED, ""), 0.0)
    drafted = grown.get((DRAFT_TOKENS, ""), 0.0)
    if min(grown.values()) < 0:  # the server was started again meanwhile
        return None
    positions = sorted(int(place) for name, place in grown if name == BY_POSITION)
    return Acceptance(
        source="vllm",
        length=_rounded(1 + accepted / drafts) if drafts else None,
        rate=_rounded(accepted / drafted) if drafted else None,
        drafts=round(drafts),
        draft_tokens=round(drafted),
        accepted_tokens=round(accepted),
        by_position=tuple(
            _rounded(grown[BY_POSITION, str(place)] / drafts) for place in positions if drafts
        ),
    )


def _of_tgi(reading: CounterReading) -> Acceptance | None:
    grown = _grown(reading.before, reading.after)
    steps = grown.get((f"{SKIPPED}_count", ""), 0.0) - reading.requests
    accepted = grown.get((f"{SKIPPED}_sum", ""), 0.0)
    if steps <= 0 or accepted < 0:
        return None
    return Acceptance(
        source="tgi",
        length=_rounded(1 + accepted / steps),
        rate=None,
        accepted_tokens=round(accepted),
    )


def _of_sglang(reading: CounterReading) -> Acceptance | None:
    lengths, rates = (
        [
            one.value
            for some in reading.readings[1:]
            for one in some
            if one.name == name and one.value > 0
        ]
        for name in (LENGTH, RATE)
    )
    if not lengths:
        return None
    return Acceptance(
        source="sglang",
        length=_rounded(fmean(lengths)),
        rate=_rounded(fmean(rates)) if rates else None,
    )


# The first that has something to tell counts.
METRICS = (
    MetricsOf(
        source="vllm",
        words="by vLLM's own count",
        read=_of_vllm,
        prefix="vllm:",
        drafts=DRAFTS,
    ),
    MetricsOf(source="tgi", words="by TGI's own count", read=_of_tgi),
    MetricsOf(source="sglang", words="by SGLang's own gauges", read=_of_sglang),
)


def _of_chunks(answers: Sequence[ProbeResponse]) -> Acceptance | None:
    """Estimate: each step makes one chunk. The first token comes of the prompt."""
    tokens = sum(answer.tokens - 1 for answer in answers if answer.chunks > 1)
    chunks = sum(answer.chunks - 1 for answer in answers if answer.chunks > 1)
    if not chunks:
        return None
    return Acceptance(source=CHUNKS, length=_rounded(tokens / chunks), rate=None)


def _readings(text: str, starts: tuple[str, ...] = ("",)) -> list[Reading]:
    try:
        return [one for one in read_metrics(text, starts) if abs(one.value) < _LARGEST]
    except ValueError:
        return []  # a page of another server: it has no such metrics


def _counts(readings: Sequence[Reading]) -> dict[tuple[str, str], float]:
    counts: dict[tuple[str, str], float] = {}
    for one in readings:
        if one.name.startswith((_VLLM, SKIPPED)) and not one.name.endswith("_created"):
            position = one.labels.get("position", "")
            if one.name != BY_POSITION or _POSITION.fullmatch(position):
                key = (one.name, position)
                counts[key] = counts.get(key, 0.0) + one.value
    return counts


def _grown(before: Counts, after: Counts) -> dict[tuple[str, str], float]:
    return {key: value - before.get(key, 0.0) for key, value in after.items()}


def _rounded(value: float) -> float:
    return round(value, 4)
