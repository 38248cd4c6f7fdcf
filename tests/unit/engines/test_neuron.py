from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import javaproperties
import pytest

from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.shape import Shape
from packager.engines.neuron.family import NeuronFamily
from tests.support.engine_plans import AWQ, DRAFT_MODEL, EAGLE3, NGRAM, plan_for

STATIC = {
    "tp_degree": 24,
    "shape": Shape(max_batch=4, max_input_tokens=2048, max_total_tokens=4096),
}
IMAGES = ("neuron-vllm", "neuron-nxdi", "neuron-hf", "neuron-tgi", "neuron-lmi")


def render(plan: Plan) -> ServingConfig:
    return NeuronFamily().render(plan, Artifacts(model=()))


def command_of(plan: Plan) -> list[str]:
    argv: list[str] = json.loads(render(plan).files[0].data)["argv"]
    return argv


def errors(plan: Plan) -> list[str]:
    return [finding.code for finding in NeuronFamily().check(plan) if finding.severity == "error"]


@pytest.mark.parametrize("image", IMAGES)
def test_a_plain_plan_is_not_refused(image: str) -> None:
    assert errors(plan_for(image, **STATIC)) == []


def test_vllm_gets_a_command_of_the_compiled_shape() -> None:
    command = json.loads(render(plan_for("neuron-nxdi", **STATIC)).files[0].data)["argv"]

    assert command[command.index("--tensor-parallel-size") + 1] == "24"
    assert command[command.index("--max-num-seqs") + 1] == "4"
    assert command[command.index("--max-model-len") + 1] == "4096"
    assert "--no-enable-prefix-caching" in command
    assert "--gpu-memory-utilization" not in command


def test_tgi_gets_every_variable_so_that_it_looks_for_no_cached_model() -> None:
    env = render(plan_for("neuron-tgi", **STATIC)).env

    assert {key: env[key] for key in env if not key.endswith("OFFLINE")} == {
        "HF_MODEL_ID": "/opt/packager/model",
        "HF_NUM_CORES": "24",
        "HF_AUTO_CAST_TYPE": "bf16",
        "MAX_BATCH_SIZE": "4",
        "MAX_INPUT_TOKENS": "2048",
        "MAX_TOTAL_TOKENS": "4096",
        "MAX_BATCH_PREFILL_TOKENS": "8192",
    }


def test_hugging_faces_vllm_gets_sm_on_variables() -> None:
    env = render(plan_for("neuron-hf", weights="mounted", **STATIC)).env

    assert {key: env[key] for key in env if key.startswith("SM_ON_")} == {
        "SM_ON_MODEL": "/opt/ml/model",
        "SM_ON_BATCH_SIZE": "4",
        "SM_ON_SEQUENCE_LENGTH": "4096",
        "SM_ON_TENSOR_PARALLEL_SIZE": "24",
        "SM_ON_SERVED_MODEL_NAME": "chat",
    }


def test_vllms_plug_in_gets_an_eagle_3_head_without_a_prefix_cache() -> None:
    plan = plan_for("neuron-vllm", draft=EAGLE3, **STATIC)
    argv = command_of(plan)

    assert errors(plan) == []
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == {
        "method": "eagle3",
        "model": "/opt/packager/draft",
        "num_speculative_tokens": 3,
    }
    assert "--no-enable-prefix-caching" in argv
    assert "--speculative-config" not in command_of(replace(plan, draft=None))


def test_legacy_lmi_gets_its_properties_and_the_same_as_environment() -> None:
    config = render(plan_for("neuron-lmi", **STATIC))
    (file,) = config.files

    read = javaproperties.loads(file.data.decode("latin-1"))
    assert read["option.entryPoint"] == "djl_python.transformers_neuronx"
    assert (read["option.n_positions"], read["option.max_rolling_batch_size"]) == ("4096", "4")
    assert config.env["OPTION_N_POSITIONS"] == "4096"
    assert render(plan_for("neuron-lmi", weights="mounted", **STATIC)).files == ()


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"quantization": AWQ}, "quantization-unsupported"),
        ({"draft": NGRAM}, "draft-unsupported"),
        ({"draft": DRAFT_MODEL}, "draft-unsupported"),
        ({"kv_dtype": "fp8"}, "value-refused"),
        ({"pp_degree": 2}, "pipeline-unsupported"),
        ({"tp_degree": 32}, "static-shape"),
        ({"shape": Shape(max_batch=4, max_input_tokens=9, max_total_tokens=9)}, "static-shape"),
        ({"engine_options": (("max-bach-size", "1"),)}, "key-dropped"),
    ],
    ids=str,
)
def test_what_neuron_images_refuse_is_an_error(
    image: str, changes: dict[str, Any], code: str
) -> None:
    assert code in errors(plan_for(image, **(STATIC | changes)))


