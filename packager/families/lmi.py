"""The LMI family: AWS Large Model Inference, which is DJL Serving around vLLM.

Images with TensorRT-LLM inside have keys of their own: see `lmi_trtllm`.

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
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import MODEL_DIR, RenderedFile, ServingConfig
from packager.core.split import Abilities
from packager.core.stopping import Stopping
from packager.families import lmi_trtllm
from packager.families.arrived import check_arrived
from packager.families.listed import check_listed
from packager.families.rules import NO_FACTS, Facts, check_rules, plan_facts
from packager.families.sagemaker import check_environment
from packager.families.schema import (
    ENGINES,
    EngineSchema,
    Option,
    check_value,
    find_schema,
    nearest,
)
from packager.families.shared import (
    NGRAM_LONGEST,
    NGRAM_SHORTEST,
    OFFLINE_ENV,
    VLLM_LAYOUT,
    check_engine_options,
    check_input_limit,
    check_layout_options,
    check_one_stage,
    check_unnamed,
    draft_dir,
    draft_unsupported,
    load_time_quantization,
    model_dir,
)
from packager.families.vllm_options import (
    REASONING_PARSER,
    TOOL_PARSER,
    check_asked_draft,
    check_draft,
    check_proven,
    draft_files,
    parser_options,
    parsers_of,
    schema_of,
    speculative_config,
)
from packager.planning.trtllm import ENGINE as TENSORRT
from packager.rendering.check import check_properties
from packager.rendering.environment import (
    NotRepresentable,
    render_template,
    to_property_value,
)

OPTIONS_FILE = Path(__file__).parent / "data" / "lmi_options.toml"
CLASSES = ENGINES / "lmi"  # RELEASE.json, by scripts/engine-options

ASYNC_SINCE = 17  # the asynchronous mode is the default; before, the rolling batch
JSON_DRAFT_SINCE = 15  # `speculative_config`; before, `speculative_model` and its companions
EAGLE_SINCE = 16  # vllm/config.py of 0.8.4 sets the method by the path, whatever was asked for
LEGACY_DRAFTS = ("draft_model", "ngram")
LMI_DIST_UNTIL = 15  # the first without lmi-dist, which was the default
NEGATES_SINCE = 26  # `false` becomes `--no-…`; before, it is left out
CLOSED_UNTIL = 13  # the class names every key; later ones hand on what vLLM's EngineArgs have

# LMI's own names of what vLLM names otherwise.
VLLM_NAMES = {
    "option.tensor_parallel_degree": "tensor-parallel-size",
    "option.pipeline_parallel_degree": "pipeline-parallel-size",
    "option.max_rolling_batch_size": "max-num-seqs",
    "option.max_rolling_batch_prefill_tokens": "max-num-batched-tokens",
    "option.cpu_offload_gb_per_gpu": "cpu-offload-gb",
    "option.quantize": "quantization",
}
VLLM_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# Read by classes of LMI, and not as vLLM's parser would.
OWN_VALUES = ("option.dtype", "option.task")
HANDLERS = {"async": "the asynchronous service", "vllm": "the rolling batch"}
ROLLING_BATCH, ASYNC_MODE = "option.rolling_batch", "option.async_mode"
ENTRY_POINT = "option.entryPoint"
SWITCHES = frozenset({"true", "false"})

# DJL Serving closes every connection when it is told to stop, running requests and all.
STOPPING = Stopping(
    drain_s=0,
    source="deepjavalibrary/djl-serving 0.36.0-lmi27-dlc: ServerGroups.closeAllChannels",
)

# Copies are LMI's own business, and a pipeline is refused by its own check.
LMI_LAYOUT = {
    **{name: hint for name, hint in VLLM_LAYOUT.items() if name != "pipeline-parallel-size"},
    "data-parallel-size": "use --tp-degree: LMI starts a server on each group of devices",
}

# With these LMI sets load_on_devices=0 and maxWorkers=1.
ALONE = ("option.enable_lora", "option.enable_stateful_sessions")

# Fields of vLLM's EngineArgs that LMI's classes set by themselves.
NOT_ONES_OWN = frozenset({"option.model"})

# Keys that LMI 13 drops: without the second the cache would be twice the planned size.
SERVED_NAME, KV_DTYPE = "option.served_model_name", "option.kv_cache_dtype"

OptionType = str | list[str]  # `int`, `float`, `bool`, `word`, the one value, or all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class LmiOptions:
    """Keys that a release of LMI reads, and how."""

    container: str
    types: Mapping[str, Option]
    pass_through: frozenset[str]  # keys that vLLM's parser gets
    refused: Mapping[str, str] = field(default_factory=dict)  # never taken → the key to use
    aliases: Mapping[str, str] = field(default_factory=dict)  # key → the one that it overrides
    stays_on: frozenset[str] = frozenset()  # switches whose `false` is left out
    negates: bool = False  # `false` becomes `--no-…`
    defaults: Mapping[str, str] = field(default_factory=dict)  # that LMI hands on unasked
    handlers: Mapping[str, str] = field(default_factory=dict)  # keys that one handler reads → which


class LmiFamily:
    """Describes images whose server is DJL Serving, with vLLM or TensorRT-LLM, on GPUs."""

    name = "lmi"

    def abilities(self, container: ContainerFacts) -> Abilities:
        """Return the layouts that LMI can start.

        DJL Serving loads the model once for each group of `tensor_parallel_degree` devices
        (ModelInfo.getLoadOnDevices), and each server sees its own group alone.
        """
        spreads = container.engine == "vllm" and "enable_expert_parallel" in _fields(container)
        return Abilities(
            who=f"LMI {container.release or container.version}".strip(),
            workers=True,
            expert_parallel=spreads,
            tool_parsers=_parsers(container, TOOL_PARSER),
            reasoning_parsers=_parsers(container, REASONING_PARSER),
            stopping=STOPPING,
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Say what LMI would drop without a word, or refuse when it starts."""
        if plan.container.engine == TENSORRT:
            yield from lmi_trtllm.check(plan)
            return
        if plan.container.engine != "vllm":
            message = f"packager writes no configuration for LMI with {plan.container.engine}"
            yield Finding("error", "engine-not-rendered", message, "choose an LMI with vLLM")
            return
        yield from check_input_limit(plan)
        yield from check_one_stage(plan, "vLLM in LMI")
        schema, options = schema_of(plan), _options(plan)
        if options.pass_through:
            yield from check_proven("vLLM", plan, schema)
        spelled = {name: option_key(name) for name, _ in plan.engine_options}
        bare = {
            name: key.removeprefix("option.").replace("_", "-") for name, key in spelled.items()
        }
        yield from check_layout_options(bare, LMI_LAYOUT)
        yield from check_engine_options(plan, _planned(plan), spelled)
        yield from check_arrived("vLLM", plan)
        yield from check_listed("vLLM", plan)
        yield from _check_workers(plan)
        if release_of(plan) >= JSON_DRAFT_SINCE:
            yield from check_draft("vLLM", plan, schema)
            yield from _check_eagle(plan)
            yield from check_asked_draft("vLLM", plan, schema)
        elif plan.draft is not None and plan.draft.kind not in LEGACY_DRAFTS:
            hint = "choose a newer container version"
            yield from draft_unsupported(plan, f"LMI {release_of(plan)}", hint)
        version, facts = plan.container.engine_version, plan_facts(plan)
        yield from check_settings(settings(plan), options, facts, vllm_version=version)
        yield from _check_unread(plan, options)
        if plan.weights == "mounted":
            message = "a serving.properties among the mounted files wins over what is planned here"
            hint = "mount the model's own files only"
            yield Finding("note", "mounted-file-wins", message, hint)
            yield from check_environment(plan, _environment(plan))

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Give serving.properties and the same values as environment."""
        meant = settings(plan)
        text = render_template("lmi/serving.properties.j2", properties=meant)
        path = f"{MODEL_DIR}/serving.properties"
        check_properties(path, text, meant)  # of the variables, too: they come from these values
        file = RenderedFile(path=path, data=text.encode("ascii"))
        return ServingConfig(
            files=(*((file,) if plan.weights == "baked" else ()), *draft_files(plan)),
            env=_environment(plan),
            model_dir=model_dir(plan),
            draft_dir=draft_dir(plan),
        )


def release_of(plan: Plan) -> int:
    """Give the number that people call a version of LMI by: 28 of `0.36.0-lmi28.0.0-cu130`."""
    return _release(plan.container)


def _release(container: ContainerFacts) -> int:
    match = re.search(r"lmi(\d+)", container.version)
    if match:
        return int(match[1])
    return int(container.release) if container.release.isdecimal() else ASYNC_SINCE


def _parsers(container: ContainerFacts, option: str) -> tuple[str, ...] | None:
    """Return the parsers of vLLM that this version of LMI hands answers to; () where none."""
    schema = find_schema("vllm", container.engine_version)
    if (
        container.engine != "vllm"
        or _key(option) not in lmi_options(schema, _release(container)).types
    ):
        return ()
    return parsers_of(schema, option) if schema.is_for(container.engine_version) else None


def _key(option: str) -> str:
    return f"option.{option.replace('-', '_')}"


def _answers(plan: Plan) -> dict[str, str]:
    """Return the parsers of answers that were chosen, in LMI's keys.

    The rolling batch reads the reasoning parser where `enable_reasoning` is true only.
    """
    meant = {
        _key(name): "true" if value is True else str(value)
        for name, value in parser_options(plan).items()
    }
    if plan.reasoning_parser is not None and release_of(plan) < ASYNC_SINCE:
        meant["option.enable_reasoning"] = "true"
    return meant


def _fields(container: ContainerFacts) -> frozenset[str]:
    """Return the options that LMI hands on to this version of vLLM."""
    schema = find_schema("vllm", container.engine_version)
    return schema.fields if schema.is_for(container.engine_version) else frozenset()


def _options(plan: Plan) -> LmiOptions:
    return lmi_options(schema_of(plan), release_of(plan))


def settings(plan: Plan) -> dict[str, str]:
    """Spell the plan, and the options asked for by name, in LMI's keys."""
    if plan.container.engine == TENSORRT:
        return lmi_trtllm.settings(plan)
    asked = {option_key(name): value for name, value in plan.engine_options}
    return {**_planned(plan), **_answers(plan), **asked}


