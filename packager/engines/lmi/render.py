"""The LMI family: AWS Large Model Inference, which is DJL Serving around vLLM.

Images with TensorRT-LLM inside have keys of their own: see `trtllm`.

The model's directory is the model store, and `serving.properties` at its root
makes it one model; a store of directories alone would be loaded as several
models.  HF_MODEL_ID stays unset: it would add a second model.

Left alone, LMI chooses its mode from config.json's architecture.  We set the
asynchronous mode and its handler, so that a model cannot change how it is served;
before LMI 17, where that mode was new, we set the rolling batch of vLLM.

The same values are given again as OPTION_* environment.  The server reads the
file first, so they change nothing there; LMI's partition scripts and scripts
that only look at the environment see them.  Both come from one table, so
they cannot differ.  The price: a value is changed by building again, for an
OPTION_* set at deployment loses against the file.  Mounted weights get the
environment alone: a file of ours would lie below the mount.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from packager.core.facts import ContainerFacts
from packager.core.plan import Plan
from packager.core.serving import MODEL_DIR
from packager.core.traits import AdapterTraits
from packager.engines.adapters import adapter_traits
from packager.engines.lmi import trtllm
from packager.engines.lmi.options import CLOSED_UNTIL, LmiOptions, lmi_options
from packager.engines.schema import find_schema
from packager.engines.shared import (
    NGRAM_LONGEST,
    NGRAM_SHORTEST,
    OFFLINE_ENV,
    draft_dir,
    load_time_quantization,
)
from packager.engines.trtllm import ENGINE as TENSORRT
from packager.engines.vllm.options import parser_options, schema_of, speculative_config

ASYNC_SINCE = 17  # the asynchronous mode is the default; before, the rolling batch
JSON_DRAFT_SINCE = 15  # `speculative_config`; before, `speculative_model` and its companions

LEGACY_DRAFTS = ("draft_model", "ngram")

ROLLING_BATCH, ASYNC_MODE = "option.rolling_batch", "option.async_mode"
ENTRY_POINT = "option.entryPoint"

# Keys that LMI 13 drops: without the second the cache would be twice the planned size.
SERVED_NAME, KV_DTYPE = "option.served_model_name", "option.kv_cache_dtype"


def release_of(plan: Plan) -> int:
    """Return LMI's release number: 28 of `0.36.0-lmi28.0.0-cu130`."""
    return release_number(plan.container)


def release_number(container: ContainerFacts) -> int:
    match = re.search(r"lmi(\d+)", container.version)
    if match:
        return int(match[1])
    return int(container.release) if container.release.isdecimal() else ASYNC_SINCE


def parser_key(option: str) -> str:
    return f"option.{option.replace('-', '_')}"


def _answers(plan: Plan) -> dict[str, str]:
    """Return the parsers of answers that were chosen, in LMI's keys.

    The rolling batch reads the reasoning parser where `enable_reasoning` is true only.
    """
    meant = {
        parser_key(name): "true" if value is True else str(value)
        for name, value in parser_options(plan).items()
    }
    if plan.reasoning_parser is not None and release_of(plan) < ASYNC_SINCE:
        meant["option.enable_reasoning"] = "true"
    return meant


def fields_of(container: ContainerFacts) -> frozenset[str]:
    """Return the options that LMI hands on to this version of vLLM."""
    schema = find_schema("vllm", container.engine_version)
    return schema.fields if schema.is_for(container.engine_version) else frozenset()


def names_models(container: ContainerFacts) -> bool:
    """Check that this release reads a name for the model."""
    if container.engine == TENSORRT:
        return False
    schema = find_schema("vllm", container.engine_version)
    return SERVED_NAME in lmi_options(schema, release_number(container)).types


def lmi_adapters(container: ContainerFacts) -> AdapterTraits | None:
    """Return how a release serves adapters: its asynchronous mode registers those of a directory.

    It answers a name that is nobody's with an error, and takes names in `adapters` or a header.
    """
    traits = adapter_traits(container.engine, container.engine_version)
    if traits is None or release_number(container) < ASYNC_SINCE:
        return None
    return replace(
        traits,
        layout="directory",
        in_model=True,
        base_answers="where a body has `model` alone: `adapters`, or SageMaker's header, names it",
        runtime_variable="",
        always_runtime=True,
    )


