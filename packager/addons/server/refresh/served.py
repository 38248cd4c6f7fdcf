"""Figures of a server in traffic, from its metrics, and when a new head is worse by them. Pure.

Counters start with the server, so a reading is about everything that it has served.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from packager.cli.serving.acceptance import ACCEPTED, BY_POSITION, DRAFTS
from packager.cli.serving.prometheus import Reading, read_metrics
from packager.core.strict_models import StrictDocument

_FIRST, _EACH = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"
_EACH_BEFORE = "vllm:time_per_output_token_seconds"  # its name in earlier versions
_PREFIX = _FIRST[: _FIRST.index(":") + 1]  # of all metrics of its engine
_ANSWERS = "http_requests_total"
_Z = 3.0  # deviations: a watch looks again and again
_ERRORS = 3  # fewer are chance

WatchVerdict = Literal["goes on", "well", "worse"]


class WatchRules(StrictDocument):
    """When a new head is taken back."""

    seconds: float = 600.0  # of the watch, at least
    requests: int = 200  # that it answers within it, at least
    longest_s: float = 3600.0  # of a watch without as many
    errors: float = 0.01  # more of all answers than before
    slower: float = 0.10  # of the time to the first token and of each token, 95th percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFigures:
    """What a server says of the traffic that it has had."""

    requests: int
    errors: int  # answers of status 5xx
    drafts: int
    accepted: int
    spread: float = 0.0  # standard deviation of the tokens that one draft has accepted
    first_p95_s: float | None = None
    each_p95_s: float | None = None

    @property
    def length(self) -> float | None:
        """Return the accepted length; None without a draft."""
        return 1 + self.accepted / self.drafts if self.drafts else None

    def document(self) -> dict[str, Any]:
        """Return the figures for the journal."""
        length = self.length
        return {**asdict(self), "length": None if length is None else round(length, 4)}


def figures_of(text: str) -> ServedFigures | None:
    """Return the figures in a server's metrics; None where they are not vLLM's."""
    try:
        readings = list(read_metrics(text, (_PREFIX, _ANSWERS)))
    except ValueError:
        return None
    if all(one.name == _ANSWERS for one in readings):
        return None
    drafts, accepted = _sum(readings, DRAFTS), _sum(readings, ACCEPTED)
    answers = [
        one
        for one in readings
        if one.name == _ANSWERS and one.labels.get("method", "POST") == "POST"
    ]
    each = _p95(readings, _EACH)
    return ServedFigures(
        requests=round(sum(one.value for one in answers)),
        errors=round(
            sum(one.value for one in answers if one.labels.get("status", "").startswith("5"))
        ),
        drafts=round(drafts),
        accepted=round(accepted),
        spread=_spread(readings, drafts, accepted),
        first_p95_s=_p95(readings, _FIRST),
        each_p95_s=_p95(readings, _EACH_BEFORE) if each is None else each,
    )


def judge(
    old: ServedFigures | None,
    new: ServedFigures | None,
    rules: WatchRules,
    *,
    seconds: float,
    restarts: int,
    answers: bool,
) -> tuple[WatchVerdict, str]:
    """Return whether the new head stays, and why not; `answers`: the server is ready."""
    if restarts:
        return "worse", f"its server has restarted {restarts} times"
    if not answers and seconds >= rules.seconds:
        return "worse", "its server does not answer"
    reason = _worse(old, new, rules) if new is not None else ""
    if reason:
        return "worse", reason
    enough = new is not None and new.requests >= rules.requests
    if seconds >= rules.seconds and enough:
        return "well", ""
    if seconds >= max(rules.longest_s, rules.seconds):
        seen = new.requests if new is not None else 0
        return "well", f"{seen} requests came within the longest watch"
    return "goes on", ""


def _worse(old: ServedFigures | None, new: ServedFigures, rules: WatchRules) -> str:
    before = old.errors / old.requests if old is not None and old.requests else 0.0
    if new.errors >= _ERRORS and new.errors > (before + rules.errors) * new.requests:
        return f"{new.errors} of {new.requests} requests failed"
    if old is None or new.requests < rules.requests or old.requests < rules.requests:
        return ""
    if old.length is not None and new.length is not None:
        # Drafts of one answer depend on each other: no more is known than by its requests.
        variance = old.spread**2 / old.requests + new.spread**2 / new.requests
        if old.length - new.length > _Z * math.sqrt(variance):
            return f"{new.length:.2f} tokens are accepted, {old.length:.2f} before"
    for name, was, now in (
        ("the first token", old.first_p95_s, new.first_p95_s),
        ("each token", old.each_p95_s, new.each_p95_s),
    ):
        if was and now and now > was * (1 + rules.slower):
            return f"{name} takes {now:.3g} s at the 95th percentile, {was:.3g} s before"
    return ""


def _sum(readings: Sequence[Reading], name: str) -> float:
    return sum(one.value for one in readings if one.name == name)


def _spread(readings: Sequence[Reading], drafts: float, accepted: float) -> float:
    """Return the deviation of accepted tokens: at least j are accepted with chance p_j."""
    if not drafts:
        return 0.0
    square = sum(
        (2 * int(one.labels.get("position", "0")) + 1) * one.value / drafts
        for one in readings
        if one.name == BY_POSITION and one.labels.get("position", "0").isdecimal()
    )
    return math.sqrt(max(square - (accepted / drafts) ** 2, 0.0))


def _p95(readings: Sequence[Reading], name: str) -> float | None:
    """Return the 95th percentile of a histogram, linear inside its bucket."""
    buckets: dict[float, float] = {}
    for one in readings:
        if one.name == f"{name}_bucket":
            bound = float(one.labels.get("le", "inf"))
            buckets[bound] = buckets.get(bound, 0.0) + one.value
    total = buckets.get(math.inf, 0.0)
    if not total:
        return None
    below, count = 0.0, 0.0
    for bound, reached in sorted(buckets.items()):
        if reached >= 0.95 * total:
            if math.isinf(bound):
                return below
            return below + (bound - below) * (0.95 * total - count) / (reached - count)
        below, count = bound, reached
    return None