def option_key(name: str) -> str:
    """Spell an option as LMI's key: `enable-prefix-caching` is option.enable_prefix_caching."""
    bare = name.removeprefix("--").removeprefix("option.")
    return f"option.{bare if bare == 'entryPoint' else bare.lower().replace('-', '_')}"


def _planned(plan: Plan) -> dict[str, str]:
    meant = {
        "engine": "Python",
        **_mode(plan),
        "option.tensor_parallel_degree": str(plan.tp_degree),
        "option.max_rolling_batch_size": str(plan.shape.max_batch),
        "option.max_model_len": str(plan.shape.max_total_tokens),
        "option.dtype": plan.dtype,
        "option.gpu_memory_utilization": str(plan.gpu_memory_utilization),
    }
    reads = _options(plan).types
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


def _check_workers(plan: Plan) -> Iterator[Finding]:
    """Refuse options with which LMI starts one server only: LmiConfigRecommender."""
    asked = settings(plan)
    for name in ALONE:
        if plan.workers > 1 and asked.get(name, "").lower() == "true":
            message = f"with {name!r} LMI starts one server, and the plan has {plan.workers}"
            hint = f"use --tp-degree {plan.tp_degree * plan.workers}, or leave it out"
            yield Finding("error", "options-conflict", message, hint)


