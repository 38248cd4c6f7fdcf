from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.techniques import Draft
from packager.engines.lmi.check import check_settings
from packager.engines.lmi.family import LmiFamily
from packager.engines.lmi.options import lmi_options
from packager.engines.lmi.render import settings
from packager.engines.vllm.options import schema_of
from packager.errors import PlanRejected
from packager.findings import Finding, errors_in
from tests.support.engine_plans import (
    AWQ,
    CONTAINERS,
    DRAFT_MODEL,
    EAGLE3,
    FP8_AT_LOAD,
    MEDUSA_V1,
    NGRAM,
    plan_for,
)
from tests.support.headers import LLAMA_3_8B, TINY, model_of, plan_of

PLAN = plan_of(model_of(LLAMA_3_8B), "g5.12xlarge", family="lmi", served_name="llama")


OPTIONS = lmi_options(schema_of(PLAN), 28)


def render(plan: Plan) -> ServingConfig:
    return LmiFamily().render(plan, Artifacts(model=()))


def properties(plan: Plan) -> dict[str, str]:
    (file,) = render(plan).files
    read: dict[str, str] = javaproperties.loads(file.data.decode("latin-1"))
    return read


def check(**changed: str) -> list[tuple[str, str]]:
    meant = settings(PLAN) | {key.replace("__", "."): value for key, value in changed.items()}
    findings: list[Finding] = list(check_settings(meant, OPTIONS))
    return [(finding.severity, finding.code) for finding in findings]


def test_properties_lie_at_the_root_of_the_model_store() -> None:
    config = render(PLAN)

    (file,) = config.files
    assert file.path == "/opt/packager/model/serving.properties"
    assert config.env["SERVING_MODEL_STORE"] == "/opt/packager/model"
    assert "HF_MODEL_ID" not in config.env
    assert "option.model_id" not in properties(PLAN)


def test_the_bases_entrypoint_is_kept() -> None:
    config = render(PLAN)

    assert (config.entrypoint, config.cmd, config.port) == ((), (), 8080)


def test_the_plan_is_spelled_in_lmis_keys() -> None:
    read = properties(PLAN)

    assert read["engine"] == "Python"
    assert read["option.tensor_parallel_degree"] == str(PLAN.tp_degree)
    assert read["option.max_rolling_batch_size"] == str(PLAN.shape.max_batch)
    assert read["option.max_model_len"] == "8192"
    assert read["option.dtype"] == "bf16"
    assert read["option.served_model_name"] == "llama"
    assert read["option.trust_remote_code"] == "false"


def test_the_mode_does_not_depend_on_the_models_config() -> None:
    read = properties(PLAN)

    assert read["option.rolling_batch"] == "disable"
    assert read["option.async_mode"] == "true"
    assert read["option.entryPoint"] == "djl_python.lmi_vllm.vllm_async_service"


def test_file_and_environment_say_the_same() -> None:
    env = render(PLAN).env
    server_reads = {  # ModelInfo.loadServingProperties lowers the name, but for entryPoint
        f"option.{'entryPoint' if name == 'ENTRYPOINT' else name.lower()}": value
        for name, value in (
            (key.removeprefix("OPTION_"), value)
            for key, value in env.items()
            if key.startswith("OPTION_")
        )
    }

    assert {"engine": "Python", **server_reads} == properties(PLAN)


def test_the_server_reaches_for_no_network() -> None:
    env = render(PLAN).env

    assert env["DJL_OFFLINE"] == "true"
    assert env["HF_HUB_OFFLINE"] == env["TRANSFORMERS_OFFLINE"] == env["OPT_OUT_TRACKING"] == "1"


