"""The TGI family: Hugging Face's Text Generation Inference.

The launcher reads everything from environment variables, and so do the router and the shards that
it starts.  In the image for SageMaker a script starts it: the script has names of its own for a
few variables (`HF_MODEL_ID`, `SM_NUM_GPUS`), which overwrite the launcher's; upstream's image has
the launcher's names alone.  What each version reads is in `data/engines/tgi-*.json`.  The longest
prompt is `MAX_INPUT_LENGTH`, which every version knows; newer ones call it MAX_INPUT_TOKENS, and
refuse both together.

Medusa heads are a model directory of their own, whose config.json names the
model they belong to.  Mounted, the heads are the mount's root and the model
lies under `llm/`.  Baked, each keeps the directory it always has, so that the
model's layers are the same with and without heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from packager.core.plan import GPU_MEMORY_UTILIZATION, Plan
from packager.core.serving import RenderedFile
from packager.core.traits import QuantizedDtypes
from packager.engines.rendering.check import check_json
from packager.engines.rendering.environment import render_template
from packager.engines.rules import plan_facts
from packager.engines.schema import EngineSchema, find_schema
from packager.engines.shared import (
    checkpoint_format,
    load_time_quantization,
    medusa_config,
    medusa_dirs,
    model_dir,
)
from packager.engines.tgi.attention import runs_chunks

PORT = 8080

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
KV_DTYPES = {"fp8": "fp8_e4m3fn"}
DEFAULT_CONCURRENT = 128  # of the launcher
DEFAULT_PREFILL = 4096  # of the launcher, or more

# checkpoint's format → what QUANTIZE calls it
QUANTIZE = {
    "awq": "awq",
    "gptq": "gptq",
    "compressed-tensors": "compressed-tensors",
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "exl2": "exl2",
    "marlin": "marlin",
    "bitsandbytes": "bitsandbytes",
    "eetq": "eetq",
}

# Beside QUANTIZE the shards refuse DTYPE, but for bitsandbytes (server/cli.py), and `get_model` of
# server/models/__init__.py decides: float16 for four formats, else the default of each class.
QUANTIZED_DTYPES = QuantizedDtypes(
    half=frozenset({"awq", "gptq", "exl2", "marlin"}),
    asked=frozenset({"bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4"}),
    wide=frozenset(
        {
            *("deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3", "gemma3_text", "dbrx"),
            *("qwen2_vl", "qwen2_5_vl", "mllama", "llama4", "idefics3", "paligemma"),
        }
    ),
)
SAGEMAKER_NAMES = {"MODEL_ID": "HF_MODEL_ID", "NUM_SHARD": "SM_NUM_GPUS"}


def settings(plan: Plan) -> dict[str, str]:
    """Return the plan and the options requested by name as the launcher's variables."""
    return {**planned(plan), **_requested(plan)}


def env_name(option: str) -> str:
    """Return an option as the launcher's variable: `max-batch-size` is MAX_BATCH_SIZE."""
    return option.replace("-", "_").upper()


def schema_of(plan: Plan) -> EngineSchema:
    """Return what the plan's version of TGI reads."""
    return find_schema("tgi", plan.container.engine_version)


def planned(plan: Plan) -> dict[str, str]:
    names = SAGEMAKER_NAMES if is_for_sagemaker(plan) else {}
    shape = plan.shape
    env = {
        names.get("MODEL_ID", "MODEL_ID"): medusa_dirs(plan)[0]
        if has_medusa(plan)
        else model_dir(plan),
        names.get("NUM_SHARD", "NUM_SHARD"): str(plan.tp_degree),
        "MAX_INPUT_LENGTH": str(shape.max_input_tokens),
    }
    if plan.max_prefill_tokens is not None:
        env["MAX_BATCH_PREFILL_TOKENS"] = str(plan.max_prefill_tokens)
    elif not _chunks(plan, dict(_requested(plan))):
        env["MAX_BATCH_PREFILL_TOKENS"] = str(max(shape.max_input_tokens, DEFAULT_PREFILL))
    env["MAX_TOTAL_TOKENS"] = str(shape.max_total_tokens)
    quantize = _quantize(plan)
    if quantize:
        # Also where config.json says it: with Medusa, TGI looks for it in the heads' own.
        env["QUANTIZE"] = quantize
    if plan.dtype in DTYPES and (not quantize or quantize in QUANTIZED_DTYPES.asked):
        env["DTYPE"] = DTYPES[plan.dtype]
    if plan.kv_dtype in KV_DTYPES:
        env["KV_CACHE_DTYPE"] = KV_DTYPES[plan.kv_dtype]
    if plan.draft is not None and plan.draft.speculative_tokens != plan.draft.heads:
        env["SPECULATE"] = str(plan.draft.speculative_tokens)  # as many as heads without it
    if shape.max_batch > DEFAULT_CONCURRENT:
        env["MAX_CONCURRENT_REQUESTS"] = str(shape.max_batch)
    if plan.gpu_memory_utilization != GPU_MEMORY_UTILIZATION:
        env |= _memory_share(plan)
    if not names:
        env |= {"HOSTNAME": "0.0.0.0", "PORT": str(PORT)}
    return env


def _memory_share(plan: Plan) -> dict[str, str]:
    """Return the variables that make TGI use the planned share of each GPU.

    It takes CUDA_MEMORY_FRACTION of the GPU, all of it unless set, and leaves out of that what
    TGI_WIGGLE_ROOM is below 1: `get_free_memory` of server/models/flash_causal_lm.py.
    """
    share = plan.gpu_memory_utilization
    room = schema_of(plan).options.get("TGI_WIGGLE_ROOM")
    kept = float(room.default) if room is not None and room.default else 1.0
    if share > kept:
        return {"TGI_WIGGLE_ROOM": str(share)}
    return {"CUDA_MEMORY_FRACTION": f"{math.floor(share / kept * 10_000) / 10_000:g}"}


def _requested(plan: Plan) -> dict[str, str]:
    return {env_name(name): value for name, value in plan.engine_options}


def is_for_sagemaker(plan: Plan) -> bool:
    """Return whether the image is SageMaker's, whose script starts the launcher, not upstream's."""
    return plan.container.variant != "upstream"


def _quantize(plan: Plan) -> str:
    return QUANTIZE.get(checkpoint_format(plan), "") or load_time_quantization(plan)


def medusa_file(plan: Plan, heads: str) -> RenderedFile:
    """Write the config.json that makes TGI load heads."""
    meant = medusa_config(plan)
    path = f"{heads}/config.json"
    text = render_template("tgi/medusa_config.json.j2", config=meant)
    check_json(path, text, meant)
    return RenderedFile(path=path, data=text.encode("ascii"))


def _chunks(plan: Plan, env: Mapping[str, str]) -> bool:
    version = plan.container.engine_version
    return plan.draft is None and runs_chunks(version, env, plan_facts(plan))


def has_medusa(plan: Plan) -> bool:
    return plan.draft is not None and plan.draft.kind == "medusa"