def _check_eagle(plan: Plan) -> Iterator[Finding]:
    """Refuse a head that vLLM 0.8 takes for a whole model: it looks for `eagle-` in the path."""
    if plan.draft is not None and plan.draft.kind == "eagle" and release_of(plan) < EAGLE_SINCE:
        hint = f"use --container-version {EAGLE_SINCE} or newer"
        yield from draft_unsupported(plan, f"LMI {release_of(plan)} at {draft_dir(plan)}", hint)


def _check_unread(plan: Plan, options: LmiOptions) -> Iterator[Finding]:
    """Find what the plan decides and this version of LMI has no key for."""
    if SERVED_NAME not in options.types:
        yield from check_unnamed(plan, f"LMI {options.container}")
    if plan.kv_dtype != "auto" and KV_DTYPE not in options.types:
        message = (
            f"LMI {options.container} drops {KV_DTYPE!r} without a word: the cache would be kept "
            f"in {plan.dtype}, and twice as large as it is planned"
        )
        hint = f"leave kv_dtype out, or use --container-version {CLOSED_UNTIL + 1} or newer"
        yield Finding("error", "kv-dtype-unsupported", message, hint)


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


def _environment(plan: Plan) -> dict[str, str]:
    env = {**OFFLINE_ENV, "DJL_OFFLINE": "true", "OPT_OUT_TRACKING": "1"}
    if plan.weights == "baked":
        return {**env, "SERVING_MODEL_STORE": MODEL_DIR, **_option_env(settings(plan))}
    return {**env, "OPTION_ENGINE": "Python", **_option_env(settings(plan))}


