"""What a goal promises, and what is built for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.core.errors import PlanRejected
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.estimate.performance.predict import Point
from packager.estimate.performance.presets import Goal
from packager.estimate.performance.ranking import choose_point
from packager.pipeline import pipeline
from packager.pipeline.planning.requested import target_of
from packager.pipeline.rank import predict_plan
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Planned
from tests.golden.models import MIXTRAL
from tests.support.headers import GEMMA_2_2B, LLAMA_3_8B, LLAMA_3_70B, awq_model_of, model_of
from tests.support.known import known
from tests.support.mtp_models import qwen3_next

MODELS = {
    "gemma-2b": model_of(GEMMA_2_2B, name="google/gemma-2-2b"),
    "llama-8b": model_of(LLAMA_3_8B, name="meta-llama/Meta-Llama-3-8B-Instruct"),
    "llama-70b": model_of(LLAMA_3_70B, name="meta-llama/Meta-Llama-3-70B-Instruct"),
    "llama-70b-awq": awq_model_of(LLAMA_3_70B, name="org/llama-70b-awq"),
    "mixtral": MIXTRAL,
    "qwen3-next": qwen3_next(),
}


def services_of(model: ModelFiles) -> BuildServices:
    return replace(
        services_for(Settings()),
        find_model=lambda _: model,
        peek_model=lambda _: None,
        pin_files=lambda files: files,
        instances=(),
    )


def planned(model: ModelFiles, instance: str, **asked: Any) -> Planned:
    request = BuildRequest(model="org/m", instance=instance, **asked)
    return pipeline.plan(request, services_of(model))


def measured(plan: Plan, goal: Goal, **asked: Any) -> Point:
    """Predict a plan, and take the point that a goal looks at."""
    services = services_of(MODELS["llama-8b"])
    prediction = known(predict_plan(plan, services.accelerator_of(plan.instance), plan.workload))
    request = BuildRequest(model="org/m", instance=plan.instance.name, goal=goal, **asked)
    return choose_point(prediction, target_of(request, plan.workload))


def test_auto_that_fits_nowhere_is_refused_as_the_weights_are() -> None:
    with pytest.raises(PlanRejected) as caught:
        planned(MODELS["llama-70b"], "ml.g5.xlarge", quantize="auto")

    assert "does-not-fit" in [finding.code for finding in caught.value.findings]


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
