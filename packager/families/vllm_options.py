"""A plan in vLLM's own options, for every family with vLLM inside, and checks against its parser.

`True` and `False` are switches; everything else is text as the command line takes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from packager.core.documents import parse_json
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.request import MOST_NODES
from packager.core.serving import RenderedFile
from packager.core.split import Abilities
from packager.core.stopping import DRAIN_S, Stopping
from packager.core.techniques import Draft
from packager.core.versions import version_key
from packager.families.rules import NO_FACTS, Facts, check_rules
from packager.families.schema import (
    EngineSchema,
    Option,
    check_value,
    find_schema,
    nearest,
    versions_with,
)
from packager.families.shared import (
    NGRAM_LONGEST,
    NGRAM_SHORTEST,
    draft_dir,
    draft_unsupported,
    load_time_quantization,
    medusa_config,
    model_dir,
)
from packager.families.values import UNBOUNDED
from packager.planning.drafts.options import asked_config
from packager.rendering.check import check_json
from packager.rendering.environment import render_template

Options = dict[str, str | bool]

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
DRAFT_FIELD = "speculative-config"

# What lets running requests end after SIGTERM; by itself vLLM's server aborts them at once.
# The option came with 0.18.0.
SHUTDOWN_OPTION = "shutdown-timeout"
SHUTDOWN_S = DRAIN_S

TOOLS, TOOL_PARSER = "enable-auto-tool-choice", "tool-call-parser"
REASONING_PARSER = "reasoning-parser"


def schema_of(plan: Plan) -> EngineSchema:
    """Give the options of the plan's vLLM, or of the nearest version that is known."""
    return find_schema("vllm", plan.container.engine_version)


def abilities_of(container: ContainerFacts, schema: EngineSchema) -> Abilities:
    """Return the layouts that vLLM's own server can start on GPUs, by the options it has.

    Each rank of data parallelism is an engine of its own behind one port.  The ranks of a
    mixture share one set of experts, whole ones with `enable-expert-parallel`, else cut.
    """
    has = schema.options.keys() if schema.is_for(container.engine_version) else ()
    return Abilities(
        who=f"vLLM {container.engine_version}".strip(),
        pipeline="pipeline-parallel-size" in has,
        data_parallel="data-parallel-size" in has,
        dp_attention="data-parallel-size" in has,
        expert_parallel="enable-expert-parallel" in has,
        most_nodes=MOST_NODES if "nnodes" in has else 1,
        node_options="`--nnodes N --node-rank K --master-addr HOST`, all but the first "
        "with `--headless` (no Ray)",
        tool_parsers=parsers_of(schema, TOOL_PARSER) if TOOLS in has else (),
        reasoning_parsers=parsers_of(schema, REASONING_PARSER),
        stopping=stopping_of(container, schema),
    )


def stopping_of(container: ContainerFacts, schema: EngineSchema) -> Stopping:
    """Return what vLLM's own server does with running requests after SIGTERM."""
    source = "vllm-project/vllm#36666"
    if schema.is_for(container.engine_version) and SHUTDOWN_OPTION in schema.options:
        return Stopping(drain_s=SHUTDOWN_S, option=SHUTDOWN_OPTION, source=source)
    return Stopping(drain_s=0, source=source)


def parsers_of(schema: EngineSchema, option: str) -> tuple[str, ...] | None:
    """Return the names that an option takes; () without the option, None where none is listed."""
    found = schema.options.get(option)
    if found is None:
        return ()
    return found.values or found.choices or None


