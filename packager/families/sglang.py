"""The SGLang family, on GPUs.

The images for SageMaker make a command line of `SM_SGLANG_*` variables: `true` is a
bare flag, `false` is left out, and every other value is one word of the command line.
They start the server on port 8080 by themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.request import MOST_NODES
from packager.core.serving import ServingConfig
from packager.core.split import Abilities
from packager.core.stopping import Stopping
from packager.families.arrived import check_arrived
from packager.families.listed import check_listed
from packager.families.rules import NO_FACTS, Facts, check_rules, plan_facts
from packager.families.sagemaker import check_environment
from packager.families.schema import (
    EngineSchema,
    Option,
    check_value,
    find_schema,
    value_tokens,
)
from packager.families.shared import (
    OFFLINE_ENV,
    SGLANG_LAYOUT,
    check_engine_options,
    check_input_limit,
    check_layout_options,
    draft_dir,
    draft_unsupported,
    load_time_quantization,
    model_dir,
)
from packager.families.vllm import launched
from packager.families.vllm_options import (
    REASONING_PARSER,
    TOOL_PARSER,
    check_proven,
    parsers_of,
)

PORT = 8080
# It looks every 5 s whether the last request has ended, then gives its processes 15 s.
STOPPING = Stopping(
    drain_s=None,
    after_s=20,
    source="SGLang 0.5.5 to 0.5.23, TokenizerManager.sigterm_watchdog",
)
PREFIX = "SM_SGLANG_"
HOST = "0.0.0.0"
BY_COMMAND = ("upstream",)
CONFIG = "config"  # names a file with further options, which would not be checked
ROUNDING = 1e-6  # a share of whole bytes lies just below the one that was asked for
NUMERIC = ("int", "float")  # types of options that hold a number alone
NUMBER = re.compile(r"-(\d+|\d*\.\d+)", re.ASCII)  # below zero, as argparse reads it
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


class SglangFamily:
    """Describes images whose server is SGLang."""

    name = "sglang"

    def abilities(self, container: ContainerFacts) -> Abilities:
        """Return the layouts that SGLang can start.

        `--dp-size` alone copies the whole model.  With `--enable-dp-attention` the copies are
        of attention only, inside the `--tp-size` devices, which hold the experts together.
        """
        schema = find_schema("sglang", container.engine_version)
        has = schema.options.keys()
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
            tool_parsers=parsers_of(schema, TOOL_PARSER),
            reasoning_parsers=parsers_of(schema, REASONING_PARSER),
            stopping=STOPPING,
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Say what the server refuses, or leaves unused or unenforced."""
        yield from check_input_limit(plan, "SGLang")
        schema = schema_of(plan)
        yield from check_proven("SGLang", plan, schema)
        yield from check_arrived("SGLang", plan)
        yield from check_listed("SGLang", plan)
        spelled = {name: _option_name(name, schema) for name, _ in plan.engine_options}
        numbers = [name for name, row in schema.options.items() if row.type in NUMERIC]
        yield from check_layout_options(spelled, SGLANG_LAYOUT)
        yield from check_engine_options(plan, _planned(plan) | _address(), spelled, numbers=numbers)
        if CONFIG in spelled.values():
            message = f"{CONFIG!r} takes options from a file, which packager would not check"
            yield Finding("error", "options-conflict", message, "give the options themselves")
        yield from _check_draft(plan, schema)
        by_environment = _by_environment(plan)
        yield from check_options(
            options(plan),
            schema,
            plan_facts(plan),
            version=plan.container.engine_version,
            one_word=by_environment,
            judged={ALGORITHM} if plan.draft is not None else (),  # above, in the draft's words
        )
        if by_environment:
            yield from check_environment(plan, _env(plan))

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Give variables; for upstream's image, the command line."""
        if _by_environment(plan):
            config = ServingConfig(env=_env(plan), port=PORT)
        else:
            config = launched(_command(plan), {}, adapter=False)
        return replace(config, model_dir=model_dir(plan), draft_dir=draft_dir(plan))


def schema_of(plan: Plan) -> EngineSchema:
    """Return the options of the plan's SGLang, or of the nearest version that is known."""
    return find_schema("sglang", plan.container.engine_version)


def options(plan: Plan) -> dict[str, str]:
    """Spell the plan, and the options asked for by name, in SGLang's options."""
    schema = schema_of(plan)
    asked = {_option_name(name, schema): value for name, value in plan.engine_options}
    return {**_planned(plan), **_parsers(plan), **asked}


