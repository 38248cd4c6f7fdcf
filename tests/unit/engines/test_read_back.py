"""Random plans of every family, read back by parsers that are not ours.

What is expected is spelled out here a second time, on purpose: every value that was
planned arrives under its name, and nothing else does.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import javaproperties
from hypothesis import assume, given
from hypothesis import strategies as st

from packager.cli.plugins.tables import FAMILIES
from packager.core.artifact import Artifacts
from packager.core.findings import errors_in
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.shape import Shape
from tests.support.engine_plans import (
    AWQ,
    DRAFT_MODEL,
    EAGLE3,
    FP8_AT_LOAD,
    LLAMA_8B,
    MEDUSA_V1,
    MIXTRAL,
    NGRAM,
    PACKED,
    plan_for,
)

OFFLINE = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"}
LONG = {"bf16": "bfloat16", "fp16": "float16"}
ALGORITHMS = {"draft_model": "STANDALONE", "eagle3": "EAGLE3", "ngram": "NGRAM"}

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z")


@st.composite
def plans(draw: st.DrawFn, container: str) -> Plan:
    """A plan that the family does not refuse."""
    total = draw(st.integers(2, 32768))
    shape = Shape(
        max_batch=draw(st.integers(1, 512)),
        max_input_tokens=draw(st.integers(1, total - 1)),
        max_total_tokens=total,
    )
    draft = draw(st.sampled_from([None, EAGLE3, DRAFT_MODEL, NGRAM, MEDUSA_V1]))
    if draft is not None and draft.kind != "medusa":
        draft = replace(draft, speculative_tokens=draw(st.integers(1, 8)))
    plan = plan_for(
        container,
        profile=draw(st.sampled_from([LLAMA_8B, MIXTRAL])),
        served_name=draw(NAMES),
        shape=shape,
        tp_degree=draw(st.sampled_from([1, 2, 4])),
        pp_degree=draw(st.sampled_from([1, 1, 2])),
        dtype=draw(st.sampled_from(["bf16", "fp16"])),
        weights=draw(st.sampled_from(["baked", "mounted"])),
        kv_dtype=draw(st.sampled_from(["auto", "fp8"])),
        max_prefill_tokens=draw(st.none() | st.integers(32768, 65536)),
        quantization=draw(st.sampled_from([None, AWQ, PACKED, FP8_AT_LOAD])),
        draft=draft,
    )
    if plan.container.family in ("vllm", "sglang") and plan.instance.kind == "nvidia":
        copies = draw(st.sampled_from([1, 2, 4]))
        shares = copies > 1 and draw(st.booleans())
        plan = replace(plan, dp_degree=copies, dp_attention=shares)
    if plan.container.family in ("vllm", "sglang", "lmi") and plan.instance.kind == "nvidia":
        plan = replace(plan, expert_parallel=draw(st.booleans()))
    if plan.container.family == "neuron":
        plan = replace(
            plan, draft=None, quantization=None, kv_dtype="auto", pp_degree=1, tp_degree=24
        )
    assume(not errors_in(FAMILIES.find(plan.container.family).make().check(plan)))
    return plan


def render(plan: Plan) -> ServingConfig:
    config: ServingConfig = (
        FAMILIES.find(plan.container.family).make().render(plan, Artifacts(model=()))
    )
    return config


def where(plan: Plan) -> tuple[str, str]:
    if plan.weights == "baked":
        return "/opt/packager/model", "/opt/packager/draft"
    return "/opt/ml/model", "/opt/ml/additional-model-data-sources/draft_model"


def speculative(plan: Plan) -> dict[str, Any] | None:
    if plan.draft is None:
        return None
    config: dict[str, Any] = {
        "method": plan.draft.kind,
        "num_speculative_tokens": plan.draft.speculative_tokens,
    }
    if plan.draft.kind == "ngram":
        return config | {"prompt_lookup_max": 3, "prompt_lookup_min": 1}
    return config | {"model": where(plan)[1]}


def vllm_values(plan: Plan) -> dict[str, Any]:
    """What vLLM is to be told, in its own names."""
    values: dict[str, Any] = {
        "model": where(plan)[0],
        "served-model-name": plan.served_name,
        "dtype": LONG[plan.dtype],
        "tensor-parallel-size": plan.tp_degree,
        "max-model-len": plan.shape.max_total_tokens,
        "max-num-seqs": plan.shape.max_batch,
        "pipeline-parallel-size": plan.pp_degree if plan.pp_degree > 1 else None,
        "data-parallel-size": plan.dp_degree if plan.dp_degree > 1 else None,
        "max-num-batched-tokens": plan.max_prefill_tokens,
        "quantization": "fp8" if plan.quantization == FP8_AT_LOAD else None,
        "kv-cache-dtype": None if plan.kv_dtype == "auto" else plan.kv_dtype,
        "speculative-config": speculative(plan),
    }
    return told(values)


def told(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def as_text(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, dict) else str(value) for name, value in values.items()
    }


def parsed(read: dict[str, str]) -> dict[str, Any]:
    return {
        name: json.loads(value)
        if name.lower().endswith(("speculative-config", "_config"))
        else value
        for name, value in read.items()
    }


def variables(config: ServingConfig, prefix: str) -> dict[str, str]:
    """The variables of a prefix as an entrypoint makes options of them; no others but offline."""
    assert {name for name in config.env if not name.startswith(prefix)} == OFFLINE
    assert {file.path.rpartition("/")[2] for file in config.files} <= {"config.json"}
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in config.env.items()
        if name.startswith(prefix)
    }


def command(config: ServingConfig) -> tuple[dict[str, str], set[str]]:
    """Options with values, and bare flags, of a command that a shell could have read."""
    (file,) = (file for file in config.files if file.path.endswith("command.json"))
    *start, last = (argv := shlex.split(shlex.join(json.loads(file.data)["argv"])))[:3]
    options = {"model": last} if start == ["vllm", "serve"] else {}
    words = argv[3:]
    flags: set[str] = set()
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        if index + 1 < len(words) and not words[index + 1].startswith("--"):
            options[word.removeprefix("--")] = words[index + 1]
        else:
            flags.add(word)
    return options, flags


@given(plans("vllm"))
def test_variables_of_vllm(plan: Plan) -> None:
    read = parsed(variables(render(plan), "SM_VLLM_"))

    assert read.pop("gpu-memory-utilization") == "0.9"
    assert read.pop("shutdown-timeout") == "25"
    assert read.pop("disable-access-log-for-endpoints") == "/health,/ping"
    assert read.pop("enable-expert-parallel", "") == ("true" if plan.expert_parallel else "")
    assert read == as_text(vllm_values(plan))


@given(st.sampled_from(["vllm-upstream", "vllm-cpu"]).flatmap(plans))
def test_the_command_line_of_vllm(plan: Plan) -> None:
    options, flags = command(render(plan))
    extra = {"host": "0.0.0.0", "port": "8080", "middleware": "inputs_adapter.InputsAdapter"}
    extra |= {"shutdown-timeout": "25", "disable-access-log-for-endpoints": "/health,/ping"}
    if plan.instance.kind == "cpu":
        assert flags == {"--enforce-eager"}
    else:
        assert flags == ({"--enable-expert-parallel"} if plan.expert_parallel else set())
        extra["gpu-memory-utilization"] = "0.9"

    assert parsed(options) == as_text(vllm_values(plan)) | extra


@given(st.sampled_from(["tgi", "tgi-upstream"]).flatmap(plans))
def test_the_variables_of_tgi(plan: Plan) -> None:
    config = render(plan)
    upstream, mounted = plan.container.variant == "upstream", plan.weights == "mounted"
    medusa = plan.draft is not None and plan.draft.kind == "medusa"
    root = "/opt/packager/draft" if medusa and not mounted else where(plan)[0]
    formats = {None: None, AWQ: "awq", PACKED: "compressed-tensors", FP8_AT_LOAD: "fp8"}
    quantize = formats[plan.quantization]
    batch, prompt = plan.shape.max_batch, plan.shape.max_input_tokens
    whole = max(prompt, 4096) if plan.draft else None  # speculation turns chunking off
    expected = {
        "MODEL_ID" if upstream else "HF_MODEL_ID": root,
        "NUM_SHARD" if upstream else "SM_NUM_GPUS": plan.tp_degree,
        "MAX_INPUT_LENGTH": plan.shape.max_input_tokens,
        "MAX_TOTAL_TOKENS": plan.shape.max_total_tokens,
        "MAX_BATCH_PREFILL_TOKENS": plan.max_prefill_tokens or whole,
        "MAX_CONCURRENT_REQUESTS": batch if batch > 128 else None,
        "QUANTIZE": quantize,
        "DTYPE": None if quantize else LONG[plan.dtype],
        "KV_CACHE_DTYPE": "fp8_e4m3fn" if plan.kv_dtype == "fp8" else None,
        "SPECULATE": plan.draft.speculative_tokens if plan.draft and not medusa else None,
        "HOSTNAME": "0.0.0.0" if upstream else None,
        "PORT": 8080 if upstream else None,
        "HF_HUB_OFFLINE": None if mounted else 1,
        "USAGE_STATS": None if mounted else "off",
    }

    assert config.env == as_text(told(expected))
    if medusa:
        (file,) = config.files
        assert file.path == f"{root}/config.json"
        written = json.loads(file.data)
        model = "/opt/ml/model/llm/" if mounted else "/opt/packager/model/"
        assert written["base_model_name_or_path"] == model
        assert (written["medusa_num_heads"], written["medusa_num_layers"]) == (3, 1)
        assert "architectures" not in written
    else:
        assert config.files == ()


@given(plans("sglang"))
def test_the_variables_of_sglang(plan: Plan) -> None:
    draft = plan.draft
    heads = draft is not None and draft.kind != "ngram"
    ranks = plan.dp_degree if plan.dp_attention else 1  # inside the devices of `tp-size`
    prefill = plan.max_prefill_tokens
    expected = {
        "model-path": where(plan)[0],
        "served-model-name": plan.served_name,
        "dtype": LONG[plan.dtype],
        "tp-size": plan.tp_degree * ranks,
        "dp-size": plan.dp_degree if plan.dp_degree > 1 else None,
        "enable-dp-attention": "true" if plan.dp_attention else None,
        "ep-size": plan.tp_degree * ranks if plan.expert_parallel else None,
        "pp-size": plan.pp_degree if plan.pp_degree > 1 else None,
        "context-length": plan.shape.max_total_tokens,
        "max-running-requests": plan.shape.max_batch * ranks,
        "chunked-prefill-size": None if prefill is None else prefill * ranks,
        "quantization": "fp8" if plan.quantization == FP8_AT_LOAD else None,
        "kv-cache-dtype": "fp8_e4m3" if plan.kv_dtype == "fp8" else None,
        "mem-fraction-static": "0.78",
        "speculative-algorithm": ALGORITHMS[draft.kind] if draft else None,
        "speculative-num-draft-tokens": draft.speculative_tokens + 1 if draft else None,
        "speculative-draft-model-path": where(plan)[1] if heads else None,
        "speculative-num-steps": draft.speculative_tokens if draft and heads else None,
        "speculative-eagle-topk": 1 if heads else None,
    }

    assert variables(render(plan), "SM_SGLANG_") == as_text(told(expected))


@given(st.sampled_from(["neuron-vllm", "neuron-nxdi"]).flatmap(plans))
def test_the_command_line_of_vllm_on_neuron(plan: Plan) -> None:
    options, flags = command(render(plan))
    extra = {"host": "0.0.0.0", "port": "8080", "middleware": "inputs_adapter.InputsAdapter"}
    nxdi = plan.container.variant == "vllm-nxdi"
    if not nxdi:  # whose vLLM, 0.13.0, has no such option
        extra |= {"shutdown-timeout": "25", "disable-access-log-for-endpoints": "/health,/ping"}

    assert flags == ({"--no-enable-prefix-caching"} if nxdi else set())
    assert parsed(options) == as_text(vllm_values(plan)) | extra


@given(plans("neuron-hf"))
def test_the_variables_of_hugging_faces_vllm_on_neuron(plan: Plan) -> None:
    is_named = plan.served_name != plan.model.name
    expected = {
        "HF_HUB_OFFLINE": 1,
        "TRANSFORMERS_OFFLINE": 1,
        "SM_ON_MODEL": where(plan)[0],
        "SM_ON_BATCH_SIZE": plan.shape.max_batch,
        "SM_ON_SEQUENCE_LENGTH": plan.shape.max_total_tokens,
        "SM_ON_TENSOR_PARALLEL_SIZE": plan.tp_degree,
        "SM_ON_SERVED_MODEL_NAME": plan.served_name if is_named else None,
    }

    assert render(plan).env == as_text(told(expected))


@given(plans("neuron-lmi"))
def test_the_properties_of_lmi_on_neuron(plan: Plan) -> None:
    config = render(plan)
    env = {name: config.env[name] for name in config.env if name.startswith("OPTION_")}
    expected = {
        "ENTRYPOINT": "djl_python.transformers_neuronx",
        "ROLLING_BATCH": "auto",
        "TENSOR_PARALLEL_DEGREE": plan.tp_degree,
        "N_POSITIONS": plan.shape.max_total_tokens,
        "MAX_ROLLING_BATCH_SIZE": plan.shape.max_batch,
        "DTYPE": plan.dtype,
        "MODEL_LOADING_TIMEOUT": 3600,
        "ENGINE": "Python" if plan.weights == "mounted" else None,
    }

    assert env == {f"OPTION_{key}": value for key, value in as_text(told(expected)).items()}
    for file in config.files:
        read = javaproperties.loads(file.data.decode("latin-1"))
        assert {key.removeprefix("option.").upper() for key in read} == {
            *(key.removeprefix("OPTION_") for key in env),
            "ENGINE",
        }
