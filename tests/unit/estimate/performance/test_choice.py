"""Which split is taken with how many requests, from budgets and speeds that are made up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.core.plan import MemoryBudget
from packager.core.shape import Shape
from packager.core.split import Split
from packager.core.units import GIB
from packager.core.workload import QUESTIONS, parse_workload
from packager.estimate.performance.choice import (
    CandidateLayout,
    Candidates,
    Objective,
    choose_layout,
    keeps_limits,
    worth_of,
)
from packager.estimate.performance.predict import Point, ServedModel, Setup, predict_point
from packager.estimate.performance.presets import Goal
from packager.estimate.sizing.concurrency import SIZES, choose_concurrency, most_at_once
from tests.support.cases import cases_of
from tests.support.known import known
from tests.support.predictions import point

cases = cases_of(__file__)

TOKEN_BYTES = 100_000
H100 = accelerator_of(find_instance("ml.p5.48xlarge"))
LONG, HALF = (
    Shape(max_batch=1, max_input_tokens=total - 1024, max_total_tokens=total)
    for total in (8192, 4096)
)
WHOLE = tuple(Split(tp_degree=tp, dp_degree=8 // tp) for tp in (1, 2, 4, 8))


def budget_at(
    split: Split, shape: Shape, *, weights_gib: float = 16, usable_gib: float = 72
) -> MemoryBudget:
    """Budget each device's part of the weights, and one sequence of the length asked for."""
    return MemoryBudget(
        tp_degree=split.tp_degree,
        pp_degree=split.pp_degree,
        device_bytes=80 * GIB,
        usable_bytes=int(usable_gib * GIB),
        weights_bytes=int(weights_gib * GIB) // (split.tp_degree * split.pp_degree),
        activations_bytes=shape.max_batch * 2_000_000,
        overhead_bytes=GIB,
        kv_bytes_per_token=TOKEN_BYTES // split.tp_degree,
        kv_bytes=shape.max_total_tokens * TOKEN_BYTES // split.tp_degree,
    )


def setup_at(split: Split, budget: MemoryBudget) -> Setup:
    model = ServedModel(
        weight_bytes=budget.weights_bytes * split.tp_degree * split.pp_degree,
        parameters=8_000_000_000,
        layers=32,
        hidden_size=4096,
        kv_bytes_per_token=TOKEN_BYTES,
    )
    return Setup(
        model=model,
        accelerator=H100,
        tp_degree=split.tp_degree,
        replicas=split.copies,
        pp_degree=split.pp_degree,
        engine="vllm",
        engine_version="0.27.1",
    )


WAYS = Candidates(
    splits=WHOLE, shapes=(LONG, HALF), most=256, batch=None, budget_at=budget_at, setup_at=setup_at
)


def taken(ways: Candidates = WAYS, **asked: Any) -> CandidateLayout:
    return known(choose_layout(ways, Objective(**asked)).layout)


def point_of(layout: CandidateLayout) -> Point:
    return known(layout.point)


def full_tpot_s(layout: CandidateLayout) -> float:
    """Predict the time per token with as many requests as the layout takes."""
    requests = layout.shape.max_batch * layout.split.copies
    return predict_point(setup_at(layout.split, layout.budget), QUESTIONS, requests).tpot_s


def weighing(weights_gib: float, ways: Candidates = WAYS) -> Candidates:
    def budget(split: Split, shape: Shape) -> MemoryBudget:
        return budget_at(split, shape, weights_gib=weights_gib)

    return replace(ways, budget_at=budget)


def without_figures(ways: Candidates) -> Candidates:
    return replace(ways, setup_at=lambda split, budget: None)


def test_what_is_taken_is_predicted_best_and_the_others_say_their_figures() -> None:
    choice = choose_layout(WAYS, Objective())

    layout = taken()
    assert choice.layout == layout
    slower = [one for one in choice.passed_over if one.code == "split-slower"]
    assert len(slower) == 3
    rate, requests = point_of(layout).output_tokens_s, point_of(layout).concurrency
    figure = f"{layout.split.words} is predicted to give {rate:,.0f} tokens/s at {requests} at once"
    assert all(one.reason.endswith(figure) for one in slower)
    for split in WHOLE:
        assert point_of(taken(replace(WAYS, splits=(split,)))).output_tokens_s <= rate


