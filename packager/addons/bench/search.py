"""Searches over concurrency: the most requests at a time within limits, and the knee.

The caller passes the measuring function.  One measurement is noisy, so decisive points are measured
again: one near a limit, and the two that the answer depends on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from packager.core.bench import BenchLoad, Boundary, Limits

MOST = 1024  # requests at a time; AIPerf's searches end at 1,000
MOST_MEASUREMENTS = 40
NEAR = 0.05  # a value this close to its limit, as a share, is measured again
MOST_ERRORS_PERCENT = 1.0
REPEATS = 3  # of one point at most: two that disagree need a third

# Limits of a search are kept by AIPerf's `max-concurrency-under-sla` in these statistics.
TTFT, TPOT, LATENCY = "time_to_first_token", "inter_token_latency", "request_latency"
ERRORS = "request_error_rate"
STATISTICS: Mapping[str, Literal["p95", "p99", "avg"]] = MappingProxyType(
    {TTFT: "p95", TPOT: "p95", LATENCY: "p99", ERRORS: "avg"}
)

Reason = Literal[
    "boundary",  # the boundary is known to one request at a time
    "no-failure-in-range",  # the most that may be tried is within the limits
    "no-pass-in-range",  # not even one request at a time is
    "knee",
    "no-knee-in-range",  # more requests at a time still pay
    "budget",  # as many measurements as were allowed
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPoint:
    """One measurement, as far as a search looks at it."""

    concurrency: int
    output_token_throughput: float | None  # tokens/s; None: no answer
    latency_ms: float | None = None  # mean of the requests
    observed: Mapping[str, float | None] = field(default_factory=lambda: MappingProxyType({}))
    # by tag, in its statistic; None: the metric is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A metric that is not below its limit. AIPerf's conditions are `lt`, not `le`."""

    tag: str
    statistic: str
    limit: float
    observed: float | None  # None: missing value, which breaks every limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One step of a search."""

    number: int  # from 0
    point: SearchPoint
    breaches: tuple[Breach, ...] = ()
    is_contradicted: bool = False  # by what was known: as many or fewer failed, or more passed

    @property
    def is_feasible(self) -> bool:
        return not self.breaches


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The end of a search, with every step."""

    boundary: Boundary
    reason: Reason
    trials: tuple[Trial, ...]
    objective: float | None = None  # tokens/s at the boundary
    limits: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # by tag


def point_of(load: BenchLoad) -> SearchPoint:
    """Read what a search needs of a load.

    Raises ValueError for a load without a concurrency.
    """
    if load.concurrency is None:
        raise ValueError("a search needs loads with a concurrency, not with a rate")
    observed: dict[str, float | None] = {}
    for tag, statistic in STATISTICS.items():
        metric = load.metrics.get(tag)
        observed[tag] = None if metric is None else getattr(metric, statistic)
    if observed[ERRORS] is None:
        failed = load.requests - load.answered
        observed[ERRORS] = 100 * failed / load.requests if load.requests else 100.0
    throughput = load.metrics.get("output_token_throughput")
    latency = load.metrics.get(LATENCY)
    return SearchPoint(
        concurrency=load.concurrency,
        output_token_throughput=throughput.avg if throughput else None,
        latency_ms=latency.avg if latency else None,
        observed=observed,
    )


def limits_by_tag(limits: Limits) -> dict[str, float]:
    """Return each limit by its metric's tag; errors are always limited to 1 %."""
    given = {TTFT: limits.ttft_ms, TPOT: limits.tpot_ms, LATENCY: limits.latency_ms}
    by_tag = {tag: limit for tag, limit in given.items() if limit is not None}
    return by_tag | {ERRORS: MOST_ERRORS_PERCENT}