def test_what_we_render_lmi_reads() -> None:
    assert check() == []


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("option__speculative_draft_model", "/opt/draft", "key-dropped"),
        ("option__max_num_batched", "1", "key-dropped"),
        ("option__dtype", "half", "value-refused"),
        ("option__tensor_parallel_degree", "max", "value-refused"),
        ("option__async_mode", "yes", "value-refused"),
        ("option__gpu_memory_utilization", "most", "value-refused"),
        ("option__served_model_name", "True", "value-refused"),
        ("engine", "MPI", "value-refused"),
    ],
)
def test_what_lmi_drops_or_refuses_is_an_error(key: str, value: str, code: str) -> None:
    assert check(**{key: value}) == [("error", code)]


def test_a_name_that_lmi_reads_as_a_switch_rejects_the_plan() -> None:
    with pytest.raises(PlanRejected) as error:
        plan_of(model_of(TINY), "g5.xlarge", family="lmi", served_name="true")

    assert [finding.code for finding in errors_in(error.value.findings)] == ["value-refused"]


def test_keys_of_another_version_are_a_warning() -> None:
    other = replace(PLAN, container=replace(PLAN.container, engine_version="0.9.2"))

    assert "options-unproven" in [finding.code for finding in LmiFamily().check(other)]


@given(
    served_name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z"),
    max_batch=st.integers(1, 64),
    max_total_tokens=st.integers(2, 512),
)
def test_every_name_and_shape_reads_back_as_it_was_planned(
    served_name: str, max_batch: int, max_total_tokens: int
) -> None:
    if served_name.lower() in {"true", "false"}:
        return
    read = properties(
        plan_of(
            model_of(TINY),
            "g5.xlarge",
            family="lmi",
            served_name=served_name,
            max_batch=max_batch,
            max_total_tokens=max_total_tokens,
        )
    )

    assert read["option.served_model_name"] == served_name
    assert read["option.max_rolling_batch_size"] == str(max_batch)
    assert read["option.max_model_len"] == str(max_total_tokens)


def errors(plan: Plan) -> list[str]:
    return [finding.code for finding in LmiFamily().check(plan) if finding.severity == "error"]


def test_a_draft_is_json_that_names_the_baked_directory() -> None:
    plan = plan_for("lmi", draft=EAGLE3)

    assert json.loads(properties(plan)["option.speculative_config"]) == {
        "method": "eagle3",
        "model": "/opt/packager/draft",
        "num_speculative_tokens": 3,
    }
    assert errors(plan) == []


@pytest.mark.parametrize("draft", [EAGLE3, DRAFT_MODEL, NGRAM, MEDUSA_V1], ids=lambda one: one.kind)
@pytest.mark.parametrize("weights", ["baked", "mounted"])
def test_no_key_of_a_draft_is_dropped(draft: Draft, weights: Literal["baked", "mounted"]) -> None:
    plan = plan_for("lmi", draft=draft, weights=weights)

    assert not {"key-dropped", "value-refused"} & {one.code for one in LmiFamily().check(plan)}
    assert json.loads(settings(plan)["option.speculative_config"])["method"] == draft.kind


def test_a_mounted_draft_is_in_sagemakers_channel() -> None:
    env = render(plan_for("lmi", draft=DRAFT_MODEL, weights="mounted")).env

    assert json.loads(env["OPTION_SPECULATIVE_CONFIG"])["model"] == (
        "/opt/ml/additional-model-data-sources/draft_model"
    )


def test_before_lmi_15_a_draft_has_keys_of_its_own() -> None:
    read = properties(plan_for("lmi-14", draft=DRAFT_MODEL))

    assert read["option.speculative_model"] == "/opt/packager/draft"
    assert read["option.num_speculative_tokens"] == "4"
    assert "option.speculative_config" not in read
    assert properties(plan_for("lmi-14", draft=NGRAM))["option.speculative_model"] == "[ngram]"
    assert errors(plan_for("lmi-14", draft=EAGLE3)) == ["draft-unsupported"]


