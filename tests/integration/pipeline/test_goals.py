"""What a goal promises, and what is built for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from packager.catalog.instances import find_instance
from packager.core.errors import PlanRejected
from packager.core.instance import Instance
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.estimate.performance.predict import Point
from packager.estimate.performance.presets import PRESETS, Goal
from packager.estimate.performance.ranking import prices_at
from packager.pipeline.rank import menu, predict_plan
from tests.support.cases import cases, read_tables
from tests.support.headers import GEMMA_2_2B, model_of
from tests.support.known import known
from tests.unit.pipeline.test_goals import MODELS, measured, planned, services_of

INSTANCES: list[str] = read_tables(__file__)["instances"]


def dollars(plan: Plan, point: Point) -> float:
    services = services_of(MODELS["llama-8b"])
    prediction = known(predict_plan(plan, services.accelerator_of(plan.instance), plan.workload))
    prices = known(prices_at(plan, prediction, point))
    return prices.output


# What a goal makes small.
COSTS: dict[str, Callable[[Plan], float]] = {
    "latency": lambda plan: measured(plan, "latency").tpot_s,
    "throughput": lambda plan: 1 / measured(plan, "throughput").output_tokens_s,
    "cost": lambda plan: dollars(plan, measured(plan, "cost")),
}


@pytest.mark.parametrize("workload", [None, "production_traffic_mix"])
@pytest.mark.parametrize("quantize", [None, "auto"])
@pytest.mark.parametrize("name", MODELS)
def test_a_goal_is_never_worse_than_the_default_by_its_own_measure(
    name: str, quantize: str | None, workload: str | None
) -> None:
    compared = 0
    for instance in INSTANCES:
        try:
            default = planned(MODELS[name], instance, workload=workload).plan
        except PlanRejected:
            continue
        asked = {"quantize": quantize, "workload": workload}
        plans = {goal: planned(MODELS[name], instance, goal=goal, **asked).plan for goal in PRESETS}
        compared += 1

        for goal, plan in plans.items():
            if goal == "cost" and not find_instance(instance).price_usd_hour:
                continue
            before, after = (COSTS[goal](one) for one in (default, plan))
            assert after <= before * 1.000001, (instance, goal)
    assert compared


@pytest.mark.parametrize("instance", ["ml.g5.12xlarge", "ml.p5.48xlarge", "ml.inf2.48xlarge"])
def test_every_row_to_try_is_what_its_options_give(instance: str) -> None:
    model = MODELS["llama-8b"]
    services = services_of(model)
    found: Instance = services.find_instance(instance)
    rows = menu(BuildRequest(model="org/m", instance=instance), services, found)

    for goal, option in rows:
        words = option.candidate.options.split()
        asked = {
            name.removeprefix("--").replace("-", "_"): int(value) if value.isdecimal() else value
            for name, value in zip(words[::2], words[1::2], strict=True)
        }
        again = planned(model, instance, **asked).plan
        assert (again.split, again.shape, again.precision) == (
            option.plan.split,
            option.plan.shape,
            option.plan.precision,
        ), (goal, option.candidate.options)
    assert [goal for goal, _ in rows] == ([] if found.kind == "neuron" and not rows else [*PRESETS])


@pytest.mark.parametrize("goal", PRESETS)
def test_a_goal_with_auto_builds_the_row_to_try(goal: Goal) -> None:
    model = MODELS["llama-70b"]
    services = services_of(model)
    found: Instance = services.find_instance("ml.p5.48xlarge")
    rows = dict(menu(BuildRequest(model="org/m", instance=found.name), services, found))

    built = planned(model, found.name, goal=goal, quantize="auto").plan
    row = rows[goal].plan

    assert (built.split, built.shape, built.precision) == (row.split, row.shape, row.precision)


def test_auto_quantizes_only_where_it_is_asked_for() -> None:
    model = MODELS["llama-8b"]

    assert planned(model, "ml.g5.xlarge", goal="cost").plan.quantization is None
    auto = planned(model, "ml.g5.xlarge", goal="cost", quantize="auto")
    assert auto.plan.quantization is not None
    assert [step.name for step in auto.recipe.steps] == ["quantize"]
    assert auto.facts.request.quantize == auto.plan.quantization.method
    (note,) = [found for found in auto.plan.findings if found.code == "quantize-chosen"]
    assert note.message.startswith(f"--quantize auto is {auto.plan.quantization.method} (")
    assert "against none (" in note.message


@cases("auto_leaves_alone_what_cannot_be_quantized")
def test_auto_leaves_alone_what_cannot_be_quantized(name: str, instance: str) -> None:
    model = MODELS[name]
    if instance == "local":
        model = model_of(GEMMA_2_2B | {"num_hidden_layers": 2}, name="org/small")

    found = planned(model, instance, quantize="auto")

    assert found.facts.request.quantize == "none"
    assert not [step for step in found.recipe.steps if step.name == "quantize"]


def test_auto_finds_the_only_method_that_fits() -> None:
    """70B in 16 bits does not fit four A10G: the refusal of one method must not end it."""
    found = planned(MODELS["llama-70b"], "ml.g5.12xlarge", quantize="auto").plan

    assert found.precision in ("w4a16", "fp8")


def test_weights_of_four_bits_are_not_chosen_over_eight_for_throughput_on_h100() -> None:
    """Small batches hide what unpacking costs; the planned ones do not."""
    found = planned(MODELS["llama-8b"], "ml.p5.4xlarge", goal="throughput", quantize="auto").plan

    assert found.precision == "fp8"
