"""What a goal promises, and what is built for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager import wiring
from packager.build import pipeline
from packager.build.services import BuildServices
from packager.build.stages import Planned
from packager.catalog.instances import find_instance
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.errors import PlanRejected
from packager.jobs.rank import menu, predict_plan
from packager.planning.choice import target_of
from packager.planning.performance import Point
from packager.planning.presets import PRESETS, Goal
from packager.planning.ranking import choose_point, prices_at
from tests.golden.models import MIXTRAL
from tests.planning.drafts.mtp_models import qwen3_next
from tests.planning.headers import GEMMA_2_2B, LLAMA_3_8B, LLAMA_3_70B, awq_model_of, model_of

MODELS = {
    "gemma-2b": model_of(GEMMA_2_2B, name="google/gemma-2-2b"),
    "llama-8b": model_of(LLAMA_3_8B, name="meta-llama/Meta-Llama-3-8B-Instruct"),
    "llama-70b": model_of(LLAMA_3_70B, name="meta-llama/Meta-Llama-3-70B-Instruct"),
    "llama-70b-awq": awq_model_of(LLAMA_3_70B, name="org/llama-70b-awq"),
    "mixtral": MIXTRAL,
    "qwen3-next": qwen3_next(),
}
INSTANCES = (
    "ml.g4dn.12xlarge",
    "ml.g5.xlarge",
    "ml.g5.12xlarge",
    "ml.g6e.12xlarge",
    "ml.p4d.24xlarge",
    "ml.p5.48xlarge",
    "ml.p6-b200.48xlarge",
)


def services_of(model: ModelFiles) -> BuildServices:
    return replace(
        wiring.services_for(wiring.Settings()),
        find_model=lambda _: model,
        peek_model=lambda _: None,
        pin_files=lambda files: files,
        instances=(),
    )


def planned(model: ModelFiles, instance: str, **asked: Any) -> Planned:
    request = BuildRequest(model="m", instance=instance, **asked)
    return pipeline.plan(request, services_of(model))


def measured(plan: Plan, goal: Goal, **asked: Any) -> Point:
    """Predict a plan, and take the point that a goal looks at."""
    services = services_of(MODELS["llama-8b"])
    prediction = predict_plan(plan, services.accelerator_of(plan.instance), plan.workload)
    assert prediction is not None
    request = BuildRequest(model="m", instance=plan.instance.name, goal=goal, **asked)
    return choose_point(prediction, target_of(request, plan.workload))


def dollars(plan: Plan, point: Point) -> float:
    services = services_of(MODELS["llama-8b"])
    prediction = predict_plan(plan, services.accelerator_of(plan.instance), plan.workload)
    assert prediction is not None
    prices = prices_at(plan, prediction, point)
    assert prices is not None
    return prices.output


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

        before, after = (measured(plan, "latency").tpot_s for plan in (default, plans["latency"]))
        assert after <= before * 1.000001, (instance, "latency")
        before, after = (
            measured(plan, "throughput").output_tokens_s for plan in (default, plans["throughput"])
        )
        assert after >= before * 0.999999, (instance, "throughput")
        if find_instance(instance).price_usd_hour:
            before, after = (
                dollars(plan, measured(plan, "cost")) for plan in (default, plans["cost"])
            )
            assert after <= before * 1.000001, (instance, "cost")
    assert compared


@pytest.mark.parametrize("instance", ["ml.g5.12xlarge", "ml.p5.48xlarge", "ml.inf2.48xlarge"])
def test_every_row_to_try_is_what_its_options_give(instance: str) -> None:
    model = MODELS["llama-8b"]
    services = services_of(model)
    found: Instance = services.find_instance(instance)
    rows = menu(BuildRequest(model="m", instance=instance), services, found)

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
    rows = dict(menu(BuildRequest(model="m", instance=found.name), services, found))

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


@pytest.mark.parametrize(
    ("name", "instance"),
    [("llama-70b-awq", "ml.g5.12xlarge"), ("llama-8b", "ml.inf2.48xlarge"), ("llama-8b", "local")],
)
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


def test_auto_that_fits_nowhere_is_refused_as_the_weights_are() -> None:
    with pytest.raises(PlanRejected) as caught:
        planned(MODELS["llama-70b"], "ml.g5.xlarge", quantize="auto")

    assert "does-not-fit" in [finding.code for finding in caught.value.findings]


def test_weights_of_four_bits_are_not_chosen_over_eight_for_throughput_on_h100() -> None:
    """Small batches hide what unpacking costs; the planned ones do not."""
    found = planned(MODELS["llama-8b"], "ml.p5.4xlarge", goal="throughput", quantize="auto").plan

    assert found.precision == "fp8"


def test_a_stated_concurrency_is_what_is_planned_and_predicted() -> None:
    plan = planned(MODELS["llama-8b"], "ml.p5.4xlarge", workload="622:250:10").plan

    assert plan.shape.max_batch * plan.replicas == 10
    assert measured(plan, "throughput").concurrency == 10
    assert measured(plan, "latency").concurrency == 10
    quick = planned(MODELS["llama-8b"], "ml.p5.4xlarge", workload="622:250:10", goal="latency").plan
    assert quick.shape.max_batch * quick.replicas == 10


def test_a_tighter_limit_computes_fewer_requests_at_once() -> None:
    loose = planned(MODELS["llama-8b"], "ml.g6e.xlarge").plan
    strict = planned(MODELS["llama-8b"], "ml.g6e.xlarge", tpot_limit_ms=35).plan

    assert strict.shape.max_batch < loose.shape.max_batch
    assert measured(strict, "throughput", tpot_limit_ms=35).tpot_s <= 0.035


def test_a_limit_that_one_request_alone_misses_is_said() -> None:
    plan = planned(MODELS["llama-8b"], "ml.g5.xlarge", tpot_limit_ms=1).plan

    (warning,) = [found for found in plan.findings if found.code == "limit-missed"]
    assert warning.message.endswith("the limit is 1 ms per token")
    assert plan.shape.max_batch >= 1


def test_a_limit_on_the_first_token_counts_too() -> None:
    plan = planned(MODELS["llama-70b"], "ml.p4d.24xlarge", ttft_limit_ms=1).plan

    assert "limit-missed" in [found.code for found in plan.findings]
    assert "1 ms to the first" in " ".join(found.message for found in plan.findings)


def test_limits_and_long_requests_are_not_passed_over_where_slots_are_reserved() -> None:
    asked = {"workload": "100000:1000:4", "tpot_limit_ms": 1, "ttft_limit_ms": 2}

    free = planned(MODELS["llama-8b"], "ml.inf2.48xlarge").plan
    plan = planned(MODELS["llama-8b"], "ml.inf2.48xlarge", **asked).plan

    assert plan.shape == free.shape
    said = {found.code: found.message for found in plan.findings}
    assert said["workload-too-long"].endswith("the server takes 8192")
    assert said["limit-missed"].startswith("4 requests at once are predicted to take ")
    assert said["limit-missed"].endswith("the limit is 1 ms per token and 2 ms to the first")
    assert {"workload-too-long", "limit-missed"}.isdisjoint(one.code for one in free.findings)


def test_long_requests_of_the_workload_make_the_server_take_them() -> None:
    long = model_of(LLAMA_3_8B | {"max_position_embeddings": 131072}, name="org/long")

    plan = planned(long, "ml.p5.4xlarge", workload="20000:1000").plan

    assert plan.shape.max_total_tokens == 21 * 1024
    assert plan.typical_tokens == 21_000
    short = planned(MODELS["llama-8b"], "ml.p5.4xlarge", workload="20000:1000").plan
    assert "workload-too-long" in [found.code for found in short.findings]