def check_settings(
    meant: Mapping[str, str],
    options: LmiOptions,
    facts: Facts = NO_FACTS,
    *,
    vllm_version: str = "",
) -> Iterator[Finding]:
    """Find keys that LMI does not read, values that it does not take, and combinations.

    The rules of vLLM are asked where its version is given.
    """
    other = _other_handler(meant, int(options.container))
    if other is not None:
        yield other
        return
    handler = _handler(meant, int(options.container))
    if meant.get(ROLLING_BATCH) == "lmi-dist":
        message = f"LMI {options.container} reads 'lmi-dist' for {ROLLING_BATCH!r} as 'vllm'"
        yield Finding("warning", "key-migrated", message, f"leave {ROLLING_BATCH!r} out")
    for key, value in meant.items():
        if options.handlers.get(key, handler) != handler:
            message = f"LMI {options.container} drops {key!r}: {HANDLERS[handler]} does not read it"
            hint = "leave it out" if handler == "async" else f"leave {ROLLING_BATCH!r} out"
            yield Finding("error", "key-dropped", message, hint)
        elif f"option.{key}" in options.types and key not in options.types:
            message = f"{key!r} is not read by LMI's server, which wants it as 'option.{key}'"
            yield Finding("error", "key-dropped", message, f"write 'option.{key}'")
        elif key in options.refused:
            message = f"LMI {options.container} refuses every value of {key!r}"
            hint = f"give {options.refused[key]!r} instead"
            yield Finding("error", "options-conflict", message, hint)
        elif key not in options.types:
            close = nearest(key, options.types)
            message = f"LMI {options.container} drops {key!r} without a word"
            hint = f"did you mean {close!r}?" if close else "leave it out, or use another family"
            yield Finding("error", "key-dropped", message, hint)
        else:
            yield from _check_one(key, value, options)
            if (overridden := options.aliases.get(key)) in meant:
                message = f"LMI {options.container} drops {overridden!r} beside {key!r}"
                yield Finding("error", "options-conflict", message, "give one of them")
    lowered = {key: _lowered(value) for key, value in meant.items()}
    yield from check_rules("LMI", "lmi", options.container, lowered, facts=facts)
    if vllm_version:
        inside = vllm_settings(meant, options)
        spelled = {name: key for name, (key, _) in inside.items()}
        asked = {name: value for name, (_, value) in inside.items()}
        vllm = find_schema("vllm", vllm_version).options
        yield from check_rules(
            "vLLM", "vllm", vllm_version, asked, facts=facts, options=vllm, spelled=spelled
        )


def _other_handler(meant: Mapping[str, str], release: int) -> Finding | None:
    """Return what to say where LMI serves the model without vLLM, or by rules that nobody read."""
    batch = meant.get(ROLLING_BATCH, "auto")
    if release < LMI_DIST_UNTIL and batch in {"auto", "lmi-dist", "scheduler"}:
        message = (
            f"LMI {release} serves with lmi-dist or a scheduler of its own where "
            f"{ROLLING_BATCH!r} is {batch!r}; their keys are not checked"
        )
        hint = f"give '{ROLLING_BATCH}=vllm', or use release {LMI_DIST_UNTIL} or newer"
        return Finding("warning", "options-unproven", message, hint)
    is_async = meant.get(ASYNC_MODE, "").lower() == "true" or ENTRY_POINT in meant
    if batch == "disable" and not is_async:
        message = (
            f"LMI serves with transformers, not with vLLM, where {ROLLING_BATCH!r} is 'disable' "
            f"and {ASYNC_MODE!r} is not 'true'; its keys are not checked"
        )
        hint = f"add '{ASYNC_MODE}=true', or leave {ROLLING_BATCH!r} out"
        return Finding("warning", "options-unproven", message, hint)
    return None


def _handler(meant: Mapping[str, str], release: int) -> str:
    """Return which of the two handlers that run vLLM serves: `async`, or `vllm` in batches."""
    if ENTRY_POINT in meant:
        return "async" if meant[ENTRY_POINT].endswith("_async_service") else "vllm"
    if meant.get(ASYNC_MODE, "").lower() == "true":
        return "async"
    is_default = meant.get(ROLLING_BATCH, "auto") == "auto"
    return "async" if is_default and release >= ASYNC_SINCE else "vllm"


def _check_one(key: str, value: str, options: LmiOptions) -> Iterator[Finding]:
    option = options.types[key]
    is_switch = option.type in {"flag", "switch"}
    any_case = key in options.pass_through or option.type == "bool"
    read = value.lower() if value.lower() in SWITCHES and any_case else value
    found = [*check_value("LMI", option, key, read), *_check_readable(key, value)]
    yield from found
    if found or key not in options.pass_through or read not in SWITCHES or option.type == "bool":
        return
    if not is_switch:
        message = f"LMI reads {value!r} for {key!r} as a switch, and vLLM refuses to start"
        yield Finding("error", "value-refused", message, "choose another served name")
    elif read == "false" and key in options.stays_on:
        message = f"LMI {options.container} drops {value!r} for {key!r}: vLLM decides by itself"
        yield Finding("error", "key-dropped", message, "leave it out, or use release 26 or newer")
    elif read == "false" and option.type == "flag" and options.negates:
        message = f"vLLM refuses {value!r} for {key!r}, which it can only turn on"
        yield Finding("error", "value-refused", message, "leave it out")