def planned_options(plan: Plan) -> Options:
    """Spell what the plan decides; the same for the command line, SM_VLLM_* and Neuron."""
    options: Options = {
        "model": model_dir(plan),
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
    if plan.draft is not None:
        options[DRAFT_FIELD] = json.dumps(speculative_config(plan), separators=(",", ":"))
    return options


def default_options(plan: Plan, schema: EngineSchema) -> Options:
    """Return what the server gets unless an option of the same name was asked for."""
    has = schema.is_for(plan.container.engine_version) and SHUTDOWN_OPTION in schema.options
    ending: Options = {SHUTDOWN_OPTION: str(SHUTDOWN_S)} if has else {}
    return {**ending, **parser_options(plan)}


def parser_options(plan: Plan) -> Options:
    """Return the parsers of answers; an option of the engine's that names one wins, as itself."""
    options: Options = {}
    tool, reasoning = plan.tool_parser, plan.reasoning_parser
    if tool is not None:
        options |= {TOOLS: True, TOOL_PARSER: tool.name}
    if reasoning is not None:
        options[REASONING_PARSER] = reasoning.name
    return options


def asked_options(plan: Plan, schema: EngineSchema) -> Options:
    """Spell the options asked for by name; switches become true or false."""
    spelled = asked_names(plan, schema)
    asked: Options = {}
    for name, value in plan.engine_options:
        option = schema.find(spelled[name])
        if option is not None and option.type in {"flag", "switch"} and value in {"true", "false"}:
            is_inverse = schema.find_inverse(dashed(name)) is not None
            asked[spelled[name]] = (value == "true") != is_inverse
        else:
            asked[spelled[name]] = value
    return asked


def asked_names(plan: Plan, schema: EngineSchema) -> dict[str, str]:
    """Give each asked name as vLLM's parser calls it, whatever its spelling."""
    names: dict[str, str] = {}
    for asked, _ in plan.engine_options:
        name = dashed(asked)
        option = schema.find(name) or schema.find_inverse(name)
        names[asked] = option.name if option is not None else name
    return names


def dashed(asked: str) -> str:
    """Spell an option's name as it is on the command line, without its leading dashes."""
    return asked.removeprefix("--").lower().replace("_", "-")


def speculative_config(plan: Plan) -> dict[str, Any]:
    """Spell the draft as vLLM's `--speculative-config` has it."""
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


def check_options(
    who: str,
    options: Mapping[str, str | bool],
    schema: EngineSchema,
    facts: Facts = NO_FACTS,
    *,
    version: str = "",
) -> Iterator[Finding]:
    """Find options that this version does not have, values and combinations that it refuses.

    `version` is the engine's, where the schema is of another one that stands in for it.
    """
    judged = dict(options)
    for name, value in options.items():
        option = schema.options.get(name)
        if option is None:
            yield _unknown(who, name, value, schema)
        elif isinstance(value, bool):
            yield from _check_switch(who, option, value=value)
        else:
            found = list(check_value(who, option, name, value, options))
            yield from found
            if found and option.bounds is not UNBOUNDED:
                del judged[name]  # a number that is refused by itself is told of once
    of_version = version or schema.version
    yield from check_rules(
        who, schema.engine, of_version, judged, facts=facts, options=schema.options
    )


def _unknown(who: str, name: str, value: str | bool, schema: EngineSchema) -> Finding:
    """Refuse a name that is no option; a key inside JSON belongs into the JSON."""
    head, _, keys = name.partition(".")
    owner = schema.find(head)
    if keys and owner is not None and owner.type == "json":
        inner: object = value if isinstance(value, bool) else _json_of(value)
        for key in reversed(keys.replace("-", "_").split(".")):
            inner = {key: inner}
        message = f"{name!r} names a key inside {owner.name!r}, which is given as a whole"
        hint = f"write {owner.name}={json.dumps(inner, separators=(',', ':'))}"
        return Finding("error", "key-dropped", message, hint)
    close = schema.nearest(name)
    message = f"{who} {schema.version} has no option {name!r}"
    return Finding(
        "error", "key-dropped", message, f"did you mean {close!r}?" if close else "leave it out"
    )


def _json_of(text: str) -> object:
    try:
        return parse_json(text.encode())
    except ValueError:
        return text


def check_proven(who: str, plan: Plan, schema: EngineSchema) -> Iterator[Finding]:
    """Warn that another version's options stand in for those of the plan's."""
    yield from check_version(who, plan.container.engine_version, schema)


def check_version(who: str, version: str, schema: EngineSchema) -> Iterator[Finding]:
    """Warn that another version's options stand in for those of this one.

    Options come and go with minor versions; a patch release is only noted.
    """
    if schema.proven:
        return
    wanted, used = version_key(version), version_key(schema.version)
    same_minor = wanted and used and wanted.release[:2] == used.release[:2]
    if wanted is None:
        which = f"{version[:40]!r} cannot be read as a version of {who}"
        used_words = f"the options of {schema.version}, the newest that is known, are used"
    else:
        kind = ", a build before its release," if wanted.is_devrelease else ""
        which = f"the options of {who} {version}{kind} are not known here"
        used_words = f"those of {schema.version} are used"
    yield Finding(
        "note" if same_minor else "warning",
        "options-unproven",
        f"{which}; {used_words}",
        "choose a container version whose options are, with --container-version",
    )


def check_draft(who: str, plan: Plan, schema: EngineSchema) -> Iterator[Finding]:
    """Refuse a draft that this version cannot use, and settings of it that it does not read."""
    if plan.draft is None:
        return
    if not {plan.draft.kind, plan.draft.method} & schema.draft_methods:
        named = f"{who} {plan.container.engine_version}"
        versions = versions_with(plan.draft.kind)
        known = f"those from {versions[0]} to {versions[-1]} have it; " if versions else ""
        hint = f"{known}choose another container version, or another draft"
        yield from draft_unsupported(plan, named, hint)
        return
    if plan.draft.kind == "medusa":
        yield from _check_medusa(who, plan.draft)
    field = schema.find(DRAFT_FIELD)
    if field is None or field.config is None:  # else its value is checked with the others
        yield from check_draft_keys(who, speculative_config(plan), schema)


def check_asked_draft(who: str, plan: Plan, schema: EngineSchema) -> Iterator[Finding]:
    """Refuse a speculative configuration among the engine's options that this version lacks."""
    config = asked_config(dict(plan.engine_options))
    if config is not None:
        yield from check_draft_config(who, config, schema)


def check_draft_config(
    who: str, config: Mapping[str, Any], schema: EngineSchema
) -> Iterator[Finding]:
    """Refuse a speculative configuration with a method or a key that this version lacks."""
    method = config.get("method")
    if isinstance(method, str) and method not in schema.draft_methods:
        close = nearest(method, schema.draft_methods)
        message = f"{who} {schema.version} has no method {method[:40]!r} of speculation"
        hint = f"did you mean {close!r}?" if close else "use --draft, or another container version"
        yield Finding("error", "draft-unsupported", message, hint)
    field = schema.find(DRAFT_FIELD)
    if field is None or field.config is None:  # else its value is checked with the others
        yield from check_draft_keys(who, config, schema)


def check_draft_keys(
    who: str, config: Mapping[str, Any], schema: EngineSchema
) -> Iterator[Finding]:
    """Find keys of a speculative configuration that this version does not have."""
    for key in config:
        if key not in schema.draft_keys:
            close = nearest(key, schema.draft_keys)
            message = f"{who} {schema.version} has no {key!r} in its speculative configuration"
            hint = f"did you mean {close!r}?" if close else "leave it out"
            yield Finding("error", "key-dropped", message, hint)


def _check_medusa(who: str, draft: Draft) -> Iterator[Finding]:
    if draft.version == "v2":
        message = f"{who} loads Medusa v2 heads only with the model's own lm_head among them"
        hint = "use Medusa v1 heads, or --family tgi"
        yield Finding("error", "draft-unsupported", message, hint)
    if not draft.heads or not draft.head_layers:
        message = f"{who} needs to know how many Medusa heads there are, and of how many layers"
        yield Finding("error", "draft-incomplete", message, "the draft's tensors must say both")


def _check_switch(who: str, option: Option, *, value: bool) -> Iterator[Finding]:
    if option.type == "flag" and not value:
        message = f"{who} cannot turn {option.name!r} off; it is off unless it is given"
        yield Finding("error", "value-refused", message, "leave it out")
    elif option.type not in {"flag", "switch"}:
        message = f"{who} refuses {str(value).lower()!r} for {option.name!r}, which takes a value"
        yield Finding("error", "value-refused", message)