def find_max_concurrency(
    measure: Callable[[int], SearchPoint],
    limits: Limits,
    *,
    most: int = MOST,
    start: int = 1,
    most_measurements: int = MOST_MEASUREMENTS,
) -> SearchResult:
    """Find the most requests at a time within all limits, by doubling and then halving.

    Takes about 2 log2(boundary) measurements, and some more where they are near a limit or
    contradict each other.  Both sides of the answer are measured at least twice.
    """
    search = _Search(measure=measure, limits=limits_by_tag(limits), left=most_measurements)
    start = max(1, min(start, most))
    while True:
        passed, failed = search.bracket()
        following: int | None
        if failed is None and passed < most:
            following = min(most, max(start, 2 * passed))
        elif failed is not None and failed - passed > 1:
            following = max(1, (passed + failed) // 2)
        else:
            following = search.unconfirmed(passed, failed)
        if not following:
            reason: Reason = "boundary"
            if failed is None:
                reason = "no-failure-in-range"
            elif not passed:
                reason = "no-pass-in-range"
            return search.end(reason)
        if not search.judge(following):
            return search.end("budget")


@dataclass(slots=True, kw_only=True)
class _Search:
    """Measurements by now; a point's verdict is that of most of its measurements."""

    measure: Callable[[int], SearchPoint]
    limits: Mapping[str, float]
    left: int
    trials: list[Trial] = field(default_factory=list)

    def verdict(self, concurrency: int) -> bool | None:
        """Return whether a point is within the limits; None: not measured, or undecided."""
        votes = [one.is_feasible for one in self.trials if one.point.concurrency == concurrency]
        if 2 * sum(votes) == len(votes):
            return None
        return 2 * sum(votes) > len(votes)

    def bracket(self) -> tuple[int, int | None]:
        """Return the most that passed below the least that failed (0, None: there is none)."""
        tried = {one.point.concurrency for one in self.trials}
        verdicts = {number: bool(self.verdict(number)) for number in tried}
        failed = min((number for number, passed in verdicts.items() if not passed), default=None)
        passing = (
            number
            for number, passed in verdicts.items()
            if passed and (failed is None or number < failed)
        )
        return max(passing, default=0), failed

    def unconfirmed(self, passed: int, failed: int | None) -> int | None:
        """Return the side of the boundary that was measured only once."""
        for number in (failed, passed or None):
            if number and self._count(number) == 1:
                return number
        return None

    def judge(self, concurrency: int) -> bool:
        """Measure a point until it is decided. False: the measurements are used up first."""
        while True:
            if self.left <= 0:
                return False
            self._try(concurrency)
            count = self._count(concurrency)
            if count >= REPEATS:
                return True
            if self.verdict(concurrency) is not None and (count > 1 or not self._is_near()):
                return True

    def _count(self, concurrency: int) -> int:
        return sum(one.point.concurrency == concurrency for one in self.trials)

    def _try(self, concurrency: int) -> None:
        point = self.measure(concurrency)
        self.left -= 1
        breaches = tuple(find_breaches(point, self.limits))
        tried = {one.point.concurrency for one in self.trials}
        contradicts = any(self._disagrees(number, concurrency, not breaches) for number in tried)
        self.trials.append(
            Trial(
                number=len(self.trials),
                point=point,
                breaches=breaches,
                is_contradicted=contradicts,
            )
        )

    def _disagrees(self, known: int, concurrency: int, is_feasible: bool) -> bool:
        """Whether what is known of a point contradicts a new measurement."""
        verdict = self.verdict(known)
        if verdict is None or verdict == is_feasible:
            return False
        return known == concurrency or (known > concurrency) == verdict

    def _is_near(self) -> bool:
        """Whether the last measurement would be judged otherwise with a little noise."""
        last = self.trials[-1].point.observed
        shares = [
            value / limit
            for tag, limit in self.limits.items()
            if tag != ERRORS and limit > 0 and (value := last.get(tag)) is not None
        ]
        return bool(shares) and abs(max(shares) - 1) <= NEAR

    def end(self, reason: Reason) -> SearchResult:
        passed, failed = self.bracket()
        breach = self._latest(failed, feasible=False)
        best = self._latest(passed, feasible=True)
        first = breach.breaches[0] if breach else None
        return SearchResult(
            boundary=Boundary(
                what="max-concurrency",
                feasible=passed or None,
                infeasible=failed,
                breach=first.tag if first else "",
                breach_value=first.observed if first else None,
            ),
            reason=reason,
            trials=tuple(self.trials),
            objective=best.point.output_token_throughput if best else None,
            limits=self.limits,
        )

    def _latest(self, concurrency: int | None, *, feasible: bool) -> Trial | None:
        for trial in reversed(self.trials):
            if trial.point.concurrency == concurrency and trial.is_feasible == feasible:
                return trial
        return None


def find_breaches(point: SearchPoint, limits: Mapping[str, float]) -> list[Breach]:
    """List the limits that a point does not keep, in their order. A missing value keeps none."""
    breaches = []
    for tag, limit in limits.items():
        observed = point.observed.get(tag)
        if observed is None or not observed < limit:
            breaches.append(
                Breach(tag=tag, statistic=STATISTICS[tag], limit=limit, observed=observed)
            )
    return breaches


def power(point: SearchPoint) -> float | None:
    """Return tokens/s over the latency in seconds: Kleinrock's power. None: no answers."""
    if not point.output_token_throughput or not point.latency_ms:
        return None
    return point.output_token_throughput / (point.latency_ms / 1e3)


def find_knee(
    measure: Callable[[int], SearchPoint],
    *,
    most: int = MOST,
    start: int = 1,
    most_measurements: int = MOST_MEASUREMENTS,
) -> SearchResult:
    """Find the concurrency from which more requests cost more latency than they gain throughput.

    The knee is where throughput over latency is greatest (Kleinrock, "Power and deterministic rules
    of thumb for probabilistic problems in computer communications", 1979).  For a server that is
    linear up to saturation, it is the point of saturation; it needs no threshold, and it does not
    move with the range that is measured, as definitions by a normalized curve do.  Concurrency is
    doubled until the power has fallen twice, or by half; then points halfway, by ratio, to both
    neighbours of the best are measured once.
    """
    points: dict[int, SearchPoint] = {}
    trials: list[Trial] = []

    def look(concurrency: int) -> float:
        point = measure(concurrency)
        points[concurrency] = point
        breaches = tuple(find_breaches(point, {ERRORS: MOST_ERRORS_PERCENT}))
        trials.append(Trial(number=len(trials), point=point, breaches=breaches))
        return 0.0 if breaches else power(point) or 0.0

    powers: dict[int, float] = {}
    following = max(1, min(start, most))
    reason: Reason | None = None
    while reason is None:
        if len(trials) >= most_measurements:
            reason = "budget"
            break
        powers[following] = look(following)
        falls = [value for number, value in powers.items() if number > _best(powers)]
        if len(falls) > 1 or (falls and falls[-1] <= powers[_best(powers)] / 2):
            reason = "knee"
        elif following == most:
            reason = "knee" if falls else "no-knee-in-range"
        following = min(most, 2 * following)
    if reason == "knee":
        for number in _halfway(sorted(powers), _best(powers)):
            if len(trials) < most_measurements:
                powers[number] = look(number)
    return _knee(powers, points, trials, reason)


def _best(powers: Mapping[int, float]) -> int:
    """Return the concurrency of the greatest power, the least of equal ones."""
    return min(powers, key=lambda number: (-powers[number], number))


def _halfway(numbers: list[int], best: int) -> list[int]:
    place = numbers.index(best)
    neighbours = numbers[max(0, place - 1) : place] + numbers[place + 1 : place + 2]
    middles = (round(math.sqrt(best * other)) for other in neighbours)
    return [middle for middle in middles if middle not in numbers]


def _knee(
    powers: Mapping[int, float],
    points: Mapping[int, SearchPoint],
    trials: list[Trial],
    reason: Reason,
) -> SearchResult:
    best = _best(powers) if powers else None
    if best is not None and not powers[best]:
        best, reason = None, "no-pass-in-range"
    is_found = best is not None and reason == "knee"
    beyond = [number for number in powers if best is not None and number > best]
    return SearchResult(
        boundary=Boundary(
            what="knee",
            feasible=best if is_found else None,
            infeasible=min(beyond, default=None) if is_found else None,
        ),
        reason=reason,
        trials=tuple(trials),
        objective=points[best].output_token_throughput if best is not None and is_found else None,
        limits={ERRORS: MOST_ERRORS_PERCENT},
    )
