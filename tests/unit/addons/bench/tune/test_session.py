"""A tune over candidates of known speed: who wins, what it costs, and what is gone on with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.addons.bench.tune.figures import bench_report
from packager.addons.bench.tune.halving import Done
from packager.addons.bench.tune.journal import Failed, Rated, Retried, TuneJournal, open_journal
from packager.addons.bench.tune.results import make_report
from packager.addons.bench.tune.session import Race, TuneBudget, tune
from packager.core.bench import Limits
from packager.core.errors import OutputFailed, QualityRejected, SmokeFailed, Unavailable, UsageError
from packager.core.workload import QUESTIONS
from tests.support.tuning import ASKED, SPEEDS, STARTED, FakeWorkshop, a_field, a_load

RACE = Race(goal="throughput")
BEST = "--quantize awq --draft ngram"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[TuneJournal]:
    with open_journal(tmp_path / "tune.jsonl", ASKED, now=STARTED) as opened:
        yield opened


def run(journal: TuneJournal, workshop: FakeWorkshop, race: Race = RACE) -> Done:
    seconds = itertools.count()
    return tune(a_field(), race, journal, workshop, clock=lambda: float(next(seconds)))


@pytest.mark.parametrize("seed", range(20))
def test_it_finds_the_best_in_at_most_60_percent_of_all_rounds(
    journal: TuneJournal, seed: int
) -> None:
    workshop = FakeWorkshop(seed=seed)

    assert run(journal, workshop).best == BEST.replace(" ", "")
    assert len(workshop.measured) <= 14  # of 8 candidates in 3 rounds: 24


def test_every_candidate_is_built_once(journal: TuneJournal) -> None:
    workshop = FakeWorkshop()

    run(journal, workshop)

    built = [one for one in workshop.done if one.startswith("build")]
    assert sorted(built) == sorted(f"build {name}" for name in SPEEDS)


def test_a_candidate_that_fails_is_a_result_with_its_reason(journal: TuneJournal) -> None:
    workshop = FakeWorkshop(
        broken={
            f"build {BEST}": QualityRejected("a KL divergence of 0.4 is above 0.1", figures={}),
            "start --quantize awq": SmokeFailed("the container ended with status 1"),
        },
        loads={"--draft ngram": a_load(500.0, answered=20)},
    )

    done = run(journal, workshop)

    assert done.best == "--kv-dtypefp8"
    report = make_report(
        a_field(), RACE, done, journal, model="m", instance="local", concurrency=(8,)
    )
    assert {one.name: (one.stage, one.reason) for one in report.candidates if one.reason} == {
        BEST: ("build", "a KL divergence of 0.4 is above 0.1"),
        "--quantize awq": ("start", "the container ended with status 1"),
        "--draft ngram": ("load", "12 of 32 requests got no answer: the answer ended early"),
    }
    assert report.best == "--kv-dtype fp8"


@pytest.mark.parametrize("error", [Unavailable("the engine is gone"), OutputFailed("disk full")])
def test_what_no_candidate_is_to_blame_for_ends_it(
    journal: TuneJournal, error: OutputFailed
) -> None:
    workshop = FakeWorkshop(broken={"start --quantize awq": error})

    with pytest.raises(type(error)):
        run(journal, workshop)

    assert not [one for one in journal.events if isinstance(one, Failed)]


def test_a_larger_budget_goes_on_where_the_smaller_ended(journal: TuneJournal) -> None:
    small = FakeWorkshop()
    run(journal, small, Race(goal="throughput", budget=TuneBudget(measurements=5)))
    assert len(small.measured) == 5

    large = FakeWorkshop()
    done = run(journal, large, Race(goal="throughput", budget=TuneBudget(measurements=14)))

    assert done.best == BEST.replace(" ", "")
    assert not set(small.measured) & set(large.measured)


def test_a_budget_of_time_counts_building_too(journal: TuneJournal) -> None:
    workshop = FakeWorkshop()  # building and measuring take a second each

    done = run(journal, workshop, Race(goal="throughput", budget=TuneBudget(seconds=6)))

    assert done.reason == "budget"
    assert workshop.measured == ["as requested 0", "--draft ngram 0", "--quantize awq 0"]


def test_dollars_are_seconds_at_the_price_of_an_hour() -> None:
    budget = TuneBudget(usd=0.01, usd_hour=36.0)  # a cent a second

    assert budget.share(1.0, 1, candidates=8, rounds=3) == pytest.approx(1.0)


def test_of_several_budgets_the_first_to_end_counts() -> None:
    budget = TuneBudget(seconds=100.0, measurements=10)

    assert budget.share(50.0, 1, candidates=8, rounds=3) == 0.5
    assert budget.share(1.0, 1, candidates=8, rounds=3) == 0.1


def test_dollars_without_a_price_are_refused() -> None:
    with pytest.raises(UsageError) as refused:
        TuneBudget(usd=5.0)

    assert refused.value.message == (
        "a budget in dollars needs the price of an hour, and none is known"
    )


def test_a_slower_candidate_within_the_limits_beats_a_faster_one_beyond(
    journal: TuneJournal,
) -> None:
    workshop = FakeWorkshop(loads={BEST: a_load(200.0, ttft_ms=900.0)})

    done = run(journal, workshop, Race(goal="throughput", limits=Limits(ttft_ms=500.0)))

    assert done.best == "--quantizeawq"


def test_failures_are_tried_again_when_told_to(journal: TuneJournal) -> None:
    broken = FakeWorkshop(broken={f"start {BEST}": SmokeFailed("no memory")})
    assert run(journal, broken).best == "--quantizeawq"

    journal.append(Retried())
    mended = FakeWorkshop()

    assert run(journal, mended).best == BEST.replace(" ", "")
    assert f"build {BEST}" not in mended.done  # it was built before it failed to start


def test_what_cannot_be_told_from_the_best_is_tied_with_it(journal: TuneJournal) -> None:
    workshop = FakeWorkshop(speeds={**SPEEDS, "--quantize awq": 200.0}, noise=0.0)

    done = run(journal, workshop)

    report = make_report(
        a_field(), RACE, done, journal, model="m", instance="local", concurrency=(8,)
    )
    states = {one.name: one.state for one in report.candidates}
    assert {states[BEST], states["--quantize awq"]} == {"best", "tied"}
    assert states["--quantize fp8"] == "worse"


def test_figures_of_a_candidate_are_those_of_its_middle_round(journal: TuneJournal) -> None:
    for number, speed in enumerate((300.0, 100.0, 200.0)):
        rated = Rated(
            candidate="asrequested",
            name="as requested",
            round=number,
            loads=(a_load(speed),),
            seconds=1.0,
        )
        journal.append(rated)

    report = bench_report(a_field(), RACE, journal, workload=QUESTIONS, machine="")

    (load,) = report.variants[0].loads
    assert load.metrics["output_token_throughput"].avg == 200.0
    assert report.variants[1].loads == ()