@pytest.mark.parametrize("image", ["neuron-vllm", "neuron-nxdi", "neuron-hf", "neuron-lmi"])
def test_a_prompt_limit_that_neuron_does_not_enforce_is_said(image: str) -> None:
    said = NeuronFamily().check(plan_for(image, **STATIC))

    assert "input-limit-not-enforced" in [finding.code for finding in said]


@pytest.mark.parametrize("image", ["neuron-tgi", "neuron-lmi"])
def test_a_served_name_that_a_neuron_image_would_drop_is_said(image: str) -> None:
    plan = replace(plan_for(image, **STATIC), served_name="chat")

    assert "served-name-unused" in [finding.code for finding in NeuronFamily().check(plan)]


@pytest.mark.parametrize("name", ["chat", "org/model"])
def test_hugging_faces_vllm_is_told_the_name(name: str) -> None:
    """It was said to take none; `serve` of optimum-neuron 0.4.5 has --served_model_name."""
    plan = replace(plan_for("neuron-hf", **STATIC), served_name=name)

    assert plan.model.name == "org/model"
    assert render(plan).env["SM_ON_SERVED_MODEL_NAME"] == plan.answers_as == name
    assert "served-name-unused" not in [finding.code for finding in NeuronFamily().check(plan)]


@pytest.mark.parametrize(
    ("image", "said"), [("neuron-tgi", "/opt/packager/model"), ("neuron-lmi", "")]
)
def test_what_cannot_be_told_a_name_answers_with_another(image: str, said: str) -> None:
    assert plan_for(image, **STATIC).answers_as == said


def asked(image: str, *options: tuple[str, str]) -> Plan:
    return plan_for(image, engine_options=options, **STATIC)


@pytest.mark.parametrize(
    ("option", "variable", "value"),
    [
        (("allow_non_cached_model", "true"), "SM_ON_ALLOW_NON_CACHED_MODEL", ""),
        (("task", "embed"), "SM_ON_TASK", "embed"),
        (("max-logprobs", "5"), "SM_ON_MAX_LOGPROBS", "5"),
        (("enable-auto-tool-choice", "true"), "SM_ON_ENABLE_AUTO_TOOL_CHOICE", ""),
        (("enable-log-requests", "false"), "SM_ON_NO_ENABLE_LOG_REQUESTS", ""),
    ],
    ids=["flag-of-serve", "task", "option-of-vllm", "switch-of-vllm", "switch-off"],
)
def test_hugging_faces_vllm_gets_options_of_serve_and_of_vllm(
    option: tuple[str, str], variable: str, value: str
) -> None:
    """A flag with a value would leave a stray word on the command line."""
    more = (("tool-call-parser", "hermes"),) if "tool" in option[0] else ()
    plan = asked("neuron-hf", option, *more)

    assert errors(plan) == []
    assert render(plan).env[variable] == value


@pytest.mark.parametrize(
    ("option", "code"),
    [
        (("max_num_seqs", "8"), "options-conflict"),
        (("max-model-len", "512"), "options-conflict"),
        (("dtype", "float16"), "options-conflict"),
        (("port", "8000"), "options-conflict"),
        (("batch_size", "2"), "options-conflict"),
        (("enable_prefix_caching", "true"), "key-dropped"),
        (("block-size", "16"), "key-dropped"),
        (("task", "rerank"), "value-refused"),
        (("sequence_lenght", "5"), "key-dropped"),
        (("max-logprobs", "many"), "value-refused"),
    ],
    ids=str,
)
def test_what_serve_decides_or_drops_is_refused(option: tuple[str, str], code: str) -> None:
    assert errors(asked("neuron-hf", option)) == [code]


