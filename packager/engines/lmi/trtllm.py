"""LMI with TensorRT-LLM inside: a compiled engine, or the PyTorch backend that needs none.

A compiled engine is a directory with its own config.json, which LMI takes as it is:
`option.model_id` names it, and the model's directory keeps the files without weights.
Without one `option.backend=pytorch` serves the checkpoint; left out, LMI would build an
engine at every start.

TensorRT-LLM's handler keeps keys that it does not know and uses none of them, so all are
compared with what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packager.core.findings import Finding
from packager.core.plan import GPU_MEMORY_UTILIZATION, Plan
from packager.core.serving import COMPILED_DIR
from packager.engines.schema import Option, check_value
from packager.engines.shared import check_engine_options, check_one_stage, draft_unsupported
from packager.engines.trtllm import (
    COMPILER,
    DTYPES,
    batched_tokens,
    build_options,
    clipped_option,
    is_legacy,
    option_name,
    options,
)

WHO = "LMI with TensorRT-LLM"
HANDLER = "djl_python.lmi_trtllm.trtllm_async_service"


def check(plan: Plan) -> Iterator[Finding]:
    """Yield findings for settings that this LMI silently ignores or cannot serve."""
    if is_legacy(plan.container):
        message = (
            f"packager cannot configure LMI with TensorRT-LLM "
            f"{plan.container.engine_version}: its build is not public"
        )
        hint = "name `--container-version 0.33.0-tensorrtllm0.21.0-cu128`, or an LMI with vLLM"
        yield Finding("error", "engine-not-rendered", message, hint)
        return
    yield from check_one_stage(plan, WHO)
    if plan.draft is not None:
        yield from draft_unsupported(plan, WHO, "leave the draft out, or use an LMI with vLLM")
    if plan.gpu_memory_utilization != GPU_MEMORY_UTILIZATION:
        message = f"{WHO} takes a share of the memory that weights leave, not of the whole GPU"
        hint = "leave gpu_memory_utilization out; the default is planned and rendered"
        yield Finding("error", "no-gpu-memory", message, hint)
    chosen = plan.quantization
    if chosen is not None and not chosen.existing and plan.compiler != COMPILER:
        message = f"{WHO} serves {chosen.method} weights of ours only in an engine"
        hint = "add `--compile tensorrt_llm`, or use an LMI with vLLM"
        yield Finding("error", "quantize-unsupported", message, hint)
    spelled = {name: option_name(name) for name, _ in plan.engine_options}
    planned = {option_name(key): value for key, value in _planned(plan).items()}
    yield from check_engine_options(plan, planned, spelled)
    yield from _check_values(plan)


def settings(plan: Plan) -> dict[str, str]:
    """Return the plan as the keys that TensorRT-LLM's handler reads."""
    built = build_options(plan) if plan.compiler == COMPILER else {}
    asked = {
        f"option.{option_name(name)}": value
        for name, value in plan.engine_options
        if option_name(name) not in built
    }
    return {**_planned(plan), **asked}


def _planned(plan: Plan) -> dict[str, str]:
    shape = plan.shape
    meant = {
        "engine": "Python",
        "option.async_mode": "true",
        "option.rolling_batch": "disable",
        "option.entryPoint": HANDLER,
        "option.tensor_parallel_degree": str(plan.tp_degree),
        "option.max_rolling_batch_size": str(shape.max_batch),
        "option.max_input_len": str(shape.max_input_tokens),
        "option.max_seq_len": str(shape.max_total_tokens),
        "option.max_num_tokens": str(batched_tokens(plan)),
        "option.dtype": DTYPES[plan.dtype],
        "option.free_gpu_memory_fraction": str(plan.gpu_memory_utilization),
        "option.trust_remote_code": "false",
    }
    if plan.compiler == COMPILER:
        return {**meant, "option.model_id": COMPILED_DIR}
    meant["option.backend"] = "pytorch"
    if plan.kv_dtype != "auto":
        meant["option.kv_cache_dtype"] = plan.kv_dtype
    return meant


def check_keys(meant: Mapping[str, str]) -> Iterator[Finding]:
    """Find keys that the handler does not read, and values that it does not take."""
    table = options()
    known = {**table["serving"], **table["pytorch"]}
    yield from _check_against(known, meant)


def _check_values(plan: Plan) -> Iterator[Finding]:
    table = options()
    known = dict(table["serving"])
    if plan.compiler != COMPILER:
        known |= table["pytorch"]
    yield from _check_against(known, settings(plan))
    built = build_options(plan) if plan.compiler == COMPILER else {}
    yield from _check_against(table["build"], built)
    if built and (lowered := clipped_option(plan)):
        hint = "ask for less, or raise max_prefill_tokens"
        yield Finding("error", "value-refused", f"trtllm-build takes less: {lowered}", hint)


def _check_against(known: Mapping[str, object], meant: Mapping[str, str]) -> Iterator[Finding]:
    for key, value in meant.items():
        if key not in known:
            message = f"{WHO} silently ignores {key!r}"
            yield Finding("error", "key-dropped", message, "leave it out, or use an LMI with vLLM")
            continue
        kind = known[key]
        if isinstance(kind, list):
            option = Option(name=key, type="word", choices=tuple(kind))
        elif kind in {"int", "float", "bool", "word", "json"}:
            option = Option(name=key, type=str(kind))
        else:
            option = Option(name=key, type="word", choices=(str(kind),))
        yield from check_value(WHO, option, key, value)
