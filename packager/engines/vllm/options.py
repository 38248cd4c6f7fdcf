"""A plan in vLLM's own options, for every family with vLLM inside, and checks against its parser.

`True` and `False` are switches; everything else is text as the command line takes it.
"""

from __future__ import annotations

import json
from typing import Any

from packager.core.plan import Plan
from packager.core.serving import RenderedFile
from packager.core.techniques import Draft
from packager.engines.rendering.check import check_json
from packager.engines.rendering.environment import render_template
from packager.engines.schema import EngineSchema, find_schema
from packager.engines.shared import (
    NGRAM_LONGEST,
    NGRAM_SHORTEST,
    draft_dir,
    load_time_quantization,
    medusa_config,
    model_dir,
)
from packager.engines.vllm.pooling import pooling_options
from packager.engines.vllm.traits import REASONING_PARSER, TOOL_PARSER, TOOLS, stopping_of

Options = dict[str, str | bool]

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
DRAFT_FIELD = "speculative-config"
PICTURES = "limit-mm-per-prompt"
# What containers and SageMaker ask again and again would fill the log.
QUIET, PROBED = "disable-access-log-for-endpoints", "/health,/ping"


def schema_of(plan: Plan) -> EngineSchema:
    """Return the options of the plan's vLLM, or of the nearest known version."""
    return find_schema("vllm", plan.container.engine_version)


def planned_options(plan: Plan) -> Options:
    """Return the options that the plan decides; shared by command line, SM_VLLM_* and Neuron."""
    options: Options = {
        "model": plan.streams_from or model_dir(plan),
        "served-model-name": plan.served_name,
        "dtype": DTYPES[plan.dtype],
        "tensor-parallel-size": str(plan.tp_degree),
        "max-model-len": str(plan.shape.max_total_tokens),
        "max-num-seqs": str(plan.shape.max_batch),
    }
    if plan.pp_degree > 1:
        options["pipeline-parallel-size"] = str(plan.pp_degree)
    if plan.dp_degree > 1:  # `max-num-seqs` counts for each rank
        options["data-parallel-size"] = str(plan.dp_degree)
    if plan.expert_parallel:
        options["enable-expert-parallel"] = True
    if plan.max_prefill_tokens is not None:
        options["max-num-batched-tokens"] = str(plan.max_prefill_tokens)
    if load_time_quantization(plan):
        options["quantization"] = load_time_quantization(plan)
    if plan.kv_dtype != "auto":
        options["kv-cache-dtype"] = plan.kv_dtype
    options |= pooling_options(plan, schema_of(plan))
    if plan.draft is not None:
        options[DRAFT_FIELD] = json.dumps(speculative_config(plan), separators=(",", ":"))
    return options


def default_options(plan: Plan, schema: EngineSchema) -> Options:
    """Return the server's default options, without those that the user set."""
    stopping = stopping_of(plan.container, schema)
    ending: Options = {stopping.option: str(stopping.drain_s)} if stopping.option else {}
    quiet: Options = {QUIET: PROBED} if QUIET in schema.options else {}
    return {**ending, **quiet, **parser_options(plan), **_pictures(plan, schema)}


def _pictures(plan: Plan, schema: EngineSchema) -> Options:
    """Return the limit of pictures of a request, where the plan is for some."""
    if not plan.workload.pictures or PICTURES not in schema.options:
        return {}
    return {PICTURES: json.dumps({"image": plan.workload.pictures}, separators=(",", ":"))}


def parser_options(plan: Plan) -> Options:
    """Return the parsers of answers; an option of the engine's that names one wins, as itself."""
    options: Options = {}
    tool, reasoning = plan.tool_parser, plan.reasoning_parser
    if tool is not None:
        options |= {TOOLS: True, TOOL_PARSER: tool.name}
    if reasoning is not None:
        options[REASONING_PARSER] = reasoning.name
    return options


def requested_options(plan: Plan, schema: EngineSchema) -> Options:
    """Return the options requested by name; switches become true or false."""
    spelled = requested_names(plan, schema)
    asked: Options = {}
    for name, value in plan.engine_options:
        option = schema.find(spelled[name])
        if option is not None and option.type in {"flag", "switch"} and value in {"true", "false"}:
            is_inverse = schema.find_inverse(dashed(name)) is not None
            asked[spelled[name]] = (value == "true") != is_inverse
        else:
            asked[spelled[name]] = value
    return asked


def requested_names(plan: Plan, schema: EngineSchema) -> dict[str, str]:
    """Return each requested option under its name in vLLM's parser, whatever its spelling."""
    names: dict[str, str] = {}
    for asked, _ in plan.engine_options:
        name = dashed(asked)
        option = schema.find(name) or schema.find_inverse(name)
        names[asked] = option.name if option is not None else name
    return names


def dashed(asked: str) -> str:
    """Return an option's name as on the command line, without its leading dashes."""
    return asked.removeprefix("--").lower().replace("_", "-")


def speculative_config(plan: Plan) -> dict[str, Any]:
    """Return the draft as vLLM's `--speculative-config`."""
    draft = plan.draft
    assert draft is not None
    config: dict[str, Any] = {"method": _method(draft)}
    if draft.has_files:
        config["model"] = draft_dir(plan)
    config["num_speculative_tokens"] = draft.speculative_tokens
    if draft.kind in ("ngram", "ngram_gpu"):
        config |= {"prompt_lookup_max": NGRAM_LONGEST, "prompt_lookup_min": NGRAM_SHORTEST}
    if draft.kind == "peagle":
        config["parallel_drafting"] = True
    return config


def _method(draft: Draft) -> str:
    """Return vLLM's name of a draft's method: P-EAGLE is EAGLE-3 that drafts in parallel."""
    return draft.method or {"peagle": "eagle3"}.get(draft.kind, draft.kind)


def draft_files(plan: Plan) -> tuple[RenderedFile, ...]:
    """Write the config.json that makes vLLM load Medusa heads; other drafts bring their own.

    Published heads name neither their sizes nor their kind, and vLLM would take Medusa's
    defaults, which are those of another model, and drop the biases they have.
    """
    draft = plan.draft
    if draft is None or draft.kind != "medusa":
        return ()
    meant = medusa_config(plan)
    path = f"{draft_dir(plan)}/config.json"
    text = render_template("vllm/medusa_config.json.j2", config=meant)
    check_json(path, text, meant)
    return (RenderedFile(path=path, data=text.encode("ascii")),)
