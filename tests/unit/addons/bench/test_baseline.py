"""A benchmark against an earlier one: only an interval says that something is slower."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from packager.addons.bench.baseline import (
    EXIT_SLOWER,
    against_baseline,
    check_baseline,
    refuse_slower,
    unpaired_ratio,
)
from packager.addons.bench.merge import Named
from packager.core.bench import BenchLoad, BenchReport, BenchVariant, BenchWorkload, Metric, Round
from packager.core.errors import BenchRejected, UsageError


def measured(
    speeds: Sequence[float], firsts: Sequence[float], *, at_once: int = 4, workload: str = "chat"
) -> BenchReport:
    rounds = tuple(
        Round(
            seconds=1.0,
            requests=8,
            failed=0,
            output_token_throughput=speed,
            ttft_p50_ms=first,
        )
        for speed, first in zip(speeds, firsts, strict=True)
    )
    load = BenchLoad(
        concurrency=at_once,
        requests=8,
        answered=8,
        seconds=1.0,
        metrics={"output_token_throughput": Metric(unit="tokens/sec", avg=speeds[0])},
        rounds=rounds,
    )
    return BenchReport(
        packager_version="0",
        measured="2026-11-30T00:00:00Z",
        workload=BenchWorkload(name=workload, input_tokens=1, output_tokens=1),
        rounds=len(rounds),
        variants=(BenchVariant(name="tiny", loads=(load,)),),
    )


STEADY = (100.0, 101.0, 99.0)
FIRST = (20.0, 21.0, 19.0)
BASE = Named(name="base.json", report=measured(STEADY, FIRST))


def test_an_interval_is_welch_s() -> None:
    """By hand: 3.4 degrees of freedom, of which 3 are whole, and their 95 % of Student."""
    found = unpaired_ratio([0.0, 0.1, 0.2], [1.0, 1.1, 1.3])

    assert found.ratio == pytest.approx(math.exp(1.0333333))
    assert found.low is not None and found.high is not None
    half = 3.18244631 * math.sqrt(0.01 / 3 + 0.0233333333 / 3)
    assert math.log(found.high / found.ratio) == pytest.approx(half, rel=1e-6)
    assert math.log(found.ratio / found.low) == pytest.approx(half, rel=1e-6)


@pytest.mark.parametrize(
    ("speeds", "firsts", "slower"),
    [
        (STEADY, FIRST, ""),
        ((98.0, 103.0, 97.0), (20.5, 18.9, 21.9), ""),  # within the noise
        ((150.0, 151.0, 149.0), (10.0, 11.0, 10.5), ""),  # faster
        ((80.0, 81.0, 79.0), FIRST, "output tokens a second at 4 at once is 0.8 times"),
        (STEADY, (40.0, 42.0, 38.0), "time to first token at 4 at once is 2 times"),
    ],
)
def test_what_an_interval_calls_slower_has_a_status_of_its_own(
    speeds: tuple[float, ...], firsts: tuple[float, ...], slower: str
) -> None:
    both = against_baseline(measured(speeds, firsts), BASE)

    assert [one.name for one in both.variants] == ["tiny (baseline)", "tiny (now)"]
    if not slower:
        refuse_slower(both)
        return
    with pytest.raises(BenchRejected, match=slower) as caught:
        refuse_slower(both)
    assert caught.value.exit_code == EXIT_SLOWER == 9
    assert caught.value.figures["variants"]


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        (measured((100.0, 101.0), (20.0, 21.0)), "has 2 rounds of a load"),
        (BASE.report.model_copy(update={"variants": ()}), "not a benchmark of one server"),
    ],
    ids=["two rounds", "nothing"],
)
def test_a_baseline_that_can_tell_nothing_is_refused_at_once(
    baseline: BenchReport, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        check_baseline(Named(name="base.json", report=baseline))


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (measured(STEADY, FIRST, workload="code"), "sent other requests"),
        (measured(STEADY, FIRST, at_once=8), "no load was measured that the baseline"),
    ],
    ids=["other requests", "another load"],
)
def test_what_cannot_be_compared_is_refused(now: BenchReport, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        against_baseline(now, BASE)
