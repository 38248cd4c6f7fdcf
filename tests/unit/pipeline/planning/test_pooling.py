"""Plans of models that give vectors or scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.accelerators import accelerator_of
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.core.instance import Instance
from packager.core.model import ModelFiles, ModelProfile
from packager.core.plan import Plan
from packager.core.pooling import SentenceModules
from packager.core.workload import parse_workload
from packager.estimate.performance.predict import predict_point, setup_of
from packager.pipeline.resolve import workload_for
from tests.support.cases import cases_of
from tests.support.headers import LOCAL_CPU, TINY, model_of, plan_of

cases = cases_of(__file__)

MODULES = SentenceModules(
    types=tuple(f"sentence_transformers.models.{one}" for one in ("Transformer", "Pooling")),
    pooled=("lasttoken",),
    prompts={"query": "find: "},
)
DECODER = TINY | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
ENCODER = TINY | {"architectures": ["ModernBertModel"], "model_type": "modernbert"}


def embedder(of: dict[str, Any], **changes: Any) -> ModelFiles:
    config = of | {"max_position_embeddings": 8192}
    return replace(model_of(config), modules=MODULES, **changes)


def rejected(model: ModelFiles, instance: str | Instance = LOCAL_CPU, **asked: Any) -> list[str]:
    try:
        plan_of(model, instance, **asked)
    except PlanRejected as error:
        return [one.code for one in errors_in(error.findings)]
    return []


def test_an_encoder_has_no_cache_and_computes_a_text_in_one_step() -> None:
    plan = plan_of(embedder(ENCODER), "ml.g5.xlarge")

    assert plan.budget.kv_bytes == 0
    assert plan.shape.max_input_tokens == plan.shape.max_total_tokens == 8192
    assert plan.max_prefill_tokens == 8192  # the engine's own are 2,048 there
    assert plan.tool_parser is None
    assert plan.reasoning_parser is None


def test_a_decoder_keeps_its_cache_and_the_engine_s_own_step() -> None:
    plan = plan_of(embedder(DECODER), "ml.g5.xlarge")

    assert plan.budget.kv_bytes > 0
    assert plan.max_prefill_tokens is None
    assert "pooling-prompts" in {one.code for one in plan.findings}


def test_a_large_device_s_own_step_is_left_alone() -> None:
    assert plan_of(embedder(ENCODER), "ml.p5.48xlarge").max_prefill_tokens is None


def test_the_tokenizer_limits_texts() -> None:
    plan = plan_of(embedder(ENCODER, tokenizer_longest=512), LOCAL_CPU)

    assert plan.shape.max_total_tokens == 512


@cases("refused", instance="")
def test_what_means_nothing_without_answers_is_refused(
    of: str, instance: str, asked: dict[str, Any], code: str
) -> None:
    model = embedder({"encoder": ENCODER, "decoder": DECODER}[of])

    assert code in rejected(model, instance or LOCAL_CPU, **asked)


def test_a_type_of_32_bits_doubles_weights_and_is_none_of_a_chat_model() -> None:
    usual, wide = (plan_of(embedder(ENCODER), LOCAL_CPU, dtype=one) for one in (None, "float32"))

    assert wide.dtype == "fp32"
    assert wide.budget.weights_bytes == 2 * usual.budget.weights_bytes
    assert wide.budget.activations_bytes >= usual.budget.activations_bytes
    assert rejected(model_of(DECODER), dtype="float32") == ["dtype-unsupported"]


@cases("workloads", text=None)
def test_a_workload_is_counted_in_texts(text: str | None, tokens: int, texts: int) -> None:
    asked = parse_workload(text)
    assert asked is not None
    found = workload_for(embedder(ENCODER), asked)

    assert (found.input_tokens, found.texts, found.output_tokens) == (tokens, texts, 0)
    assert workload_for(model_of(DECODER), asked) == asked


def test_texts_are_predicted_as_prompts_without_answers() -> None:
    plan: Plan = plan_of(embedder(ENCODER), "ml.g5.xlarge")
    accelerator = accelerator_of(plan.instance)
    assert accelerator is not None
    setup = setup_of(plan, accelerator)
    one, many = (parse_workload(text) for text in ("embed:512x1", "embed:512x32"))
    assert one is not None
    assert many is not None
    short, long = (predict_point(setup, load, 1) for load in (one, many))

    assert long.latency_s > 20 * short.latency_s * 0.5
    assert long.input_tokens_s == long.output_tokens_s * 512  # tokens in, texts
    busy = predict_point(setup, many, 16)
    assert busy.latency_s > 10 * long.latency_s
    assert long.output_tokens_s <= busy.output_tokens_s < 2 * long.output_tokens_s


def test_no_profile_of_a_chat_model_has_pooling() -> None:
    plan = plan_of(model_of(DECODER), LOCAL_CPU)

    assert isinstance(plan.profile, ModelProfile)
    assert plan.profile.pooling is None
