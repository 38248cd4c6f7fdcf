"""Which split is taken with how many requests, from budgets and speeds that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.core.plan import MemoryBudget
from packager.core.request import BuildRequest
from packager.core.shape import Shape
from packager.core.split import Split
from packager.core.units import GIB
from packager.core.workload import QUESTIONS, Workload, parse_workload
from packager.performance.choice import (
    Candidates,
    Objective,
    choose_layout,
    keeps_limits,
    target_of,
)
from packager.performance.predict import Point, ServedModel, Setup, predict_point
from packager.sizing.concurrency import SIZES, choose_concurrency, most_at_once

TOKEN_BYTES = 100_000
H100 = accelerator_of(find_instance("ml.p5.48xlarge"))
LONG, HALF = (
    Shape(max_batch=1, max_input_tokens=total - 1024, max_total_tokens=total)
    for total in (8192, 4096)
)
WHOLE = tuple(Split(tp_degree=tp, dp_degree=8 // tp) for tp in (1, 2, 4, 8))


def budget_at(split: Split, shape: Shape, *, weights_gib: float = 16) -> MemoryBudget:
    """Budget each device's part of the weights, and one sequence of the length asked for."""
    return MemoryBudget(
        tp_degree=split.tp_degree,
        pp_degree=split.pp_degree,
        device_bytes=80 * GIB,
        usable_bytes=72 * GIB,
        weights_bytes=int(weights_gib * GIB) // (split.tp_degree * split.pp_degree),
        activations_bytes=shape.max_batch * 2_000_000,
        overhead_bytes=GIB,
        kv_bytes_per_token=TOKEN_BYTES // split.tp_degree,
        kv_bytes=shape.max_total_tokens * TOKEN_BYTES // split.tp_degree,
    )


def setup_at(split: Split, budget: MemoryBudget) -> Setup:
    model = ServedModel(
        weight_bytes=budget.weights_bytes * split.tp_degree,
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
        engine="vllm",
        engine_version="0.27.1",
    )


WAYS = Candidates(
    splits=WHOLE,
    shapes=(LONG, HALF),
    most=256,
    batch=None,
    budget_at=budget_at,
    setup_at=setup_at,
)


def test_what_is_taken_is_predicted_best_and_the_others_say_their_figures() -> None:
    choice = choose_layout(WAYS, Objective())

    layout = choice.layout
    assert layout is not None
    assert layout.point is not None
    slower = [one for one in choice.passed_over if one.code == "split-slower"]
    assert len(slower) == 3
    rate, requests = layout.point.output_tokens_s, layout.point.concurrency
    figure = f"{layout.split.words} is predicted to give {rate:,.0f} tokens/s at {requests} at once"
    assert all(one.reason.endswith(figure) for one in slower)
    for split in WHOLE:
        alone = choose_layout(replace(WAYS, splits=(split,)), Objective()).layout
        assert alone is not None
        assert alone.point is not None
        assert alone.point.output_tokens_s <= layout.point.output_tokens_s


def test_latency_is_measured_at_one_request_and_lets_others_hardly_slow_it() -> None:
    layout = choose_layout(WAYS, Objective(goal="latency")).layout

    assert layout is not None
    assert layout.point is not None
    assert layout.point.concurrency == 1
    setup = setup_at(layout.split, layout.budget)
    full = predict_point(setup, QUESTIONS, layout.shape.max_batch * layout.split.copies)
    assert layout.point.tpot_s < full.tpot_s <= 1.25 * layout.point.tpot_s
    throughput = choose_layout(WAYS, Objective()).layout
    assert throughput is not None
    assert layout.shape.max_batch < throughput.shape.max_batch


def test_latency_keeps_the_limit_as_well() -> None:
    free = choose_layout(WAYS, Objective(goal="latency")).layout
    assert free is not None
    assert free.point is not None
    tight = Objective(goal="latency", tpot_limit_s=1.05 * free.point.tpot_s)

    layout = choose_layout(WAYS, tight).layout

    assert layout is not None
    assert layout.shape.max_batch < free.shape.max_batch
    full = layout.shape.max_batch * layout.split.copies
    assert (
        predict_point(setup_at(layout.split, layout.budget), QUESTIONS, full).tpot_s
        <= 1.05 * free.point.tpot_s
    )


