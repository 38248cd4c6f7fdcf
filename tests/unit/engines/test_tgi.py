from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.shape import Shape
from packager.core.techniques import Draft
from packager.engines.tgi.check import check_launcher, check_settings
from packager.engines.tgi.family import TgiFamily
from tests.support.engine_plans import AWQ, DRAFT_MODEL, MEDUSA_V1, MIXTRAL, NGRAM, PACKED, plan_for

SEED_004 = plan_for(
    "tgi",
    profile=MIXTRAL,
    quantization=AWQ,
    draft=MEDUSA_V1,
    weights="mounted",
    shape=Shape(max_batch=8, max_input_tokens=8000, max_total_tokens=16384),
    max_prefill_tokens=16384,
    dtype="fp16",
)


def render(plan: Plan) -> ServingConfig:
    return TgiFamily().render(plan, Artifacts(model=()))


def errors(plan: Plan) -> list[str]:
    return [finding.code for finding in TgiFamily().check(plan) if finding.severity == "error"]


def codes(plan: Plan) -> list[str]:
    return [finding.code for finding in TgiFamily().check(plan)]


def refused(env: Mapping[str, str]) -> list[str]:
    found = check_settings(env, "3.3.6", by_script=False)
    return [finding.code for finding in found if finding.severity == "error"]


def test_mixtral_with_medusa_and_awq_gets_the_variables_of_the_blog_and_no_others() -> None:
    assert render(SEED_004).env == {
        "HF_MODEL_ID": "/opt/ml/model",
        "SM_NUM_GPUS": "4",
        "MAX_INPUT_LENGTH": "8000",
        "MAX_BATCH_PREFILL_TOKENS": "16384",
        "MAX_TOTAL_TOKENS": "16384",
        "QUANTIZE": "awq",
    }
    assert errors(SEED_004) == []


# One config.json serves TGI and vLLM up to 0.32: each leaves the other's keys alone.
OF_VLLM = {
    "model_type": "medusa",
    "hidden_size": SEED_004.profile.hidden_size,
    "vocab_size": SEED_004.profile.vocab_size,
    "truncated_vocab_size": SEED_004.profile.vocab_size,
    "num_heads": 3,
    "num_hidden_layers": 1,
    "medusa_fc_bias": True,
}


def test_mounted_medusa_heads_are_the_root_and_the_model_lies_under_llm() -> None:
    config = render(SEED_004)

    assert config.model_dir == "/opt/ml/model/llm"
    assert config.draft_dir == "/opt/ml/model"
    (file,) = config.files
    assert file.path == "/opt/ml/model/config.json"
    assert json.loads(file.data) == {
        "base_model_name_or_path": "/opt/ml/model/llm/",
        "medusa_num_heads": 3,
        "medusa_num_layers": 1,
        **OF_VLLM,
    }


def test_baked_medusa_heads_leave_the_models_layers_where_they_always_are() -> None:
    config = render(replace(SEED_004, weights="baked"))

    assert config.env["HF_MODEL_ID"] == "/opt/packager/draft"
    assert (config.model_dir, config.draft_dir) == ("/opt/packager/model", "/opt/packager/draft")
    (file,) = config.files
    assert file.path == "/opt/packager/draft/config.json"
    assert json.loads(file.data)["base_model_name_or_path"] == "/opt/packager/model/"


def test_baked_weights_reach_for_no_network() -> None:
    env = render(plan_for("tgi")).env

    assert env["HF_MODEL_ID"] == "/opt/packager/model"
    assert (env["HF_HUB_OFFLINE"], env["USAGE_STATS"]) == ("1", "off")


def test_dtype_is_given_only_without_quantize() -> None:
    assert render(plan_for("tgi")).env["DTYPE"] == "bfloat16"
    assert "DTYPE" not in render(plan_for("tgi", quantization=AWQ)).env
    assert render(plan_for("tgi", quantization=PACKED)).env["QUANTIZE"] == "compressed-tensors"


def test_upstreams_image_has_the_launchers_own_names() -> None:
    env = render(plan_for("tgi-upstream")).env

    assert env["MODEL_ID"] == "/opt/packager/model"
    assert (env["NUM_SHARD"], env["HOSTNAME"], env["PORT"]) == ("4", "0.0.0.0", "8080")
    assert "HF_MODEL_ID" not in env and "SM_NUM_GPUS" not in env