def test_latency_is_measured_at_one_request_and_lets_others_hardly_slow_it() -> None:
    layout = taken(goal="latency")

    assert point_of(layout).concurrency == 1
    assert point_of(layout).tpot_s < full_tpot_s(layout) <= 1.25 * point_of(layout).tpot_s
    assert layout.shape.max_batch < taken().shape.max_batch


def test_latency_keeps_the_limit_as_well() -> None:
    free = taken(goal="latency")
    limit_s = 1.05 * point_of(free).tpot_s

    layout = taken(goal="latency", tpot_limit_s=limit_s)

    assert layout.shape.max_batch < free.shape.max_batch
    assert full_tpot_s(layout) <= limit_s


def test_time_is_looked_up_for_the_requests_of_all_copies_together() -> None:
    split = Split(tp_degree=1, dp_degree=8)
    limit_s = predict_point(setup_at(split, budget_at(split, LONG)), QUESTIONS, 8 * 40).tpot_s

    layout = taken(replace(WAYS, splits=(split,)), tpot_limit_s=limit_s)

    assert (layout.shape.max_batch, point_of(layout).concurrency) == (40, 320)


def test_requests_at_once_are_what_fits_at_the_workloads_length() -> None:
    few = without_figures(replace(WAYS, splits=(Split(tp_degree=1),), most=1024))

    layout = taken(weighing(60, few))

    held = layout.budget.count_requests(QUESTIONS.tokens)
    assert 96 <= layout.shape.max_batch <= held
    assert held - layout.shape.max_batch < 8  # the next size would not fit
    assert taken(weighing(50, few)).shape.max_batch > layout.shape.max_batch


def test_a_shorter_length_is_taken_only_where_no_split_holds_the_longer() -> None:
    tight = weighing(70.5)
    layout = taken(tight)

    assert layout.shape.max_total_tokens == 8192
    assert layout.split.tp_degree > 1
    assert taken(replace(tight, splits=(Split(tp_degree=1),))).shape.max_total_tokens == 4096


def test_a_pipeline_and_idle_devices_wait_for_what_needs_neither() -> None:
    deep, idle = Split(tp_degree=4, pp_degree=2), Split(tp_degree=4)
    copies = Split(tp_degree=1, dp_degree=8)

    for ways in (WAYS, without_figures(WAYS)):
        assert taken(replace(ways, splits=(deep, copies))).split == copies
        assert taken(replace(ways, splits=(idle, copies))).split == copies


def test_what_cannot_hold_a_request_of_the_workload_loses_to_a_pipeline() -> None:
    """Llama-3.1-70B on 8 x A100-40, TP 4: one request of 512 tokens was planned for 872."""
    flat, deep = Split(tp_degree=4), Split(tp_degree=4, pp_degree=2)
    short = replace(LONG, max_input_tokens=384, max_total_tokens=512)
    ways = weighing(4 * 70.985, replace(WAYS, splits=(flat, deep), shapes=(LONG, short)))

    assert taken(replace(ways, splits=(flat,))).shape.max_total_tokens == 512
    for each in (ways, without_figures(ways)):
        assert (taken(each).split, taken(each).shape.max_total_tokens) == (deep, 8192)


