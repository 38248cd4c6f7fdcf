"""Quality and speed gates of an optimization job's result, judged by confidence intervals.

A gate fails a job only where the whole interval is beyond the allowed loss, so noisy rounds fail
nothing. Each gate has an allowed loss, and reports the figures behind its verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from packager.addons.bench.compare import OUTPUT, TPOT, TTFT
from packager.addons.bench.intervals import CONFIDENCE, t_quantile
from packager.core.bench import BenchReport, Compared
from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.quality import MAX_KLD, MIN_TOP1, QualityReport

Verdict = Literal["better", "worse", "undecided"]
GateName = Literal["throughput", "worst-load", "first-token", "token-time", "kld", "first-choice"]

GATES: tuple[GateName, ...] = get_args(GateName)
USUAL = "throughput"  # of `--gate` without names
ALL = "all"
_METRICS: Mapping[str, tuple[str, str]] = {  # gate → metric, and its label
    "throughput": (OUTPUT, "tokens/s"),
    "worst-load": (OUTPUT, "worst load, tokens/s"),
    "first-token": (TTFT, "first token"),
    "token-time": (TPOT, "time per token"),
}
_LIMITS: Mapping[str, float] = {"kld": MAX_KLD, "first-choice": MIN_TOP1}
_WORDS: Mapping[bool, Mapping[Verdict, str]] = {  # by whether more is better
    True: {"better": "faster", "worse": "slower", "undecided": "no difference beyond noise"},
    False: {"better": "sooner", "worse": "later", "undecided": "no difference beyond noise"},
}
_MOST = 10.0  # largest ratio that a gate may allow


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityGate:
    """A figure, and the loss that is allowed: a share, or the limit of a figure of quality."""

    name: GateName
    allowed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A gate's result; `verdict` is None where nothing was measured."""

    gate: QualityGate
    verdict: Verdict | None
    words: str  # `tokens/s: slower at 4 of 5 loads`

    @property
    def fails(self) -> bool:
        """Whether the loss exceeds the allowed one."""
        return self.verdict == "worse"


def parse_gates(text: str) -> tuple[QualityGate, ...]:
    """Read `throughput,first-token=10%,kld=0.05`; raises `UsageError`."""
    found: dict[str, QualityGate] = {}
    for word in text.split(","):
        name, equals, amount = word.strip().partition("=")
        if name == ALL and not equals:
            found |= {gate.name: gate for gate in all_gates() if gate.name not in found}
            continue
        known = next((one for one in GATES if one == name), None)
        if known is None:
            raise UsageError(
                f"--gate {shorten(name, 40)!r} is no figure that a job measures",
                hint=f"choose of {', '.join(GATES)}, or all",
            )
        found[known] = QualityGate(name=known, allowed=_allowed(known, amount, bool(equals)))
    return tuple(found.values())


def gate_text(gates: Iterable[QualityGate]) -> str:
    """Return gates as `parse_gates` reads them."""
    return ",".join(
        one.name if one.allowed == _LIMITS.get(one.name, 0.0) else f"{one.name}={one.allowed:g}"
        for one in gates
    )


def all_gates() -> tuple[QualityGate, ...]:
    """Return every gate with its default allowed loss."""
    return tuple(QualityGate(name=name, allowed=_LIMITS.get(name, 0.0)) for name in GATES)


def judge(gate: QualityGate, report: BenchReport | None, quality: QualityReport | None) -> Judged:
    """Compare the last variant of a report with its first, or a model's quality with a limit."""
    if gate.name in _LIMITS:
        return _judged_quality(gate, quality)
    ratios = _of_result(report, _METRICS[gate.name][0]) if report is not None else []
    if not ratios:
        return Judged(gate=gate, verdict=None, words=f"{_METRICS[gate.name][1]}: not measured")
    assert report is not None
    if gate.name == "worst-load":
        return _judged_worst(gate, ratios, report.rounds)
    return _judged_most(gate, ratios)


def _judged_most(gate: QualityGate, ratios: Sequence[Compared]) -> Judged:
    """Judge a figure by most loads: most must agree, and none may be the opposite.

    Of five loads without a difference, one in four measurements has an interval beyond 1 by
    chance.
    """
    more_is_better = _METRICS[gate.name][0] == OUTPUT
    lost = [one for one in ratios if _is_beyond(one, gate.allowed, higher=not more_is_better)]
    worse = [one for one in ratios if _is_beyond(one, 0.0, higher=not more_is_better)]
    better = [one for one in ratios if _is_beyond(one, 0.0, higher=more_is_better)]
    verdict: Verdict = "undecided"
    if 2 * len(lost) > len(ratios) and not better:
        verdict = "worse"
    elif 2 * len(better) > len(ratios) and not worse:
        verdict = "better"
    name, words = _METRICS[gate.name][1], _WORDS[more_is_better][verdict]
    count = {"better": len(better), "worse": len(lost)}.get(verdict)
    at = "" if count is None else f" at {count} of {len(ratios)} loads{_beyond(gate)}"
    return Judged(gate=gate, verdict=verdict, words=f"{name}: {words}{at}")