def _parsers(plan: Plan) -> dict[str, str]:
    """Return the parsers of answers that were chosen."""
    chosen = {TOOL_PARSER: plan.tool_parser, REASONING_PARSER: plan.reasoning_parser}
    return {name: one.name for name, one in chosen.items() if one is not None}


def _address() -> dict[str, str]:
    """Return where the server listens; SageMaker asks there."""
    return {"host": HOST, "port": str(PORT)}


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


def _check_draft(plan: Plan, schema: EngineSchema) -> Iterator[Finding]:
    if plan.draft is None:
        return
    if ALGORITHMS.get(plan.draft.kind) not in schema.draft_methods:
        who = f"SGLang {plan.container.engine_version}"
        yield from draft_unsupported(plan, who, "use --family vllm, or another draft")


def check_options(
    meant: Mapping[str, str],
    schema: EngineSchema,
    facts: Facts = NO_FACTS,
    *,
    version: str = "",
    one_word: bool,
    judged: Collection[str] = (),
) -> Iterator[Finding]:
    """Find options that this version does not have, values and combinations that it refuses.

    `one_word`: the image's entrypoint hands every value on as one word.  `judged` names options
    whose own values were checked before.
    """
    for name, value in meant.items():
        if name in judged:
            continue
        option = schema.options.get(name)
        if option is None:
            close = schema.nearest(name)
            hint = f"did you mean {close!r}?" if close else "leave it out"
            message = f"SGLang {schema.version} has no option {name!r}"
            yield Finding("error", "key-dropped", message, hint)
            continue
        words = value_tokens(option, value)
        for word in words:
            yield from check_value("SGLang", option, name, word, meant)
        if option.type not in {"flag", "switch"}:
            yield from _check_words(name, words, one_word=one_word)
    of_version = version or schema.version
    yield from check_rules(
        "SGLang", "sglang", of_version, meant, facts=facts, options=schema.options
    )


def _check_words(name: str, words: tuple[str, ...], *, one_word: bool) -> Iterator[Finding]:
    """Refuse values that SGLang would not get as they are, one word of the command line each."""
    if one_word and len(words) > 1:
        message = f"the image passes one value for {name!r}, and {len(words)} are given"
        yield Finding("error", "value-refused", message, "give one, or use upstream's image")
    for word in words or ("",):
        if word.lower() in {"true", "false"}:
            message = f"the image reads {word!r} for {name!r} as a switch, and drops the value"
            yield Finding("error", "value-refused", message, "choose another value")
        elif not word or _is_like_an_option(word):
            message = f"SGLang would not take {word!r} as a value of {name!r}"
            yield Finding("error", "value-refused", message, "choose another value")


def _is_like_an_option(word: str) -> bool:
    """Report whether argparse takes a word for an option: a dash first, no number, no space."""
    return len(word) > 1 and word[0] == "-" and " " not in word and not NUMBER.fullmatch(word)


def _arguments(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return each option's words; a switch that is on unless told otherwise has a negation."""
    schema = schema_of(plan)
    arguments: dict[str, tuple[str, ...]] = {}
    for name, value in options(plan).items():
        option = schema.options.get(name) or Option(name=name, type="text")
        if option.type == "switch" and value == "false":
            arguments[f"no-{name}"] = ("true",)
        else:
            arguments[name] = value_tokens(option, value)
    return arguments


def _env(plan: Plan) -> dict[str, str]:
    rendered = {
        f"{PREFIX}{name.upper().replace('-', '_')}": " ".join(words)
        for name, words in _arguments(plan).items()
    }
    return {**OFFLINE_ENV, **rendered}


def _command(plan: Plan) -> list[str]:
    argv = ["python3", "-m", "sglang.launch_server"]
    address = {name: (value,) for name, value in _address().items()}
    for name, words in {**_arguments(plan), **address}.items():
        if words == ("true",):
            argv.append(f"--{name}")
        elif words != ("false",):
            argv += [f"--{name}", *words]
    return argv


def _by_environment(plan: Plan) -> bool:
    return plan.container.variant not in BY_COMMAND


def _option_name(asked: str, schema: EngineSchema) -> str:
    """Return the first long name of an option, whatever its spelling; unknown ones with dashes."""
    dashed = asked.removeprefix("--").lower().replace("_", "-")
    option = schema.find(dashed)
    return option.name if option is not None else dashed