def test_n_grams_are_a_number_of_tokens() -> None:
    assert render(plan_for("tgi", draft=NGRAM)).env["SPECULATE"] == "3"


def test_fewer_tokens_than_medusa_has_heads_are_said() -> None:
    fewer = replace(MEDUSA_V1, speculative_tokens=2)

    assert render(replace(SEED_004, draft=fewer)).env["SPECULATE"] == "2"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"draft": DRAFT_MODEL}, "draft-unsupported"),
        ({"draft": replace(MEDUSA_V1, heads=0)}, "draft-incomplete"),
        ({"draft": replace(MEDUSA_V1, speculative_tokens=4)}, "draft-too-short"),
        ({"draft": replace(MEDUSA_V1, version="v2")}, "draft-unsupported"),
        ({"draft": replace(MEDUSA_V1, biased=False)}, "draft-unsupported"),
        ({"draft": replace(MEDUSA_V1, vocab_size=4096)}, "draft-unsupported"),
        ({"pp_degree": 2}, "pipeline-unsupported"),
        ({"tp_degree": 3}, "heads-not-divisible"),
        ({"quantization": replace(AWQ, checkpoint_format="gguf")}, "quantization-unsupported"),
        ({"engine_options": (("max-batch-sise", "4"),)}, "key-dropped"),
        ({"engine_options": (("max-total-tokens", "4"),)}, "options-conflict"),
        ({"engine_options": (("MAX_INPUT_TOKENS", "4"),)}, "options-conflict"),
        ({"engine_options": (("x" * 1025, "1"),)}, "value-refused"),
        ({"engine_options": (("CORS_ALLOW_ORIGIN", "x" * 1025),)}, "sagemaker-limit"),
    ],
    ids=str,
)
def test_what_tgi_or_sagemaker_would_refuse_is_an_error(
    changes: dict[str, object], code: str
) -> None:
    assert code in errors(replace(SEED_004, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "env",
    [
        {"MAX_INPUT_TOKENS": "1", "MAX_INPUT_LENGTH": "1"},
        {"MAX_INPUT_LENGTH": "8", "MAX_TOTAL_TOKENS": "8"},
        {"MAX_TOTAL_TOKENS": "9", "MAX_BATCH_TOTAL_TOKENS": "8"},
        {"MAX_BATCH_PREFILL_TOKENS": "9", "MAX_BATCH_TOTAL_TOKENS": "8"},
        {"QUANTIZE": "exl2", "NUM_SHARD": "2"},
        {"SHARDED": "true", "NUM_SHARD": "1"},
        {"QUANTIZE": "awq", "DTYPE": "float16"},
        {"VALIDATION_WORKERS": "0"},
        {"MAX_BATCH_SIZE": "0"},
        {"LORA_ADAPTERS": "a@b@c"},
        {"NGROK": "true"},
        {"QUANTIZE": "awk"},
        {"DTYPE": "bf16"},
        {"KV_CACHE_DTYPE": "fp8"},
        {"MAX_INPUT_LENGHT": "1"},
    ],
    ids=str,
)
def test_every_static_check_of_the_launcher_is_ours_too(env: dict[str, str]) -> None:
    assert refused(env)


def test_bitsandbytes_takes_a_dtype() -> None:
    assert refused({"QUANTIZE": "bitsandbytes-nf4", "DTYPE": "float16"}) == []


def test_a_prompt_longer_than_a_prefill_needs_chunks() -> None:
    env = {"MAX_INPUT_LENGTH": "8000", "MAX_BATCH_PREFILL_TOKENS": "4096"}

    assert [f.code for f in check_launcher(env, chunks=False)] == ["options-conflict"]
    assert list(check_launcher(env, chunks=True)) == []


def test_where_prompts_are_not_chunked_a_prefill_holds_the_longest() -> None:
    long = Shape(max_batch=4, max_input_tokens=7000, max_total_tokens=8192)
    plan = plan_for("tgi", shape=long)
    old_gpu = replace(plan.instance, compute_capability=7.5)

    assert "MAX_BATCH_PREFILL_TOKENS" not in render(plan).env
    old = plan_for("tgi", shape=long, instance=old_gpu)
    assert render(old).env["MAX_BATCH_PREFILL_TOKENS"] == "7000"
    assert errors(old) == []
    assert render(plan_for("tgi-2", shape=long)).env["MAX_BATCH_PREFILL_TOKENS"] == "7000"


@pytest.mark.parametrize("draft", [MEDUSA_V1, NGRAM], ids=["medusa", "ngram"])
def test_a_long_prompt_beside_a_draft_is_not_more_than_the_router_prefills(draft: Draft) -> None:
    shape = Shape(max_batch=8, max_input_tokens=7168, max_total_tokens=8192)

    plan = plan_for("tgi", profile=MIXTRAL, draft=draft, shape=shape)
    assert render(plan).env["MAX_BATCH_PREFILL_TOKENS"] == "7168"

    short = replace(plan, max_prefill_tokens=4096)
    assert "options-conflict" in errors(short)


def test_a_served_name_that_tgi_would_drop_is_said() -> None:
    unnamed = replace(SEED_004, served_name=SEED_004.model.name)

    assert "served-name-unused" in codes(replace(SEED_004, served_name="chat"))
    assert "served-name-unused" not in codes(unnamed)


LLAMA_HEADS = replace(MEDUSA_V1, replicated=False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"draft": LLAMA_HEADS}, "the config.json of the Medusa heads"),
        ({"head_dim": 96}, "heads of 96 are none of flashinfer's"),
        ({"head_dim": 80, "draft": NGRAM}, "heads of 80 are none of flashinfer's"),
        ({"model_type": "falcon"}, "models of type 'falcon'"),
        ({"model_type": "deepseek_v2"}, "models of type 'deepseek_v2'"),
        ({"engine_options": (("attention", "flashdecoding"),)}, "ATTENTION says so"),
    ],
    ids=["medusa", "heads-96", "heads-80-ngram", "falcon", "deepseek_v2", "attention-asked"],
)
def test_shards_of_tgi_fail_on_an_fp8_cache_without_flashinfer(
    changes: dict[str, Any], why: str
) -> None:
    """ValueError: FP8 KV cache is currently only supported for flashinfer on CUDA and paged …"""
    (message,) = [
        finding.message
        for finding in TgiFamily().check(cached(**changes))
        if finding.code == "kv-dtype-unsupported"
    ]

    assert "runs flashdecoding" in message and why in message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"draft": NGRAM},
        {"head_dim": 64},
        {"head_dim": 256},
        {"draft": LLAMA_HEADS, "engine_options": (("attention", "flashinfer"),)},
        {"model_type": "falcon", "engine_options": (("attention", "paged"),)},
        {"head_dim": 96, "compute_capability": 7.5},
        {"draft": LLAMA_HEADS, "kv_dtype": "auto"},
        {"head_dim": 96, "kv_dtype": "auto"},
    ],
    ids=str,
)
def test_an_fp8_cache_that_tgi_keeps_is_not_refused(changes: dict[str, Any]) -> None:
    assert "kv-dtype-unsupported" not in errors(cached(**changes))


