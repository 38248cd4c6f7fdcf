"""Which candidate is measured next, and which one wins."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.addons.bench.tune.halving import (
    Done,
    HalvingState,
    HalvingWork,
    MeasuredCandidate,
    default_budget,
    next_work,
)
from tests.support.cases import cases

Measure = Callable[[HalvingWork], MeasuredCandidate]


def run(state: HalvingState, measure: Measure) -> tuple[Done, list[str]]:
    """Measure until it is done; return the end and the order of measuring."""
    order = []
    for _ in range(1000):
        work = next_work(state)
        if isinstance(work, Done):
            return work, order
        order.append(work.candidate)
        state = replace(state, measured=(*state.measured, measure(work)))
    raise AssertionError("it never ends")


def exact(scores: Mapping[str, float]) -> Measure:
    return lambda work: MeasuredCandidate(candidate=work.candidate, score=scores[work.candidate])


def noisy(scores: Mapping[str, float], noise: float, seed: int) -> Measure:
    chance = random.Random(seed)
    return lambda work: MeasuredCandidate(
        candidate=work.candidate, score=scores[work.candidate] * chance.gauss(1, noise)
    )


def race(scores: Mapping[str, float], **settings: Any) -> tuple[Done, list[str]]:
    """Measure candidates whose scores are known exactly."""
    return run(HalvingState(candidates=tuple(scores), **settings), exact(scores))


def of_rounds(rounds: Mapping[str, Sequence[float]]) -> Measure:
    return lambda work: MeasuredCandidate(
        candidate=work.candidate, score=rounds[work.candidate][work.round]
    )


SIX = {"plain": 100.0, "awq": 140.0, "fp8": 150.0, "n-gram": 90.0, "draft": 230.0, "large": 110.0}


def test_the_better_half_is_measured_again() -> None:
    done, order = race(SIX)

    assert sorted(order[:6]) == sorted(SIX)
    assert sorted(order[6:9]) == ["awq", "draft", "fp8"]
    assert sorted(order[9:]) == ["draft", "fp8"]
    assert (done.best, done.reason) == ("draft", "finished")
    assert (done.measurements, done.exhaustive) == (11, 18)


def test_standings_begin_with_the_best_and_say_who_was_dropped_when() -> None:
    done, _ = race(SIX)

    assert [(one.candidate, len(one.rounds), one.dropped_at) for one in done.standings] == [
        ("draft", 3, None),
        ("fp8", 3, None),
        ("awq", 2, 1),
        ("large", 1, 0),
        ("plain", 1, 0),
        ("n-gram", 1, 0),
    ]


def test_a_candidate_that_may_be_as_good_stays() -> None:
    _, order = race({"a": 100.0, "b": 99.0, "c": 98.5, "d": 98.0, "e": 50.0})

    assert sorted(order[5:9]) == ["a", "b", "c", "d"]  # the better half is two


def test_a_budget_drops_those_that_may_be_as_good() -> None:
    close = {name: 100.0 - 0.1 * place for place, name in enumerate("abcdefgh")}
    budget = default_budget(8)

    done, order = race(close, budget=budget)

    assert (budget, len(order), done.best, done.reason) == (14, 14, "a", "finished")
    assert len(done.standings[1].rounds) == 3


def test_candidates_that_cannot_be_told_apart_tie() -> None:
    done, _ = race({"a": 100.0, "b": 99.9, "c": 60.0, "d": 50.0})

    assert [one.candidate for one in done.standings if one.ties_with_best] == ["b"]


def test_a_limit_that_is_kept_now_and_then_does_not_make_all_others_equal() -> None:
    rounds = {"a": (100.0,) * 3, "b": (80.0,) * 3, "flips": (90.0, -1.1, 90.0)}
    rounds |= {"d": (10.0,), "e": (9.0,), "f": (8.0,)}

    done, _ = run(HalvingState(candidates=tuple(rounds)), of_rounds(rounds))

    assert done.best == "a"
    assert [one.candidate for one in done.standings if one.ties_with_best] == []
    assert [len(one.rounds) for one in done.standings] == [3, 3, 2, 1, 1, 1]


def test_equal_scores_are_decided_by_the_seed_alone() -> None:
    equal = dict.fromkeys("abcd", 10.0)

    winners = [
        run(HalvingState(candidates=names, seed=seed), exact(equal))[0].best
        for seed in range(20)
        for names in (tuple("abcd"), tuple("dcba"))
    ]

    assert winners[::2] == winners[1::2]
    assert set(winners) == set("abcd")


def test_a_failed_candidate_is_not_measured_again() -> None:
    def measure(work: HalvingWork) -> MeasuredCandidate:
        score = None if work.candidate == "draft" else SIX[work.candidate]
        return MeasuredCandidate(candidate=work.candidate, score=score)

    done, order = run(HalvingState(candidates=tuple(SIX), budget=default_budget(6)), measure)

    assert order.count("draft") == 1
    assert done.best == "fp8"
    last = done.standings[-1]
    assert (last.candidate, last.failed, last.interval) == ("draft", True, None)


def test_one_that_fails_late_gives_its_place_to_the_next() -> None:
    four = {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0, "e": 0.5}

    def measure(work: HalvingWork) -> MeasuredCandidate:
        fails = work.candidate == "a" and work.round == 1
        return MeasuredCandidate(
            candidate=work.candidate, score=None if fails else four[work.candidate]
        )

    done, order = run(HalvingState(candidates=tuple(four)), measure)

    assert order.count("c") == 3
    assert done.best == "b"


def test_one_lucky_round_does_not_beat_three() -> None:
    rounds = {"a": (100.0, 80.0, 80.0), "b": (99.0, 85.0, 85.0), "c": (98.0,)}

    state = HalvingState(candidates=tuple(rounds), budget=default_budget(3))

    done, _ = run(state, of_rounds(rounds))

    assert [one.candidate for one in done.standings] == ["b", "a", "c"]


def test_when_all_fail_nobody_wins() -> None:
    done, order = run(
        HalvingState(candidates=("a", "b")),
        lambda work: MeasuredCandidate(candidate=work.candidate, score=None),
    )

    assert (done.best, done.reason, len(order)) == (None, "all-failed", 2)


def test_a_budget_of_seconds_is_kept() -> None:
    costs = {"a": 60.0, "b": 30.0, "c": 90.0, "d": 45.0}
    scores = {"a": 4.0, "b": 1.0, "c": 3.0, "d": 2.0}

    done, _ = run(
        HalvingState(candidates=tuple(costs), budget=400.0),
        lambda work: MeasuredCandidate(
            candidate=work.candidate, score=scores[work.candidate], cost=costs[work.candidate]
        ),
    )

    # all once: 225 s; a and c again: 375 s; either once more would be too much
    assert (done.best, done.reason, done.measurements) == ("a", "budget", 6)


def test_results_of_candidates_that_are_gone_are_paid_for_and_not_ranked() -> None:
    state = HalvingState(
        candidates=("a", "b"),
        measured=(MeasuredCandidate(candidate="gone", score=9.0),),
        budget=7.0,
    )

    done, _ = run(state, exact({"a": 1.0, "b": 2.0}))

    assert [one.candidate for one in done.standings] == ["b", "a"]
    assert done.measurements == 7


@cases("default_budgets_are_60_percent_of_all_measurements")
def test_default_budgets_are_60_percent_of_all_measurements(candidates: int, expected: int) -> None:
    assert default_budget(candidates) == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(scores=st.lists(st.integers(1, 10**6), min_size=8, max_size=12), seed=st.integers(0, 1000))
def test_without_noise_it_finds_what_measuring_all_finds(scores: list[int], seed: int) -> None:
    by_name = {f"c{place}": float(score) for place, score in enumerate(scores)}
    state = HalvingState(candidates=tuple(by_name), budget=default_budget(len(scores)), seed=seed)

    done, order = run(state, exact(by_name))

    assert done.best is not None
    assert by_name[done.best] == pytest.approx(max(scores))  # means are rounded
    assert len(order) <= 0.6 * 3 * len(scores)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    scores=st.lists(st.floats(80, 120), min_size=2, max_size=10),
    cuts=st.lists(st.integers(0, 30), max_size=3),
    seed=st.integers(0, 1000),
)
def test_a_run_that_is_killed_ends_like_one_that_is_not(
    scores: list[float], cuts: list[int], seed: int
) -> None:
    by_name = {f"c{place}": score for place, score in enumerate(scores)}
    state = HalvingState(candidates=tuple(by_name), budget=default_budget(len(scores)), seed=seed)
    measured: list[MeasuredCandidate] = []
    measure = noisy(by_name, 0.05, seed)
    whole, order = run(state, lambda work: measured.append(measure(work)) or measured[-1])

    for cut in cuts:
        known = tuple(measured[:cut])
        rest = iter(measured[cut:])
        resumed, later = run(replace(state, measured=known), lambda work, rest=rest: next(rest))

        assert later == order[cut:]
        assert resumed == whole


def test_with_realistic_noise_the_best_of_ten_wins() -> None:
    # 10 % ahead of the second; 3 % noise
    scores = {f"c{place}": 100.0 * 0.9**place for place in range(10)}
    state = HalvingState(candidates=tuple(scores), budget=default_budget(10))

    winners = [run(state, noisy(scores, 0.03, seed))[0].best for seed in range(200)]

    assert winners.count("c0") >= 195
