"""The SGLang family, on GPUs.

The images for SageMaker make a command line of `SM_SGLANG_*` variables: `true` is a
bare flag, `false` is left out.  They start the server on port 8080 by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.request import MOST_NODES
from packager.core.serving import ServingConfig
from packager.core.split import Abilities
from packager.families.arrived import check_arrived
from packager.families.listed import check_listed
from packager.families.sagemaker import check_environment
from packager.families.schema import EngineSchema, added_methods, check_value, facts_schema
from packager.families.shared import (
    OFFLINE_ENV,
    SGLANG_LAYOUT,
    check_engine_options,
    check_input_limit,
    check_layout_options,
    check_one_stage,
    draft_dir,
    draft_unsupported,
    load_time_quantization,
    model_dir,
)
from packager.families.vllm import launched

PORT = 8080
PREFIX = "SM_SGLANG_"
BY_COMMAND = ("upstream",)
ROUNDING = 1e-6  # a share of whole bytes lies just below the one that was asked for
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
KV_DTYPES = {"fp8": "fp8_e4m3"}
ALGORITHMS = {
    "draft_model": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "dflash": "DFLASH",
    "ngram": "NGRAM",
}


class SglangFamily:
    """Describes images whose server is SGLang."""

    name = "sglang"

    def abilities(self, container: ContainerFacts) -> Abilities:
        """Return the layouts that SGLang can start.

        `--dp-size` alone copies the whole model.  With `--enable-dp-attention` the copies are
        of attention only, inside the `--tp-size` devices, which hold the experts together.
        """
        has = facts_schema("sglang").options.keys()
        return Abilities(
            who=f"SGLang {container.engine_version}".strip(),
            pipeline="pp-size" in has,
            data_parallel="dp-size" in has,
            own_experts="dp-size" in has,
            dp_attention="enable-dp-attention" in has,
            dp_attention_drafts=frozenset({"eagle", "eagle3", "mtp"}),
            expert_parallel="ep-size" in has,
            most_nodes=MOST_NODES if "nnodes" in has else 1,
            node_options="`--nnodes N --node-rank K --dist-init-addr HOST:PORT`",
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Say what the server refuses, or leaves unused or unenforced."""
        yield from check_input_limit(plan, "SGLang")
        schema = facts_schema("sglang")
        yield from check_arrived("SGLang", plan)
        yield from check_listed("SGLang", plan)
        spelled = {name: _dashed(name) for name, _ in plan.engine_options}
        yield from check_layout_options(spelled, SGLANG_LAYOUT)
        yield from check_engine_options(plan, _planned(plan), spelled)
        yield from _check_draft(plan, schema)
        yield from _check_options(options(plan), schema)
        if _by_environment(plan):
            yield from check_environment(plan, _env(plan))

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Give variables; for upstream's image, the command line."""
        if _by_environment(plan):
            config = ServingConfig(env=_env(plan), port=PORT)
        else:
            config = launched(_command(plan), {}, adapter=False)
        return replace(config, model_dir=model_dir(plan), draft_dir=draft_dir(plan))


def options(plan: Plan) -> dict[str, str]:
    """Spell the plan, and the options asked for by name, in SGLang's options."""
    return {**_planned(plan), **{_dashed(name): value for name, value in plan.engine_options}}


def _planned(plan: Plan) -> dict[str, str]:
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
    """Spell the draft: a chain of tokens, and one more that the model itself adds."""
    draft = plan.draft
    if draft is None or draft.kind not in ALGORITHMS:
        return {}
    tokens = draft.speculative_tokens
    meant = {"speculative-algorithm": ALGORITHMS[draft.kind]}
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


def _check_draft(plan: Plan, schema: EngineSchema) -> Iterator[Finding]:
    if plan.draft is None:
        return
    methods = schema.draft_methods | added_methods("sglang", plan.container.engine_version)
    if plan.draft.kind not in methods:
        who = f"SGLang {plan.container.engine_version}"
        yield from draft_unsupported(plan, who, "use --family vllm, or another draft")
    if plan.draft.kind == "dflash":
        yield from check_one_stage(plan, "SGLang with a DFlash head")


def _check_options(meant: dict[str, str], schema: EngineSchema) -> Iterator[Finding]:
    for name, value in meant.items():
        option = schema.options.get(name)
        if option is None:
            close = schema.nearest(name)
            hint = f"did you mean {close!r}?" if close else "leave it out"
            yield Finding("error", "key-dropped", f"SGLang has no known option {name!r}", hint)
            continue
        yield from check_value("SGLang", option, name, value)
        if option.type != "flag" and value.lower() in {"true", "false"}:
            message = f"the image reads {value!r} for {name!r} as a switch, and drops the value"
            yield Finding("error", "value-refused", message, "choose another value")


def _env(plan: Plan) -> dict[str, str]:
    rendered = {
        f"{PREFIX}{name.upper().replace('-', '_')}": value for name, value in options(plan).items()
    }
    return {**OFFLINE_ENV, **rendered}


def _command(plan: Plan) -> list[str]:
    argv = ["python3", "-m", "sglang.launch_server"]
    for name, value in {**options(plan), "host": "0.0.0.0", "port": str(PORT)}.items():
        if value == "true":
            argv.append(f"--{name}")
        elif value != "false":
            argv += [f"--{name}", value]
    return argv


def _by_environment(plan: Plan) -> bool:
    return plan.container.variant not in BY_COMMAND


def _dashed(name: str) -> str:
    return name.removeprefix("--").lower().replace("_", "-")