@pytest.mark.parametrize(
    ("container", "draft", "keys"),
    [
        (
            "lmi-13",
            DRAFT_MODEL,
            {
                "option.speculative_model": "/opt/packager/draft",
                "option.num_speculative_tokens": "4",
                "option.use_v2_block_manager": "true",
            },
        ),
        (
            "lmi-13",
            NGRAM,
            {
                "option.speculative_model": "[ngram]",
                "option.num_speculative_tokens": "3",
                "option.use_v2_block_manager": "true",
                "option.ngram_prompt_lookup_max": "3",
                "option.ngram_prompt_lookup_min": "1",
            },
        ),
        (
            "lmi-14",
            DRAFT_MODEL,
            {
                "option.speculative_model": "/opt/packager/draft",
                "option.num_speculative_tokens": "4",
            },
        ),
    ],
    ids=["13-draft_model", "13-ngram", "14-draft_model"],
)
def test_lmi_13_starts_with_a_draft_only_with_the_v2_block_manager(
    container: str, draft: Draft, keys: dict[str, str]
) -> None:
    plan, plain = plan_for(container, draft=draft), plan_for(container)

    assert dict(properties(plan).items() - properties(plain).items()) == keys
    assert errors(plan) == []


def test_lmi_13_is_given_no_name_that_it_drops() -> None:
    plan = plan_for("lmi-13")

    assert "option.served_model_name" not in properties(plan)
    assert "OPTION_SERVED_MODEL_NAME" not in render(plan).env
    assert [
        (finding.severity, finding.code, finding.message)
        for finding in LmiFamily().check(plan)
        if finding.severity == "warning"
    ] == [
        (
            "warning",
            "served-name-unused",
            "LMI 13 cannot set its model's name; 'chat' is not rendered",
        )
    ]
    assert properties(plan_for("lmi-14"))["option.served_model_name"] == "chat"


@pytest.mark.parametrize(
    ("container", "found"),
    [("lmi-13", ["kv-dtype-unsupported"]), ("lmi-14", []), ("lmi", [])],
    ids=["13", "14", "28"],
)
def test_lmi_13_keeps_no_fp8_cache_that_is_planned(container: str, found: list[str]) -> None:
    plan = plan_for(container, kv_dtype="fp8")

    assert errors(plan) == found
    assert ("option.kv_cache_dtype" in properties(plan)) == (not found)


@pytest.mark.parametrize(
    ("container", "option", "found"),
    [
        ("lmi-13", ("seed", "7"), ["key-dropped"]),
        ("lmi-13", ("swap_space", "4"), ["key-dropped"]),
        ("lmi-13", ("async_scheduling", "true"), ["key-dropped"]),
        ("lmi-13", ("speculative_config", "{}"), ["key-dropped"]),
        ("lmi-13", ("quantization", "fp8"), ["key-dropped"]),
        ("lmi-13", ("served_model_name", "chat"), ["key-dropped"]),
        ("lmi-13", ("kv_cache_dtype", "fp8"), ["key-dropped"]),
        ("lmi-13", ("enable_prefix_caching", "true"), []),
        ("lmi-13", ("max_logprobs", "64"), []),
        ("lmi-13", ("max_logprobs", "many"), ["value-refused"]),
        ("lmi-13", ("load_format", "nonsense"), ["value-refused"]),
        ("lmi-14", ("seed", "7"), []),
        ("lmi-14", ("num_scheduler_steps", "8"), []),
    ],
    ids=lambda one: "=".join(one) if isinstance(one, tuple) else None,
)
def test_lmi_13_reads_the_keys_of_its_own_class_alone(
    container: str, option: tuple[str, str], found: list[str]
) -> None:
    assert errors(plan_for(container, engine_options=(option,))) == found


EAGLE = replace(EAGLE3, kind="eagle")


