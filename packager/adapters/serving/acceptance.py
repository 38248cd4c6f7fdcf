"""What engines tell of speculation in their metrics.

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
from collections.abc import Mapping, Sequence
from statistics import fmean

from packager.adapters.serving.prometheus import Reading, read_metrics
from packager.core.asking import Answer
from packager.core.speculation import Acceptance

_VLLM = "vllm:spec_decode_num_"
DRAFTS, DRAFT_TOKENS, ACCEPTED = (
    f"{_VLLM}{name}_total" for name in ("drafts", "draft_tokens", "accepted_tokens")
)
BY_POSITION = f"{_VLLM}accepted_tokens_per_pos_total"
SKIPPED = "tgi_request_skipped_tokens"
LENGTH, RATE = "sglang:spec_accept_length", "sglang:spec_accept_rate"

_LARGEST = 2**53  # numbers past it are not counted, they are made up
_POSITION = re.compile(r"0|[1-9]\d{0,3}", re.ASCII)

Counts = Mapping[tuple[str, str], float]  # (name, position) → sum over engines


def speculates(text: str) -> bool | None:
    """Say whether the server has a draft; None where its metrics do not tell."""
    names = {reading.name for reading in _readings(text)}
    if any(name.startswith("vllm:") for name in names):
        return DRAFTS in names
    return None


def acceptance(
    texts: Sequence[str], answers: Sequence[Answer], alone: Sequence[Answer]
) -> Acceptance | None:
    """Give what was accepted between the first and the last reading of a server's metrics.

    `answers` are all those in between, `alone` those that were asked for one at a time: where
    no metric helps, their chunks do.  A server under load may put steps into one chunk.
    """
    readings = [_readings(text) for text in texts]
    answered = [answer for answer in answers if not answer.error]
    return (
        _of_vllm(_counts(readings[0]), _counts(readings[-1]))
        or _of_tgi(_counts(readings[0]), _counts(readings[-1]), len(answered))
        or _of_sglang(readings[1:])
        or _of_chunks([answer for answer in alone if not answer.error])
    )


def _of_vllm(before: Counts, after: Counts) -> Acceptance | None:
    if (DRAFTS, "") not in after:
        return None
    grown = _grown(before, after)
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


def _of_tgi(before: Counts, after: Counts, requests: int) -> Acceptance | None:
    grown = _grown(before, after)
    steps = grown.get((f"{SKIPPED}_count", ""), 0.0) - requests
    accepted = grown.get((f"{SKIPPED}_sum", ""), 0.0)
    if steps <= 0 or accepted < 0:
        return None
    return Acceptance(
        source="tgi",
        length=_rounded(1 + accepted / steps),
        rate=None,
        accepted_tokens=round(accepted),
    )


def _of_sglang(readings: Sequence[Sequence[Reading]]) -> Acceptance | None:
    lengths, rates = (
        [one.value for some in readings for one in some if one.name == name and one.value > 0]
        for name in (LENGTH, RATE)
    )
    if not lengths:
        return None
    return Acceptance(
        source="sglang",
        length=_rounded(fmean(lengths)),
        rate=_rounded(fmean(rates)) if rates else None,
    )


def _of_chunks(answers: Sequence[Answer]) -> Acceptance | None:
    """Estimate: each step makes one chunk. The first token comes of the prompt."""
    tokens = sum(answer.tokens - 1 for answer in answers if answer.chunks > 1)
    chunks = sum(answer.chunks - 1 for answer in answers if answer.chunks > 1)
    if not chunks:
        return None
    return Acceptance(source="chunks", length=_rounded(tokens / chunks), rate=None)


def _readings(text: str) -> list[Reading]:
    try:
        return [reading for reading in read_metrics(text) if abs(reading.value) < _LARGEST]
    except ValueError:
        return []  # another server's page; there is nothing to learn of it


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