def test_an_fp8_cache_asked_for_by_tgis_own_name_is_refused_beside_medusa_heads() -> None:
    plan = plan_for("tgi", draft=LLAMA_HEADS, engine_options=(("kv_cache_dtype", "fp8_e5m2"),))

    assert "kv-dtype-unsupported" in errors(plan)


def cached(**changes: Any) -> Plan:
    """A plan with an FP8 cache, with some fields of the plan, model or machine changed."""
    of_model = {key: changes.pop(key) for key in ("head_dim", "model_type") if key in changes}
    capability = changes.pop("compute_capability", 8.6)
    plan = plan_for("tgi", **{"kv_dtype": "fp8", **changes})
    return replace(
        plan,
        profile=replace(plan.profile, **of_model),
        instance=replace(plan.instance, compute_capability=capability),
    )


def messages(plan: Plan) -> list[str]:
    return [finding.message for finding in TgiFamily().check(plan) if finding.severity == "error"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("num_shard", "2"), "'NUM_SHARD' is overwritten by SageMaker's script"),
        (("model_id", "other/model"), "'MODEL_ID' is overwritten by SageMaker's script"),
        (("port", "8000"), "'PORT' is not read: SageMaker's script starts TGI with '8080'"),
    ],
    ids=["num_shard", "model_id", "port"],
)
def test_what_sagemakers_script_overwrites_is_refused(asked: tuple[str, str], said: str) -> None:
    plan = plan_for("tgi", engine_options=(asked,))

    assert [said in message for message in messages(plan)] == [True]