def test_time_is_looked_up_for_the_requests_of_all_copies_together() -> None:
    split = Split(tp_degree=1, dp_degree=8)
    limit_s = predict_point(setup_at(split, budget_at(split, LONG)), QUESTIONS, 8 * 40).tpot_s

    layout = choose_layout(replace(WAYS, splits=(split,)), Objective(tpot_limit_s=limit_s)).layout

    assert layout is not None
    assert layout.shape.max_batch == 40
    assert layout.point is not None
    assert layout.point.concurrency == 320


def test_requests_at_once_are_what_fits_at_the_workloads_length() -> None:
    few = replace(WAYS, splits=(Split(tp_degree=1),), most=1024)

    def layout_with(weights_gib: int) -> tuple[int, int]:
        ways = replace(
            few,
            budget_at=lambda split, shape: budget_at(split, shape, weights_gib=weights_gib),
            setup_at=lambda split, budget: None,
        )
        layout = choose_layout(ways, Objective()).layout
        assert layout is not None
        return layout.shape.max_batch, layout.budget.count_requests(QUESTIONS.tokens)

    batch, held = layout_with(60)
    assert 96 <= batch <= held
    assert held - batch < 8  # the next size would not fit
    assert layout_with(50)[0] > batch


def test_a_shorter_length_is_taken_only_where_no_split_holds_the_longer() -> None:
    tight = replace(
        WAYS,
        budget_at=lambda split, shape: budget_at(split, shape, weights_gib=70.5),
    )
    choice = choose_layout(tight, Objective())
    assert choice.layout is not None
    assert choice.layout.shape.max_total_tokens == 8192
    assert choice.layout.split.tp_degree > 1
    assert [one.what for one in choice.passed_over if one.code == "tp-does-not-fit"] == ["tp 1"]

    tighter = replace(tight, splits=(Split(tp_degree=1),))
    alone = choose_layout(tighter, Objective()).layout
    assert alone is not None
    assert alone.shape.max_total_tokens == 4096


def test_a_pipeline_and_idle_devices_wait_for_what_needs_neither() -> None:
    deep = Split(tp_degree=4, pp_degree=2)
    idle = Split(tp_degree=4)

    def chosen(*splits: Split) -> Split:
        layout = choose_layout(replace(WAYS, splits=splits), Objective()).layout
        assert layout is not None
        return layout.split

    assert chosen(deep, idle) == idle
    assert chosen(idle, Split(tp_degree=1, dp_degree=8)) == Split(tp_degree=1, dp_degree=8)


def test_without_figures_the_first_split_that_fits_is_taken() -> None:
    blind = replace(WAYS, setup_at=lambda split, budget: None)

    choice = choose_layout(blind, Objective())

    assert choice.layout is not None
    assert choice.layout.split == WHOLE[0]
    assert choice.layout.in_time
    assert choice.passed_over == ()


def test_where_nothing_fits_every_cut_says_what_it_lacks() -> None:
    huge = replace(WAYS, budget_at=lambda split, shape: budget_at(split, shape, weights_gib=800))
    choice = choose_layout(huge, Objective())

    assert choice.layout is None
    assert {one.what for one in choice.passed_over} == {"tp 1", "tp 2", "tp 4", "tp 8"}


def test_a_batch_that_was_asked_for_is_kept_and_predicted_as_far_as_it_fits() -> None:
    layout = choose_layout(replace(WAYS, batch=3000), Objective()).layout

    assert layout is not None
    assert layout.shape.max_batch == 3000
    assert layout.point is not None
    held = layout.budget.count_requests(QUESTIONS.tokens)
    assert layout.point.concurrency == min(3000, held) * layout.split.copies