def _lowered(value: str) -> str:
    return value.lower() if value.lower() in SWITCHES else value


def vllm_settings(meant: Mapping[str, str], options: LmiOptions) -> dict[str, tuple[str, str]]:
    """Return by vLLM's names which of LMI's keys says what, as vLLM's parser reads it."""
    inside: dict[str, tuple[str, str]] = {}
    for key, value in meant.items():
        if key.startswith("option."):
            name = VLLM_NAMES.get(key, key.removeprefix("option.").replace("_", "-"))
            read = _lowered(value)
            inside[name] = (key, VLLM_DTYPES.get(read, read) if name == "dtype" else read)
    if inside.get("enable-lora", ("", ""))[1] == "true":
        for key, value in options.defaults.items():
            inside.setdefault(key.removeprefix("option.").replace("_", "-"), (key, value))
    return inside


def _check_readable(key: str, value: str) -> Iterator[Finding]:
    """Refuse what LMI's server and its scripts would read as different values."""
    try:
        to_property_value(value)
    except NotRepresentable as error:
        yield Finding("error", "value-refused", f"{key}: {error.message}", error.hint)


@cache
def lmi_table() -> Mapping[str, Mapping[str, OptionType]]:
    """Read the shipped table of LMI's own keys."""
    read: dict[str, dict[str, OptionType]] = tomllib.loads(OPTIONS_FILE.read_text(encoding="utf-8"))
    return read


def lmi_options(schema: EngineSchema, release: int) -> LmiOptions:
    """Put together what the server and the classes of a release read, and what vLLM gets."""
    table = _class_of(release)
    types = {key: _option(key, of_type) for key, of_type in lmi_table()["server"].items()}
    own = {f"option.{name}": row for name, row in table["keys"].items()}
    types |= {key: _own_option(key, row, schema) for key, row in own.items()}
    passed: dict[str, Option] = {}
    refused = {f"option.{name}": f"option.{ours}" for name, ours in table["refused"].items()}
    for name in schema.fields if table["hands_on"] else ():
        key, option = f"option.{name}", schema.find(name)
        if option is not None and key not in own.keys() | refused.keys() | NOT_ONES_OWN:
            passed[key] = option
    return LmiOptions(
        container=str(release),
        types={**passed, **types},
        pass_through=frozenset(passed.keys() - types.keys()),
        refused=refused,
        aliases={key: f"option.{row['alias_of']}" for key, row in own.items() if "alias_of" in row},
        stays_on=frozenset(f"option.{name}" for name in table["stays_on"]),
        negates=release >= NEGATES_SINCE,
        defaults={f"option.{name}": value for name, value in table["defaults"].items()},
        handlers={key: row["handler"] for key, row in own.items() if "handler" in row},
    )


def _own_option(key: str, row: Mapping[str, Any], schema: EngineSchema) -> Option:
    """Return a key of LMI's class; what vLLM looks up of its value is as in vLLM's own option."""
    own = Option(name=key, type=row["type"], choices=tuple(row.get("choices", ())))
    inside = schema.find(VLLM_NAMES.get(key, key.removeprefix("option.")))
    if inside is None or own.type != "text" or key in OWN_VALUES:
        return own
    return replace(own, choices=inside.choices, values=inside.values, files=inside.files)


@cache
def _class_of(release: int) -> Mapping[str, Any]:
    """Read the table of a release's own classes; the newest below it stands in for another."""
    known = sorted(int(path.stem) for path in CLASSES.glob("*.json"))
    nearest_below = max((one for one in known if one <= release), default=known[0])
    path = CLASSES / f"{nearest_below}.json"
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def _option(key: str, of_type: OptionType) -> Option:
    if isinstance(of_type, list):
        return Option(name=key, type="word", choices=tuple(of_type))
    if of_type in {"int", "float", "bool", "loose-bool", "word", "text", "json"}:
        return Option(name=key, type=of_type)
    return Option(name=key, type="word", choices=(of_type,))


def _option_env(meant: Mapping[str, str]) -> dict[str, str]:
    """Spell `option.` keys as environment, which LMI lowers again; it knows `entryPoint`.

    `engine` stays out: the server would read OPTION_ENGINE as `engine`, the
    partition scripts as `option.engine`.
    """
    prefix = "option."
    return {
        f"OPTION_{key.removeprefix(prefix).upper()}": value
        for key, value in meant.items()
        if key.startswith(prefix)
    }
