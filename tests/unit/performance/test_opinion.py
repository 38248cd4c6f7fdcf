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
from packager.performance.opinion import MOST_POINTS, Opinion, ask, read_opinion, spread
from tests.support import zoo
from tests.support.headers import LLAMA_3_8B, model_of, plan_of

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

    assert (step.tool, step.key, dict(step.env)) == (
        "aiconfigurator",
        None,
        {"OMP_NUM_THREADS": "1"},
    )
    assert step.inputs["model"].files == (CONFIG,)
    assert step.parameters == {
        "system": "h100_sxm",
        "backend": "vllm",
        "tp": 2,
        "pp": 1,
        "dp": 1,
        "moe_tp": 2,
        "moe_ep": 1,
        "modes": {"gemm": "bfloat16", "moe": "bfloat16", "kvcache": "bfloat16"},
        "points": [
            {"concurrency": 1, "batch": 1, "isl": 622, "osl": 250},
            {"concurrency": 8, "batch": 8, "isl": 622, "osl": 250},
        ],
    }


@pytest.mark.parametrize(
    ("changes", "batch", "ranks", "moe"),
    [
        pytest.param({}, 64, 1, (4, 1), id="one-copy"),
        pytest.param({"dp_degree": 2}, 32, 1, (4, 1), id="copies"),
        pytest.param({"workers": 2}, 32, 1, (4, 1), id="workers"),
        pytest.param({"pp_degree": 2}, 32, 1, (4, 1), id="stages"),
        pytest.param({"expert_parallel": True}, 64, 1, (1, 4), id="experts-given-out"),
        pytest.param(
            {"dp_degree": 2, "dp_attention": True, "expert_parallel": True},
            32,
            2,
            (1, 8),
            id="copies-that-share-experts",
        ),
    ],
)
def test_requests_are_shared_by_whatever_batches_by_itself(
    mixture: Plan, changes: dict[str, Any], batch: int, ranks: int, moe: tuple[int, int]
) -> None:
    parameters = asked(alone(mixture, **changes), 64).parameters

    assert parameters["points"][0]["batch"] == batch
    assert parameters["dp"] == ranks
    assert (parameters["moe_tp"], parameters["moe_ep"]) == moe


@pytest.mark.parametrize(
    ("scheme", "kv_dtype", "modes"),
    [
        ("W8A8-FP8", "auto", {"gemm": "fp8", "moe": "fp8", "kvcache": "bfloat16"}),
        ("W4A16", "fp8", {"gemm": "int4_wo", "moe": "int4_wo", "kvcache": "fp8"}),
        ("NVFP4", "auto", {"gemm": "nvfp4", "moe": "nvfp4", "kvcache": "bfloat16"}),
    ],
)
def test_number_formats_are_named_as_it_names_them(
    dense: Plan, scheme: str, kv_dtype: str, modes: dict[str, str]
) -> None:
    chosen = Quantization(method="any", scheme=scheme, bits=8)

    step = asked(replace(dense, quantization=chosen, kv_dtype=kv_dtype))

    assert step.parameters["modes"] == modes


def test_formats_of_a_checkpoint_that_arrived_quantized_are_read_from_its_config(
    dense: Plan,
) -> None:
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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param(
            {"quantization": Quantization(method="smoothquant", scheme="W8A8-INT8", bits=8)},
            "weights of the format 'W8A8-INT8'",
            id="format",
        ),
        pytest.param({"draft": Draft(kind="eagle3", speculative_tokens=3)}, "'eagle3'", id="draft"),
        pytest.param({"nodes": 2}, "one machine", id="nodes"),
        pytest.param({"kv_dtype": "turbo"}, "'turbo'", id="kv-cache"),
    ],
)
def test_what_it_has_no_words_for_is_not_asked(
    dense: Plan, changes: dict[str, Any], reason: str
) -> None:
    found = ask(replace(dense, **changes), QUESTIONS, (1,), CONFIG)

    assert isinstance(found, Opinion)
    assert reason in found.reason
    assert found.points == ()


@pytest.mark.parametrize(
    ("instance", "family", "reason"),
    [
        ("ml.g5.xlarge", "vllm", "it does not support A10G"),
        ("ml.p5.4xlarge", "tgi", "it does not know the engine 'tgi'"),
    ],
)
def test_a_gpu_or_an_engine_that_it_does_not_know_is_named(
    instance: str, family: str, reason: str
) -> None:
    plan = plan_of(model_of(LLAMA_3_8B), instance, family="vllm")
    plan = replace(plan, container=replace(plan.container, engine=family))

    found = ask(plan, QUESTIONS, (1,), CONFIG)

    assert found == Opinion(source="aiconfigurator", reason=reason)


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


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(details(ANSWERED), "other concurrencies", id="too-few"),
        pytest.param(details(ANSWERED, {**ANSWERED}), "other concurrencies", id="twice"),
        pytest.param(
            details(ANSWERED, {**ANSWERED, "concurrency": 8, "tpot_s": -1.0}),
            "tpot_s",
            id="negative",
        ),
        pytest.param(
            details(ANSWERED, {**ANSWERED, "concurrency": 8, "ttft_s": float("nan")}),
            "ttft_s",
            id="nan",
        ),
        pytest.param(details(ANSWERED, {"concurrency": 8}), "tpot_s is missing", id="half"),
        pytest.param(details(ANSWERED, "text"), "not an object", id="no-object"),
        pytest.param({**details(ANSWERED, REFUSED), "points": 3}, "points", id="no-list"),
        pytest.param({**details(ANSWERED, REFUSED), "modes": []}, "modes", id="no-modes"),
    ],
)
def test_what_is_no_answer_is_refused(dense: Plan, answer: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotStrict, match=reason):
        read_opinion(asked(dense), answer, VERSIONS)