def test_a_stated_number_of_requests_is_shared_by_the_copies() -> None:
    workload = parse_workload("622:250:20")
    assert workload is not None
    layout = choose_layout(
        replace(WAYS, splits=(Split(tp_degree=1, dp_degree=8),)), Objective(workload=workload)
    ).layout

    assert layout is not None
    assert layout.shape.max_batch == 3  # of 8 copies: 20 requests are 2.5 each
    assert layout.point is not None
    assert layout.point.concurrency == 20


@pytest.mark.parametrize(
    ("tpot_ms", "ttft_ms", "kept"),
    [(50, None, True), (49, None, False), (50, 300, True), (50, 299, False)],
)
def test_limits_hold_for_the_token_and_for_the_first(
    tpot_ms: float, ttft_ms: float | None, kept: bool
) -> None:
    point = Point(
        concurrency=8,
        prefill_s=0.1,
        tpot_s=0.05,
        step_s=0.05,
        latency_s=1.0,
        output_tokens_s=100,
        input_tokens_s=100,
        ttft_s=0.3,
    )
    request = BuildRequest(model="m", instance="i", tpot_limit_ms=tpot_ms, ttft_limit_ms=ttft_ms)

    assert keeps_limits(point, target_of(request, QUESTIONS)) is kept


def test_without_limits_each_token_must_come_within_a_tenth_of_a_second() -> None:
    target = target_of(BuildRequest(model="m", instance="i", goal="cost"), Workload())

    assert (target.goal, target.tpot_limit_s, target.ttft_limit_s) == ("cost", 0.1, None)


@pytest.mark.parametrize(
    ("most", "fits", "in_time", "expected"),
    [
        (256, 256, 256, 256),
        (256, 100, 256, 96),
        (256, 256, 33, 32),
        (1024, 700, 1024, 640),
        (10, 256, 256, 10),
        (256, 0, 256, 1),
        (1, 256, 256, 1),
        (5000, 5000, 5000, 1024),
    ],
    ids=["all", "memory", "time", "large", "between-sizes", "nothing", "one", "beyond-the-sizes"],
)
def test_the_largest_size_that_fits_and_is_in_time(
    most: int, fits: int, in_time: int, expected: int
) -> None:
    found = choose_concurrency(most, lambda n: n <= fits, lambda n: n <= in_time)

    assert found == expected


def test_few_questions_find_the_size() -> None:
    asked: list[int] = []

    def fits(number: int) -> bool:
        asked.append(number)
        return number <= 300

    choose_concurrency(1024, fits, lambda _: True)
    assert len(asked) <= 7
    assert list(SIZES) == sorted(set(SIZES))


@pytest.mark.parametrize(
    ("family", "instance", "most"),
    [
        ("vllm", "ml.g5.xlarge", 256),
        ("vllm", "ml.p4de.24xlarge", 256),  # A100 with 80 GB: vLLM excepts it
        ("vllm", "ml.p5.48xlarge", 1024),
        ("vllm", "ml.p6-b200.48xlarge", 1024),
        ("lmi", "ml.p5.48xlarge", 1024),
        ("sglang", "ml.g5.xlarge", 256),
        ("sglang", "ml.p5.48xlarge", 512),
        ("tgi", "ml.p5.48xlarge", 128),
    ],
)
def test_engines_compute_no_more_at_once_than_they_are_known_for(
    family: str, instance: str, most: int
) -> None:
    found = find_instance(instance)

    assert most_at_once(find_container(family, found.kind), found) == most


def test_an_older_engine_keeps_the_smaller_number() -> None:
    found = find_instance("ml.p5.48xlarge")
    old = replace(find_container("vllm", found.kind), engine_version="0.6.3")

    assert most_at_once(old, found) == 256


def test_a_layout_that_is_predicted_alike_is_not_called_slower() -> None:
    """Experts cut or given out whole read the same bytes: 27,024 was "slower" than 27,024."""
    twin = replace(WHOLE[0], expert_parallel=True)

    choice = choose_layout(replace(WAYS, splits=(WHOLE[0], twin)), Objective())

    (alike,) = choice.passed_over
    assert alike.code == "split-alike"
    assert alike.reason == f"{twin.words} is predicted to be as fast as {WHOLE[0].words}"
