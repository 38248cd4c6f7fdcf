"""The SGLang family, on GPUs.

The images for SageMaker make a command line of `SM_SGLANG_*` variables: `true` is a
bare flag, `false` is left out, and every other value is one word of the command line.
They start the server on port 8080 by themselves.
"""

from __future__ import annotations

import math

from packager.core.plan import Plan
from packager.engines.schema import EngineSchema, Option, find_schema, value_tokens
from packager.engines.shared import OFFLINE_ENV, draft_dir, load_time_quantization, model_dir
from packager.engines.vllm.options import dashed
from packager.engines.vllm.traits import REASONING_PARSER, TOOL_PARSER

PORT = 8080

PREFIX = "SM_SGLANG_"
HOST = "0.0.0.0"
BY_COMMAND = ("upstream",)

ROUNDING = 1e-6  # a share rounded to whole bytes is this much smaller

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
KV_DTYPES = {"fp8": "fp8_e4m3"}
ALGORITHM = "speculative-algorithm"
ALGORITHMS = {
    "draft_model": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "dflash": "DFLASH",
    "ngram": "NGRAM",
}


def schema_of(plan: Plan) -> EngineSchema:
    """Return the options of the plan's SGLang, or of the nearest version that is known."""
    return find_schema("sglang", plan.container.engine_version)


def options(plan: Plan) -> dict[str, str]:
    """Return the plan and the options requested by name as SGLang's options."""
    schema = schema_of(plan)
    asked = {option_name(name, schema): value for name, value in plan.engine_options}
    return {**planned(plan), **_parsers(plan), **asked}


def _parsers(plan: Plan) -> dict[str, str]:
    """Return the parsers of answers that were chosen."""
    chosen = {TOOL_PARSER: plan.tool_parser, REASONING_PARSER: plan.reasoning_parser}
    return {name: one.name for name, one in chosen.items() if one is not None}


def server_address() -> dict[str, str]:
    """Return the address that the server listens on; SageMaker sends requests there."""
    return {"host": HOST, "port": str(PORT)}


def planned(plan: Plan) -> dict[str, str]:
    attention_copies = plan.dp_degree if plan.dp_attention else 1
    meant = {
        "model-path": model_dir(plan),
        "served-model-name": plan.served_name,
        "dtype": DTYPES[plan.dtype],
        "tp-size": str(plan.split.expert_degree),
        "context-length": str(plan.shape.max_total_tokens),
        # Of one copy of the model.  Copies of attention divide it among themselves, as they
        # divide the tokens of a step (SGLang 0.5.17, ServerArgs and pool_configurator).
        "max-running-requests": str(plan.shape.max_batch * attention_copies),
        "mem-fraction-static": _static_share(plan),
    }
    if plan.pp_degree > 1:
        meant["pp-size"] = str(plan.pp_degree)
    if plan.dp_degree > 1:
        meant["dp-size"] = str(plan.dp_degree)
    if plan.dp_attention:
        meant["enable-dp-attention"] = "true"
    if plan.expert_parallel:
        meant["ep-size"] = str(plan.split.expert_degree)
    if plan.max_prefill_tokens is not None:
        meant["chunked-prefill-size"] = str(plan.max_prefill_tokens * attention_copies)
    if load_time_quantization(plan):
        meant["quantization"] = load_time_quantization(plan)
    if plan.kv_dtype != "auto":
        meant["kv-cache-dtype"] = KV_DTYPES.get(plan.kv_dtype, plan.kv_dtype)
    return meant | _draft(plan)


def _static_share(plan: Plan) -> str:
    """Return the share of memory for weights and cache: SGLang keeps the rest for computing.

    It is of what context and communication leave of a device, as CUDA shows it.
    """
    budget = plan.budget
    static_bytes = budget.usable_bytes - budget.activations_bytes - budget.overhead_bytes
    whole = (budget.visible_bytes or budget.device_bytes) - budget.overhead_bytes
    share = math.floor(100 * static_bytes / whole + ROUNDING) / 100
    return f"{share:.2f}"


def _draft(plan: Plan) -> dict[str, str]:
    """Return the draft's options: a chain of tokens, and one more that the model itself adds."""
    draft = plan.draft
    if draft is None or draft.kind not in ALGORITHMS:
        return {}
    tokens = draft.speculative_tokens
    meant = {ALGORITHM: ALGORITHMS[draft.kind]}
    if draft.kind == "ngram":
        return meant | {"speculative-num-draft-tokens": str(tokens + 1)}
    if draft.kind == "dflash":  # the block: what it proposes, and the token that the model gave
        return meant | {
            "speculative-draft-model-path": draft_dir(plan),
            "speculative-num-draft-tokens": str(tokens + 1),
        }
    return meant | {
        # SGLang finds the head in the model itself for some architectures only.
        "speculative-draft-model-path": draft_dir(plan) if draft.has_files else model_dir(plan),
        "speculative-num-steps": str(tokens),
        "speculative-eagle-topk": "1",
        "speculative-num-draft-tokens": str(tokens + 1),
    }


def _arguments(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return each option's words; a switch that is on by default has a negation."""
    schema = schema_of(plan)
    arguments: dict[str, tuple[str, ...]] = {}
    for name, value in options(plan).items():
        option = schema.options.get(name) or Option(name=name, type="text")
        if option.type == "switch" and value == "false":
            arguments[f"no-{name}"] = ("true",)
        else:
            arguments[name] = value_tokens(option, value)
    return arguments


def environment(plan: Plan) -> dict[str, str]:
    rendered = {
        f"{PREFIX}{name.upper().replace('-', '_')}": " ".join(words)
        for name, words in _arguments(plan).items()
    }
    return {**OFFLINE_ENV, **rendered}


def command(plan: Plan) -> list[str]:
    argv = ["python3", "-m", "sglang.launch_server"]
    address = {name: (value,) for name, value in server_address().items()}
    for name, words in {**_arguments(plan), **address}.items():
        if words == ("true",):
            argv.append(f"--{name}")
        elif words != ("false",):
            argv += [f"--{name}", *words]
    return argv


def is_by_environment(plan: Plan) -> bool:
    """Return whether the image's own entrypoint reads SM_SGLANG_*, which carry one adapter."""
    return plan.container.variant not in BY_COMMAND and plan.adapters is None


def option_name(asked: str, schema: EngineSchema) -> str:
    """Return the first long name of an option, whatever its spelling; unknown ones with dashes."""
    name = dashed(asked)
    option = schema.find(name)
    return option.name if option is not None else name