@pytest.mark.parametrize(
    "option",
    [("quantize", "awq"), ("speculate", "2"), ("dtype", "bfloat16"), ("num_shard", "2")],
    ids=str,
)
def test_options_that_end_tgis_shards_on_neuron_are_refused(option: tuple[str, str]) -> None:
    """The launcher takes them, and passes on what the shards' command line has not."""
    assert errors(asked("neuron-tgi", option)) == ["key-dropped"]


@pytest.mark.parametrize("name", ["cuda_graphs", "cuda_memory_fraction", "lora_adapters"])
def test_options_that_nothing_on_neuron_reads_are_refused(name: str) -> None:
    assert errors(asked("neuron-tgi", (name, "1"))) == ["key-dropped"]


def overriding(**overrides: object) -> Plan:
    given = json.dumps({"override_neuron_config": overrides})
    return asked("neuron-nxdi", ("additional-config", given))


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"fused_qkvs": True}, "key-dropped"),
        ({"fused_qkv": "yes"}, "value-refused"),
        ({"on_device_sampling_config": {"top_kk": 1}}, "key-dropped"),
        ({"tp_degree": 8}, "options-conflict"),
        ({"seq_len": 512}, "options-conflict"),
        ({"torch_dtype": "float16"}, "options-conflict"),
    ],
    ids=str,
)
def test_overrides_that_nxd_inference_drops_or_the_plan_decides_are_refused(
    overrides: dict[str, object], code: str
) -> None:
    assert errors(overriding(**overrides)) == [code]


@pytest.mark.parametrize(
    "overrides",
    [
        {"fused_qkv": True},
        {"sequence_parallel_enabled": True, "flash_decoding_enabled": False},
        {"on_device_sampling_config": {"do_sample": True, "top_k": 5}},
        {"logical_nc_config": 1},
        {"enable_bucketing": True, "context_encoding_buckets": [1024, 2048]},
        {"moe_fused_nki_kernel_enabled": True},
    ],
    ids=str,
)
def test_overrides_that_nxd_inference_reads_are_taken(overrides: dict[str, object]) -> None:
    assert errors(overriding(**overrides)) == []


def test_each_release_has_the_overrides_of_its_own_library() -> None:
    """`disable_argmax_kernel` came after 0.7, which SDK 2.27 has."""
    plan = overriding(disable_argmax_kernel=True)
    old = replace(plan, container=replace(plan.container, release="2.27.1"))
    new = replace(plan, container=replace(plan.container, release="2.31.1"))

    assert (errors(old), errors(new)) == (["key-dropped"], [])


def test_what_the_plug_in_overwrites_is_refused() -> None:
    plan = asked("neuron-nxdi", ("max-num-batched-tokens", "4096"))
    old = replace(plan, container=replace(plan.container, release="2.27.1"))

    assert errors(old) == ["key-dropped"]


@pytest.mark.parametrize(
    ("option", "codes"),
    [
        (("enable_mixed_precision_accumulation", "true"), []),
        (("rolling_batch_strategy", "naive_rolling_batch"), []),
        (("waiting_steps", "3"), []),
        (("all_reduce_dtype", "bf16"), ["value-refused"]),
        (("model_loader", "nxdi"), ["value-refused"]),
        (("sequence_parallel", "true"), ["key-dropped"]),
        (("amp", "f16"), ["key-dropped"]),
    ],
    ids=str,
)
def test_lmis_last_image_for_neuron_reads_the_fields_of_its_own_class(
    option: tuple[str, str], codes: list[str]
) -> None:
    """`amp` is set from the dtype; a loader and a key of 0.31 were taken, some fields refused."""
    assert errors(asked("neuron-lmi", option)) == codes


def test_the_lmi_before_the_last_for_neuron_has_fewer_fields() -> None:
    plan = asked("neuron-lmi", ("fuse_mlp", "true"))
    old = replace(plan, container=replace(plan.container, release="0.29.0"))
    new = replace(plan, container=replace(plan.container, release="0.30.0"))

    assert (errors(old), errors(new)) == (["key-dropped"], [])