def _judged_worst(gate: QualityGate, ratios: Sequence[Compared], rounds: int) -> Judged:
    """Judge the load that lost most, by an interval that holds for all loads together."""
    worst = min(ratios, key=lambda one: one.ratio)
    name = _METRICS[gate.name][1]
    known = [one for one in ratios if one.low and one.high]
    if worst not in known or rounds < 2:
        return Judged(gate=gate, verdict="undecided", words=f"{name}: from too few rounds")
    confidence: float = CONFIDENCE ** (1 / len(known))  # each alone, so that all hold together
    widen = t_quantile(rounds - 1, confidence) / t_quantile(rounds - 1)
    low, high = (_widened(worst, bound, widen) for bound in (worst.low, worst.high))
    verdict: Verdict = "undecided"
    if high < 1 - gate.allowed:
        verdict = "worse"
    elif len(known) == len(ratios) and all((one.low or 0) > 1 for one in known):
        verdict = "better"
    words = (
        f"{name}: {_WORDS[True][verdict]}{_beyond(gate) if verdict == 'worse' else ''}, "
        f"x{worst.ratio:.2f} at {worst.concurrency} at a time "
        f"(95 % of all loads together between x{low:.2f} and x{high:.2f})"
    )
    return Judged(gate=gate, verdict=verdict, words=words)


def _judged_quality(gate: QualityGate, report: QualityReport | None) -> Judged:
    if gate.name == "kld":
        name, found = "mean KLD", None if report is None else report.quality.kld_mean
        error = 0.0 if report is None else report.quality.kld_mean_ci95 or 0.0
        is_lost = found is not None and found - error > gate.allowed
        shown, limit = f"{found or 0:.3g} ± {error:.2g} nats", f"over {gate.allowed:g}"
    else:
        name, found = "same first choice", None if report is None else report.quality.top1_agreement
        error = 0.0 if report is None else report.quality.top1_agreement_ci95 or 0.0
        is_lost = found is not None and found + error < gate.allowed
        shown = f"{100 * (found or 0):.1f} % ± {100 * error:.1f}"
        limit = f"under {_share(gate.allowed)}"
    if found is None:
        return Judged(gate=gate, verdict=None, words=f"{name}: not measured")
    is_over = found > gate.allowed if gate.name == "kld" else found < gate.allowed
    verdict_words = (
        limit if is_lost else f"{limit}, within its interval" if is_over else f"not {limit}"
    )
    verdict: Verdict = "worse" if is_lost else "undecided"
    return Judged(gate=gate, verdict=verdict, words=f"{name}: {shown}, {verdict_words}")


def _of_result(report: BenchReport, metric: str) -> list[Compared]:
    name = report.variants[-1].name
    return [one for one in report.compared if one.variant == name and one.metric == metric]


def _is_beyond(one: Compared, allowed: float, *, higher: bool) -> bool:
    """Return whether a ratio's whole interval is above, or below, 1 by more than allowed."""
    if one.low is None or one.high is None:
        return False
    return one.low > 1 + allowed if higher else one.high < 1 - allowed


def _widened(one: Compared, bound: float | None, times: float) -> float:
    return one.ratio * math.exp(times * math.log((bound or one.ratio) / one.ratio))


def _beyond(gate: QualityGate) -> str:
    return f", by more than {_share(gate.allowed)}" if gate.allowed else ""


def _share(amount: float) -> str:
    return f"{100 * amount:g} %"


def _allowed(name: GateName, text: str, is_given: bool) -> float:
    if not is_given:
        return _LIMITS.get(name, 0.0)
    most = 1.0 if name in ("throughput", "worst-load", "first-choice") else _MOST
    number = text.strip()
    is_percent = number.endswith("%") and name != "kld"
    try:
        amount = float(number.removesuffix("%")) / 100 if is_percent else float(number)
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= most:  # nan is neither
        unit = "nats" if name == "kld" else "a share, such as 5%"
        raise UsageError(
            f"--gate {name}={shorten(text, 40)} is not from 0 to {most:g}",
            hint=f"give {unit}, or {name} alone",
        )
    return amount
