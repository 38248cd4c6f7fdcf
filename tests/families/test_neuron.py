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
from packager.families.neuron import NeuronFamily
from tests.families.plans import AWQ, DRAFT_MODEL, EAGLE3, NGRAM, plan_for

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


@pytest.mark.parametrize("image", ["neuron-hf", "neuron-tgi", "neuron-lmi"])
def test_a_served_name_that_a_neuron_image_would_drop_is_said(image: str) -> None:
    plan = replace(plan_for(image, **STATIC), served_name="chat")

    assert "served-name-unused" in [finding.code for finding in NeuronFamily().check(plan)]