@pytest.mark.parametrize("goal", [None, "cost", "latency"])
def test_more_memory_never_gives_a_worse_plan(goal: Goal | None) -> None:
    splits = tuple(
        Split(tp_degree=tp, pp_degree=pp, dp_degree=8 // (tp * pp))
        for pp in (1, 2)
        for tp in (1, 2, 4, 8)
        if tp * pp <= 8
    )
    ways, target = replace(WAYS, splits=splits, most=1024), Objective(goal=goal)
    worths: list[tuple[bool, tuple[float, ...]]] = []
    for usable_gib in (9.1, 9.3, 10, 12, 17.05, 17.1, 17.5, 18, 20, 33.1, 33.5, 40, 80, 140):
        budget = partial(budget_at, weights_gib=64, usable_gib=usable_gib)
        layout = choose_layout(replace(ways, budget_at=budget), target).layout
        if layout is not None:
            fits = layout.shape.max_total_tokens >= QUESTIONS.tokens
            worths.append((fits, worth_of(layout.point, target)))

    assert len(worths) == 14
    assert worths == sorted(worths)


def test_without_figures_the_first_split_that_fits_is_taken() -> None:
    choice = choose_layout(without_figures(WAYS), Objective())

    assert choice.layout is not None
    assert (choice.layout.split, choice.layout.in_time) == (WHOLE[0], True)
    assert choice.passed_over == ()


def test_where_nothing_fits_every_cut_says_what_it_lacks() -> None:
    choice = choose_layout(weighing(800), Objective())

    assert choice.layout is None
    assert {one.what for one in choice.passed_over} == {"tp 1", "tp 2", "tp 4", "tp 8"}


def test_a_batch_that_was_asked_for_is_kept_and_predicted_as_far_as_it_fits() -> None:
    layout = taken(replace(WAYS, batch=3000))

    held = layout.budget.count_requests(QUESTIONS.tokens)
    assert layout.shape.max_batch == 3000
    assert point_of(layout).concurrency == min(3000, held) * layout.split.copies


def test_a_stated_number_of_requests_is_shared_by_the_copies() -> None:
    copies = replace(WAYS, splits=(Split(tp_degree=1, dp_degree=8),))

    layout = taken(copies, workload=parse_workload("622:250:20"))

    assert layout.shape.max_batch == 3  # of 8 copies: 20 requests are 2.5 each
    assert point_of(layout).concurrency == 20


@cases("limits")
def test_limits_hold_for_each_token(tpot_ms: float, ttft_ms: float | None, kept: bool) -> None:
    first_s = ttft_ms / 1e3 if ttft_ms else None
    target = Objective(tpot_limit_s=tpot_ms / 1e3, ttft_limit_s=first_s)

    assert keeps_limits(point(8, tpot_s=0.05, ttft_s=0.3), target) is kept


@cases("sizes")
def test_the_largest_that_fits_in_time(most: int, fits: int, in_time: int, expected: int) -> None:
    assert choose_concurrency(most, lambda n: n <= fits, lambda n: n <= in_time) == expected


def test_few_questions_find_the_size() -> None:
    asked: list[int] = []

    def fits(number: int) -> bool:
        asked.append(number)
        return number <= 300

    choose_concurrency(1024, fits, lambda _: True)
    assert len(asked) <= 7
    assert list(SIZES) == sorted(set(SIZES))


@cases("engines")
def test_engines_compute_no_more_than_known_at_once(family: str, instance: str, most: int) -> None:
    found = find_instance(instance)

    assert most_at_once(find_container(family, found.kind), found) == most


@pytest.mark.parametrize(("weights_gib", "stages"), [(16, 1), (160, 2)])
def test_stages_that_nobody_asked_for_come_where_the_model_does_not_fit_without(
    weights_gib: float, stages: int
) -> None:
    splits = tuple(Split(tp_degree=2, pp_degree=depth) for depth in (1, 2, 4))
    ways = weighing(weights_gib, replace(WAYS, splits=splits))

    choice = choose_layout(replace(ways, few_stages=True), Objective())

    assert known(choice.layout).split.pp_degree == stages
    assert choice.passed_over[-1].code == "split-unasked"
    assert taken(ways).split.pp_degree == 4


def test_an_older_engine_keeps_the_smaller_number() -> None:
    found = find_instance("ml.p5.48xlarge")
    old = replace(find_container("vllm", found.kind), engine_version="0.6.3")

    assert most_at_once(old, found) == 256


def test_a_layout_that_is_predicted_alike_is_not_called_slower() -> None:
    """Experts cut or given out whole read the same bytes: 27,024 was "slower" than 27,024."""
    twin = replace(WHOLE[0], expert_parallel=True)

    (alike,) = choose_layout(replace(WAYS, splits=(WHOLE[0], twin)), Objective()).passed_over
    assert alike.code == "split-alike"
    assert alike.reason == f"{twin.words} is predicted to be as fast as {WHOLE[0].words}"