@pytest.mark.parametrize(
    ("container", "draft", "found"),
    [
        ("lmi-15", NGRAM, []),
        ("lmi-15", EAGLE, ["draft-unsupported"]),
        ("lmi-15", EAGLE3, ["draft-unsupported"]),
        ("lmi-16", EAGLE, []),
        ("lmi-16", EAGLE3, []),
    ],
    ids=["15-ngram", "15-eagle", "15-eagle3", "16-eagle", "16-eagle3"],
)
def test_lmi_15_takes_no_head_for_what_it_is_in_our_directory(
    container: str, draft: Draft, found: list[str]
) -> None:
    assert errors(plan_for(container, draft=draft)) == found


def test_before_lmi_17_the_batch_is_vllms_rolling_one() -> None:
    read = properties(plan_for("lmi-16"))

    assert read["option.rolling_batch"] == "vllm"
    assert "option.async_mode" not in read and "option.entryPoint" not in read


def test_a_quantized_checkpoint_gets_no_key_that_would_turn_fast_kernels_off() -> None:
    assert "option.quantize" not in properties(plan_for("lmi", quantization=AWQ))
    assert properties(plan_for("lmi", quantization=FP8_AT_LOAD))["option.quantize"] == "fp8"


def test_cache_dtype_and_prefill_are_given_when_they_were_decided() -> None:
    read = properties(plan_for("lmi", kv_dtype="fp8", max_prefill_tokens=2048))

    assert read["option.kv_cache_dtype"] == "fp8"
    assert read["option.max_rolling_batch_prefill_tokens"] == "2048"
    assert "option.kv_cache_dtype" not in properties(plan_for("lmi"))


def test_mounted_weights_get_the_environment_and_no_file() -> None:
    config = render(plan_for("lmi", weights="mounted"))

    assert config.files == ()
    assert config.env["OPTION_ENGINE"] == "Python"
    assert "SERVING_MODEL_STORE" not in config.env
    assert config.model_dir == "/opt/ml/model"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"pp_degree": 2}, "pipeline-unsupported"),
        ({"kv_dtype": "fp9"}, "value-refused"),
        ({"engine_options": (("speculative_draft_model", "/x"),)}, "key-dropped"),
        ({"engine_options": (("tensor_parallel_size", "2"),)}, "options-conflict"),
        ({"engine_options": (("max_model_len", "9"),)}, "options-conflict"),
        ({"engine_options": (("tokenizer", "a\\b"),)}, "value-refused"),
        ({"engine_options": (("tokenizer", "a\nb"),)}, "value-refused"),
        ({"engine_options": (("tokenizer", "ü"),)}, "value-refused"),
        ({"engine_options": (("enable_prefix_caching", "yes"),)}, "value-refused"),
    ],
    ids=str,
)
def test_what_lmi_drops_or_vllm_refuses_is_an_error(changes: dict[str, Any], code: str) -> None:
    assert code in errors(plan_for("lmi", **changes))


def test_options_asked_for_by_name_are_handed_on() -> None:
    plan = plan_for("lmi", engine_options=(("enable-prefix-caching", "false"),))

    assert properties(plan)["option.enable_prefix_caching"] == "false"
    assert errors(plan) == []


def test_old_tensorrt_llm_is_not_written_for() -> None:
    container = replace(CONTAINERS["lmi-trt"], engine_version="0.12.0")
    assert errors(replace(plan_for("lmi-trt"), container=container)) == ["engine-not-rendered"]


@pytest.mark.parametrize(
    ("blocks", "codes"),
    [
        ((), ["options-conflict"]),
        ((("use_v2_block_manager", "true"),), []),
        ((("use_v2_block_manager", "false"),), ["options-conflict"]),
    ],
    ids=["left out", "on", "off"],
)
def test_a_speculative_model_asked_of_lmi_13_needs_v2_blocks(
    blocks: tuple[tuple[str, str], ...], codes: list[str]
) -> None:
    plan = plan_for("lmi-13", engine_options=(("speculative_model", "[ngram]"), *blocks))

    assert [one.code for one in errors_in(LmiFamily().check(plan))] == codes
