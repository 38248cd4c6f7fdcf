"""What is asked of aiconfigurator about a plan, and which answers are taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.core.documents import NotStrict
from packager.core.image import Inline
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.recipe import Step
from packager.core.techniques import Draft, Quantization
from packager.core.workload import WORKLOADS
from packager.estimate.performance.opinion import MOST_POINTS, Opinion, ask, read_opinion, spread
from tests.support import zoo
from tests.support.cases import Case, cases_of, read_tables
from tests.support.headers import LLAMA_3_8B, model_of, plan_of

cases = cases_of(__file__)

QUESTIONS = WORKLOADS["questions"]
CONFIG = ModelFile(path="config.json", role="config", content=Inline(b"{}"))
VERSIONS = {"aiconfigurator": "0.12.0", "python": "3.11.7"}
ANSWERED = {"concurrency": 1, "tpot_s": 0.0062, "ttft_s": 0.04, "output_tokens_s": 158.0}
REFUSED = {"concurrency": 8, "kind": "memory", "reason": "OOM: does not fit"}


@pytest.fixture(scope="module")
def dense() -> Plan:
    return plan_of(model_of(LLAMA_3_8B), "ml.p5.48xlarge", family="vllm", tp_degree=2)


@pytest.fixture(scope="module")
def mixture() -> Plan:
    return plan_of(zoo.mixtral(), "ml.p5.48xlarge", family="vllm", tp_degree=4)


def asked(plan: Plan, *concurrencies: int) -> Step:
    step = ask(plan, QUESTIONS, concurrencies or (1, 8), CONFIG)
    assert isinstance(step, Step)
    return step


def alone(plan: Plan, **changes: Any) -> Plan:
    """Return the plan as one server of one copy, and what else is changed."""
    return replace(plan, **{"dp_degree": 1, "workers": 1, "dp_attention": False, **changes})


def test_the_planned_set_up_is_what_is_asked_for(dense: Plan) -> None:
    step = asked(alone(dense), 1, 8)

    assert (step.tool, step.key) == ("aiconfigurator", None)
    assert dict(step.env) == {"OMP_NUM_THREADS": "1"}
    assert step.inputs["model"].files == (CONFIG,)
    assert step.parameters == read_tables(__file__)["asked"]


@cases("shared")
def test_requests_are_shared_by_whatever_batches_by_itself(
    mixture: Plan, changes: dict[str, Any], batch: int, ranks: int, moe: tuple[int, int]
) -> None:
    parameters = asked(alone(mixture, **changes), 64).parameters

    assert parameters["points"][0]["batch"] == batch
    assert parameters["dp"] == ranks
    assert (parameters["moe_tp"], parameters["moe_ep"]) == moe


@cases("formats")
def test_number_formats_are_named_as_it_names_them(
    dense: Plan, scheme: str, kv_dtype: str, modes: dict[str, str]
) -> None:
    chosen = Quantization(method="any", scheme=scheme, bits=8)

    step = asked(replace(dense, quantization=chosen, kv_dtype=kv_dtype))

    assert step.parameters["modes"] == modes


def test_formats_of_a_quantized_checkpoint_are_read_from_its_config(dense: Plan) -> None:
    arrived = Quantization(method="fp8", scheme="W8A8-FP8", bits=8, existing=True)

    step = asked(replace(dense, quantization=arrived))

    assert step.parameters["modes"] == {"gemm": "", "moe": "", "kvcache": "bfloat16"}


def test_quantized_weights_that_it_took_for_plain_ones_have_no_opinion(dense: Plan) -> None:
    arrived = Quantization(method="awq", scheme="W4A16", bits=4, existing=True)
    answer = details(ANSWERED, REFUSED)
    answer["modes"] = {"gemm": "bfloat16", "moe": "bfloat16", "kvcache": "bfloat16"}

    opinion = read_opinion(asked(replace(dense, quantization=arrived)), answer, VERSIONS)

    assert opinion.reason == "it took the weights, which are W4A16, for bfloat16"
    assert opinion.points == ()
    assert read_opinion(asked(dense), answer, VERSIONS).reason == ""


@cases("no_words")
def test_what_it_has_no_words_for_is_not_asked(dense: Plan, case: Case) -> None:
    quantization = Quantization(**case["quantization"]) if "quantization" in case else None
    draft = Draft(**case["draft"]) if "draft" in case else None
    plan = replace(dense, quantization=quantization, draft=draft, **case.get("changes", {}))

    found = ask(plan, QUESTIONS, (1,), CONFIG)

    assert isinstance(found, Opinion)
    assert case["reason"] in found.reason
    assert found.points == ()


@cases("unknown")
def test_an_unknown_gpu_or_engine_is_named(instance: str, family: str, reason: str) -> None:
    plan = plan_of(model_of(LLAMA_3_8B), instance, family="vllm")
    plan = replace(plan, container=replace(plan.container, engine=family))

    assert ask(plan, QUESTIONS, (1,), CONFIG) == Opinion(source="aiconfigurator", reason=reason)


def test_a_model_without_a_config_is_not_asked_about(dense: Plan) -> None:
    found = ask(dense, QUESTIONS, (1,), None)

    assert isinstance(found, Opinion)
    assert "config.json" in found.reason


def test_at_most_eight_concurrencies_are_asked_for_with_both_ends() -> None:
    taken = spread([2**n for n in range(12)], MOST_POINTS)

    assert len(taken) == 8
    assert (taken[0], taken[-1]) == (1, 2048)
    assert spread([4, 1, 4], MOST_POINTS) == (1, 4)


def details(*points: object) -> dict[str, Any]:
    return {
        "points": list(points),
        "engine_version": "0.24.0",
        "modes": {"gemm": "bfloat16", "kvcache": "bfloat16"},
    }


def test_an_answer_keeps_what_it_was_computed_for(dense: Plan) -> None:
    opinion = read_opinion(asked(dense), details(ANSWERED, REFUSED), VERSIONS)

    assert opinion.source == "aiconfigurator 0.12.0"
    assert opinion.engine == "vllm 0.24.0"
    assert opinion.formats == "gemm bfloat16, kvcache bfloat16"
    assert [point.tpot_s for point in opinion.points] == [0.0062, None]
    assert opinion.points[1].reason == "OOM: does not fit"
    assert opinion.reason == ""


def test_an_answer_without_any_figure_is_its_reason(dense: Plan) -> None:
    opinion = read_opinion(asked(dense), details({**REFUSED, "concurrency": 1}, REFUSED), VERSIONS)

    assert (opinion.reason, opinion.points) == ("OOM: does not fit", ())


@cases("no_answers")
def test_what_is_no_answer_is_refused(
    dense: Plan, second: tuple[object, ...] | None, changes: dict[str, Any] | None, reason: str
) -> None:
    points = (REFUSED,) if second is None else second

    with pytest.raises(NotStrict, match=reason):
        read_opinion(asked(dense), details(ANSWERED, *points) | (changes or {}), VERSIONS)