def options_of(plan: Plan) -> LmiOptions:
    return lmi_options(schema_of(plan), release_of(plan))


def settings(plan: Plan) -> dict[str, str]:
    """Return the plan and the options requested by name as LMI's keys."""
    if plan.container.engine == TENSORRT:
        return trtllm.settings(plan)
    asked = {option_key(name): value for name, value in plan.engine_options}
    return {**planned(plan), **_answers(plan), **asked}


def option_key(name: str) -> str:
    """Return an option as LMI's key: `enable-prefix-caching` is option.enable_prefix_caching."""
    bare = name.removeprefix("--").removeprefix("option.")
    return f"option.{bare if bare == 'entryPoint' else bare.lower().replace('-', '_')}"


def planned(plan: Plan) -> dict[str, str]:
    meant = {
        "engine": "Python",
        **_mode(plan),
        "option.tensor_parallel_degree": str(plan.tp_degree),
        "option.max_rolling_batch_size": str(plan.shape.max_batch),
        "option.max_model_len": str(plan.shape.max_total_tokens),
        "option.dtype": plan.dtype,
        "option.gpu_memory_utilization": str(plan.gpu_memory_utilization),
    }
    reads = options_of(plan).types
    if SERVED_NAME in reads:
        meant[SERVED_NAME] = plan.served_name
    meant["option.trust_remote_code"] = "false"
    if plan.max_prefill_tokens is not None:
        meant["option.max_rolling_batch_prefill_tokens"] = str(plan.max_prefill_tokens)
    # A checkpoint that is quantized says so itself; the key would keep vLLM from its fast kernels.
    if load_time_quantization(plan):
        meant["option.quantize"] = load_time_quantization(plan)
    if plan.kv_dtype != "auto" and KV_DTYPE in reads:
        meant[KV_DTYPE] = plan.kv_dtype
    if plan.expert_parallel:
        meant["option.enable_expert_parallel"] = "true"
    if plan.draft is not None:
        meant |= _draft(plan)
    return meant


def _mode(plan: Plan) -> dict[str, str]:
    if release_of(plan) < ASYNC_SINCE:
        return {"option.rolling_batch": "vllm"}
    return {
        "option.async_mode": "true",
        "option.rolling_batch": "disable",
        "option.entryPoint": "djl_python.lmi_vllm.vllm_async_service",
    }


def _draft(plan: Plan) -> dict[str, str]:
    draft = plan.draft
    assert draft is not None
    if release_of(plan) >= JSON_DRAFT_SINCE:
        config = json.dumps(speculative_config(plan), separators=(",", ":"))
        return {"option.speculative_config": config}
    tokens = {"option.num_speculative_tokens": str(draft.speculative_tokens)}
    if release_of(plan) <= CLOSED_UNTIL:  # "Speculative decoding requires usage of the V2 …"
        tokens["option.use_v2_block_manager"] = "true"
    if draft.kind != "ngram":
        return {"option.speculative_model": draft_dir(plan), **tokens}
    return {
        "option.speculative_model": "[ngram]",
        **tokens,
        "option.ngram_prompt_lookup_max": str(NGRAM_LONGEST),
        "option.ngram_prompt_lookup_min": str(NGRAM_SHORTEST),
    }


def environment(plan: Plan) -> dict[str, str]:
    env = {**OFFLINE_ENV, "DJL_OFFLINE": "true", "OPT_OUT_TRACKING": "1"}
    if plan.weights == "baked":
        return {**env, "SERVING_MODEL_STORE": MODEL_DIR, **_option_env(settings(plan))}
    return {**env, "OPTION_ENGINE": "Python", **_option_env(settings(plan))}


def _option_env(meant: Mapping[str, str]) -> dict[str, str]:
    """Return `option.` keys as environment variables, which LMI lower-cases; it knows `entryPoint`.

    `engine` stays out: the server would read OPTION_ENGINE as `engine`, the
    partition scripts as `option.engine`.
    """
    prefix = "option."
    return {
        f"OPTION_{key.removeprefix(prefix).upper()}": value
        for key, value in meant.items()
        if key.startswith(prefix)
    }