@pytest.mark.parametrize("asked", [("num_shard", "4"), ("port", "8080")], ids=str)
def test_what_sagemakers_script_sets_alike_is_taken(asked: tuple[str, str]) -> None:
    assert errors(plan_for("tgi", engine_options=(asked,))) == []


def test_a_quantization_of_the_scripts_does_not_slip_past_the_planned_one() -> None:
    plan = plan_for("tgi", quantization=AWQ, engine_options=(("hf_model_quantize", "gptq"),))

    assert messages(plan) == ["'QUANTIZE' is overwritten by SageMaker's script, with "
        "'HF_MODEL_QUANTIZE'"]  # fmt: skip


def test_upstreams_image_has_no_script_that_reads_sagemakers_names() -> None:
    plan = plan_for("tgi-upstream", engine_options=(("sm_num_gpus", "4"),))

    assert messages(plan) == ["'SM_NUM_GPUS' is read by the script of SageMaker's image alone"]


@pytest.mark.parametrize("name", ["cuda_visible_devices", "nvidia_visible_devices"])
def test_variables_that_choose_devices_are_the_plans(name: str) -> None:
    assert errors(plan_for("tgi", engine_options=((name, "0"),))) == ["options-conflict"]


@pytest.mark.parametrize(
    ("image", "name", "codes"),
    [
        ("tgi", "kv_cache_dtype", []),
        ("tgi-2", "kv_cache_dtype", ["key-dropped"]),
        ("tgi", "max_image_fetch_size", ["key-dropped"]),
        ("tgi-upstream", "max_image_fetch_size", []),
    ],
)
def test_each_version_reads_its_own_variables(image: str, name: str, codes: list[str]) -> None:
    value = {"kv_cache_dtype": "fp8_e5m2", "max_image_fetch_size": "1000"}[name]

    assert errors(plan_for(image, engine_options=((name, value),))) == codes


LONG = Shape(max_batch=4, max_input_tokens=7168, max_total_tokens=8192)


@pytest.mark.parametrize(
    "asked",
    [("attention", "paged"), ("prefill_chunking", "0"), ("speculate", "2")],
    ids=["paged", "chunking-off", "speculation"],
)
def test_an_option_that_turns_chunks_off_has_a_prefill_that_holds_the_longest_prompt(
    asked: tuple[str, str],
) -> None:
    plan = plan_for("tgi", shape=LONG, engine_options=(asked,))
    assert render(plan).env["MAX_BATCH_PREFILL_TOKENS"] == "7168"
    assert errors(plan) == []

    assert "options-conflict" in errors(replace(plan, max_prefill_tokens=4096))


def test_a_model_that_tgi_never_chunks_has_a_prefill_that_holds_the_longest_prompt() -> None:
    plan = plan_for("tgi", shape=LONG)
    chunked = replace(plan, profile=replace(plan.profile, model_type="qwen2"))
    pictures = replace(plan, profile=replace(plan.profile, model_type="qwen2_vl"))

    assert "MAX_BATCH_PREFILL_TOKENS" not in render(chunked).env
    assert render(pictures).env["MAX_BATCH_PREFILL_TOKENS"] == "7168"


def test_a_short_prompt_beside_a_draft_does_not_rely_on_the_launchers_estimate() -> None:
    """It may default to fewer than 4096: 2,500 for 13B on a T4."""
    short = Shape(max_batch=4, max_input_tokens=3000, max_total_tokens=4096)
    plan = plan_for("tgi", draft=NGRAM, shape=short)

    assert render(plan).env["MAX_BATCH_PREFILL_TOKENS"] == "4096"


def test_bitsandbytes_is_computed_in_the_planned_type() -> None:
    bits = replace(AWQ, method="bitsandbytes", checkpoint_format="bitsandbytes")

    env = render(plan_for("tgi", quantization=bits)).env
    assert (env["QUANTIZE"], env["DTYPE"]) == ("bitsandbytes", "bfloat16")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("3.3.6", []),
        ("3.3.7", []),
        ("3.3.5", ["the options of TGI 3.3.5 are not known here; those of 3.3.4 are used"]),
        ("3.1.1", ["the options of TGI 3.1.1 are not known here; those of 3.0.1 are used"]),
    ],
)
def test_a_version_whose_source_was_not_read_is_said(version: str, said: list[str]) -> None:
    plan = plan_for("tgi")
    other = replace(plan, container=replace(plan.container, engine_version=version))

    found = TgiFamily().check(other)
    assert [one.message for one in found if one.code == "options-unproven"] == said
