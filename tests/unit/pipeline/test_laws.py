"""Laws that hold for every plan and device: nothing that has no less of anything does worse."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations, product
from math import isfinite
from random import Random
from typing import Any

import pytest

from packager.catalog.accelerators import LINKS, AcceleratorRow, accelerator_rows
from packager.core.artifact import Artifacts
from packager.core.catalog import Accelerator
from packager.core.errors import PlanRejected
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.core.workload import Workload, parse_workload
from packager.estimate.performance.choice import worth_of
from packager.estimate.performance.devices import figures_of
from packager.estimate.performance.predict import Point, Setup, predict_point, setup_of
from packager.estimate.performance.setup_tables import reversed_orders
from packager.estimate.performance.token_cost import token_cost
from packager.pipeline import pipeline
from packager.pipeline.planning.requested import target_of
from tests.support.engine_rows import argv_of, family_of, properties_of
from tests.support.known import known
from tests.support.shapes import plain
from tests.unit.pipeline.test_goals import services_of

NAMES = (
    "Qwen/Qwen3-235B-A22B",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-8B",
    "deepseek-ai/DeepSeek-R1",
    "google/gemma-3-27b-it",
    "meta-llama/Meta-Llama-3.1-70B",
    "openai/gpt-oss-120b",
    "zai-org/GLM-5",
)
INSTANCES = ("ml.g5.48xlarge", "ml.g6e.12xlarge", "ml.p4d.24xlarge", "ml.p5.48xlarge")
GOALS = ("throughput", "latency")
WORKLOADS = ("622:250", "1000:1000", "8000:500", "128:2000")
SEEDS = [*range(9), *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(9, 140))]
TOLERANCE = 1 + 1e-9


@cache
def planned(name: str, instance: str, **asked: Any) -> Plan | None:
    """Return the plan of a published model, None where it is refused."""
    try:
        request = BuildRequest(model="org/m", instance=instance, **asked)
        return pipeline.plan(request, services_of(plain(name))).plan
    except PlanRejected:
        return None


@cache
def setup(name: str) -> Setup:
    plan = known(planned(name, "ml.p6-b300.48xlarge"))
    accelerator = services_of(plain(name)).accelerator_of(plan.instance)
    return replace(setup_of(plan, accelerator), replicas=1, dp_degree=1, pp_degree=1)


def device(row: AcceleratorRow) -> Accelerator:
    return Accelerator(
        name=row.name,
        kind=row.kind,
        usable_bytes=0,
        bandwidth_bytes_s=row.bandwidth_bytes_s,
        tflops=row.tflops,
        link=LINKS.get(row.link, ""),
        link_bytes_s=row.link_bytes_s,
        source="",
        date="",
    )


DEVICES = [
    device(row)
    for row in accelerator_rows().values()
    if row.bandwidth_bytes_s and row.tflops.get("bf16")
]


def point_of(plan: Plan, workload: Workload) -> Point:
    accelerator = services_of(plain(NAMES[0])).accelerator_of(plan.instance)
    held = plan.budget.count_requests(workload.tokens)
    requests = max(1, min(plan.shape.max_batch, held)) * plan.replicas
    return predict_point(setup_of(plan, accelerator), workload, requests)


def worth(plan: Plan, lengths: str, **asked: Any) -> tuple[bool, tuple[float, ...]]:
    """Return what is larger for the better plan: a request fits, and what the goal looks at."""
    workload = known(parse_workload(lengths))
    target = target_of(BuildRequest(model="m", instance="i", **asked), workload)
    point = point_of(plan, workload)
    if asked.get("goal") == "latency":
        accelerator = services_of(plain(NAMES[0])).accelerator_of(plan.instance)
        point = predict_point(setup_of(plan, accelerator), workload, 1)
    return (plan.shape.max_total_tokens >= workload.tokens, worth_of(point, target))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_device_with_no_less_of_anything_is_never_predicted_slower(seed: int) -> None:
    """Unless the very model was measured so."""
    random = Random(seed)
    checked = 0
    for _ in range(12):
        box = replace(
            setup(random.choice(NAMES)),
            tp_degree=random.choice((1, 2, 4, 8)),
            engine=random.choice(("vllm", "sglang", "tensorrt-llm", "tgi")),
        )
        scheme = random.choice(("", "W8A8-FP8", "NVFP4", "W4A16", "W8A8-INT8"))
        box = replace(box, model=replace(box.model, scheme=scheme))
        workload = known(parse_workload(random.choice(WORKLOADS)))
        requests = random.choice((1, 3, 8, 32, 200, 1000))
        boxes = [replace(box, accelerator=one) for one in DEVICES]
        found = [
            (figures_of(one.accelerator, scheme, one.tp_degree), one, point)
            for one in boxes
            for point in [predict_point(one, workload, requests)]
        ]
        for (sheet, one, faster), (other_sheet, other, slower) in permutations(found, 2):
            measured = any(row.step > 1 or row.prompt > 1 for row in reversed_orders(one))
            if sheet.peak and other_sheet.peak and sheet.outdoes(other_sheet) and not measured:
                where = (one.accelerator.name, other.accelerator.name, requests)
                assert faster.tpot_s <= TOLERANCE * slower.tpot_s, where
                assert faster.ttft_s <= TOLERANCE * slower.ttft_s, where
                checked += 1
    assert checked > 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_no_layout_that_could_be_asked_for_is_better_than_the_one_taken(seed: int) -> None:
    random = Random(seed)
    name, instance = random.choice(NAMES), random.choice(INSTANCES)
    asked = {"goal": random.choice(("throughput", "latency")), "kv_dtype": "auto"}
    asked |= {"workload": random.choice(WORKLOADS)}
    best = planned(name, instance, **asked)
    for degree, depth in product((1, 2, 4, 8), (1, 2, 4, 8)):
        other = planned(name, instance, **asked, tp_degree=degree, pp_degree=depth)
        if best is None:
            assert other is None
        elif other is not None:
            lengths = str(asked["workload"])
            assert worth(other, lengths, goal=asked["goal"]) <= worth(
                best, lengths, goal=asked["goal"]
            ), (name, instance, asked, degree, depth)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_memory_never_gives_a_worse_plan(seed: int) -> None:
    random = Random(100 + seed)
    name, instance = random.choice(NAMES), random.choice(INSTANCES)
    lengths = random.choice(WORKLOADS)
    degree = random.choice((None, None, 2, 4, 8))
    worths = []
    for share in (0.6, 0.7, 0.8, 0.85, 0.9, 0.93):  # above, CUDA's graphs lack room beside it
        plan = planned(  # on one machine: more memory makes of several fewer
            name,
            instance,
            workload=lengths,
            gpu_memory_utilization=share,
            tp_degree=degree,
            nodes=1,
        )
        found = (False, ()) if plan is None else worth(plan, lengths)
        worths.append((found[0], (0.0,)) if found[1][:1] == (0.0,) else found)  # late either way

    for less, more in pairwise(worths):
        assert less <= more, (name, instance, lengths, degree)


@pytest.mark.parametrize("seed", SEEDS)
def test_figures_of_a_plan_follow_what_it_is_asked_for(seed: int) -> None:
    """Load, lengths, degrees, formats, goals: each moves its figures one way alone."""
    random, plan = Random(1000 + seed), None
    while plan is None:
        name, instance = random.choice(NAMES), random.choice(INSTANCES)
        asked = {"family": random.choice(("vllm", "sglang", "lmi")), "kv_dtype": "auto"}
        plan = planned(name, instance, **asked, nodes=1)
    accelerator = services_of(plain(name)).accelerator_of(plan.instance)
    box = setup_of(plan, accelerator)
    at_loads = [predict_point(box, plan.workload, load) for load in (1, 2, 4, 8, 16, 32, 64)]
    for point in at_loads:
        figures = (point.prefill_s, point.tpot_s, point.latency_s, point.output_tokens_s)
        assert all(isfinite(figure) and figure > 0 for figure in figures)
    for less, more in pairwise(at_loads):
        assert less.tpot_s <= TOLERANCE * more.tpot_s
        assert less.latency_s <= TOLERANCE * more.latency_s
        assert less.output_tokens_s <= TOLERANCE * more.output_tokens_s
    lengths = [known(parse_workload(text)) for text in ("500:200", "1000:200", "4000:200")]
    for short, long in pairwise(predict_point(box, one, 8) for one in lengths):
        assert short.prefill_s <= TOLERANCE * long.prefill_s
        assert long.output_tokens_s <= TOLERANCE * short.output_tokens_s
    answers = [known(parse_workload(f"500:{n}")) for n in (50, 200, 800)]
    for short, long in pairwise(predict_point(box, one, 8) for one in answers):
        assert short.latency_s <= TOLERANCE * long.latency_s
    config = family_of(plan).render(plan, Artifacts(model=()))
    values = {*config.env.values(), *argv_of(config), *properties_of(config).values()}
    is_shared = plan.dp_attention and plan.container.engine == "sglang"  # it counts every device
    degree = plan.tp_degree * (plan.dp_degree if is_shared else 1)
    assert {str(degree), str(plan.shape.max_total_tokens)} <= values
    cost = token_cost(
        plan, accelerator, target_of(BuildRequest(model="m", instance="i"), plan.workload)
    )
    assert cost is None or cost > 0
    check_relatives(name, instance, plan, asked)


def check_relatives(name: str, instance: str, plan: Plan, asked: dict[str, Any]) -> None:
    """Compare a plan with those that have more devices, other formats, another goal."""
    halves, whole = (
        planned(name, instance, **asked, nodes=1, tp_degree=n, pp_degree=1) for n in (4, 8)
    )
    if halves is not None and whole is not None:
        assert whole.budget.weights_bytes <= halves.budget.weights_bytes
        assert whole.budget.kv_bytes_per_token <= halves.budget.kv_bytes_per_token
    degrees = {"tp_degree": plan.tp_degree, "pp_degree": plan.pp_degree, "nodes": 1}
    small = planned(name, instance, **asked, **degrees, quantize="fp8")
    if small is not None:
        assert small.budget.weights_bytes <= plan.budget.weights_bytes
    cache = planned(name, instance, **{**asked, "kv_dtype": "fp8"}, **degrees)
    if cache is not None:
        assert cache.budget.kv_bytes_per_token <= plan.budget.kv_bytes_per_token
    of_goals = {goal: planned(name, instance, **asked, nodes=1, goal=goal) for goal in GOALS}
    assert all(one is not None for one in of_goals.values())
    for goal, best in of_goals.items():
        for other in of_goals.values():
            assert worth(known(other), "622:250", goal=goal) <= worth(
                known(best), "622:250", goal=goal
            )
