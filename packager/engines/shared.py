"""Checks and paths that several families share."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from packager.core.findings import Finding
from packager.core.key_options import credential_option
from packager.core.plan import Plan
from packager.core.serving import (
    DRAFT_DIR,
    MODEL_DIR,
    MOUNTED_DRAFT_DIR,
    MOUNTED_MODEL_DIR,
    TREE_DRAFT_DIR,
)
from packager.engines.effects import owner_of

# A packaged model needs no network: a server that reaches for one is misconfigured.
OFFLINE_ENV: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}

# The n-gram draft looks for the last 3 tokens in what came before, then for fewer, down to 1:
# as measured on code with vLLM 0.32.0, 2.97 tokens a step.
NGRAM_LONGEST, NGRAM_SHORTEST = 3, 1

MEDUSA_MODEL = "llm"  # where the model lies in a mount whose root is the heads

NODES_OPTION = "use --nodes, which plans with several machines"
RANK_OPTION = "leave it out: it belongs to a server whose ranks are started one by one"

# Options that lay a model out over devices, and what the request calls them.
VLLM_LAYOUT: Mapping[str, str] = {
    "pipeline-parallel-size": "use --pp-degree",
    "data-parallel-size": "use --dp-degree",
    "enable-expert-parallel": "use --ep",
    "nnodes": NODES_OPTION,
    "node-rank": NODES_OPTION,
    "headless": NODES_OPTION,
    "data-parallel-size-local": NODES_OPTION,
    "data-parallel-start-rank": RANK_OPTION,
    "data-parallel-rank": RANK_OPTION,
    "data-parallel-external-lb": RANK_OPTION,
    "data-parallel-hybrid-lb": RANK_OPTION,
    "data-parallel-multi-port-external-lb": RANK_OPTION,
    "prefill-context-parallel-size": "leave it out: it multiplies the devices that are needed",
}
SGLANG_LAYOUT: Mapping[str, str] = {
    "pp-size": "use --pp-degree",
    "pipeline-parallel-size": "use --pp-degree",
    "dp-size": "use --dp-degree",
    "data-parallel-size": "use --dp-degree",
    "enable-dp-attention": "use --dp-degree",
    "ep-size": "use --ep",
    "expert-parallel-size": "use --ep",
    "nnodes": NODES_OPTION,
    "node-rank": NODES_OPTION,
    "dist-init-addr": NODES_OPTION,
}

_NO = frozenset(("", "0", "false", "no", "off", "none", "null"))

ENGINE_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}", re.ASCII)


def model_dir(plan: Plan) -> str:
    """Return the model's directory at run time."""
    return MODEL_DIR if plan.weights == "baked" else MOUNTED_MODEL_DIR


def draft_dir(plan: Plan) -> str:
    """Return the draft's directory at run time."""
    if plan.weights == "baked":
        return DRAFT_DIR
    return TREE_DRAFT_DIR if plan.one_mount else MOUNTED_DRAFT_DIR


def checkpoint_format(plan: Plan) -> str:
    """Return the quantized format of the served files; "" when they are not quantized."""
    if plan.quantization is not None:
        return plan.quantization.checkpoint_format
    return plan.profile.quantization


def load_time_quantization(plan: Plan) -> str:
    """Return the method by which the engine itself quantizes weights as it loads them."""
    chosen = plan.quantization
    return chosen.method if chosen and not chosen.existing and not chosen.checkpoint_format else ""


def check_input_limit(plan: Plan, who: str = "vLLM") -> Iterator[Finding]:
    """Yield a note that only prompt and answer together are limited, not the prompt alone."""
    message = (
        f"{who} limits prompt and answer together to {plan.shape.max_total_tokens} tokens; "
        f"max_input_tokens {plan.shape.max_input_tokens} is not enforced by the server"
    )
    yield Finding("note", "input-limit-not-enforced", message)


def check_unnamed(plan: Plan, who: str) -> Iterator[Finding]:
    """Yield a warning where the server cannot have a name that differs from the model's own."""
    if plan.served_name != plan.model.name:
        message = f"{who} cannot set its model's name; {plan.served_name!r} is not rendered"
        hint = "leave --served-name out, or use a family with vLLM or SGLang inside"
        yield Finding("warning", "served-name-unused", message, hint)


def medusa_config(plan: Plan) -> dict[str, Any]:
    """Return a config.json by which both TGI and vLLM up to 0.32 read Medusa heads.

    TGI takes the keys with `medusa` in them, and takes heads for heads only without
    `architectures`.  vLLM takes the others, and drops biases without `medusa_fc_bias`.
    """
    draft, profile = plan.draft, plan.profile
    assert draft is not None
    return {
        "base_model_name_or_path": f"{medusa_dirs(plan)[1]}/",
        "medusa_num_heads": draft.heads,
        "medusa_num_layers": draft.head_layers,
        "model_type": "medusa",
        "hidden_size": profile.hidden_size,
        "vocab_size": profile.vocab_size,
        "truncated_vocab_size": draft.vocab_size or profile.vocab_size,
        "num_heads": draft.heads,
        "num_hidden_layers": draft.head_layers,
        "medusa_fc_bias": draft.biased,
    }


def medusa_dirs(plan: Plan) -> tuple[str, str]:
    """Return the directories of Medusa heads and of the model they belong to.

    TGI is given the heads as its model: mounted, they are the mount's root.
    """
    if plan.weights == "baked" or not plan.container.traits.drafts.medusa_is_model:
        return draft_dir(plan), model_dir(plan)
    return model_dir(plan), f"{model_dir(plan)}/{MEDUSA_MODEL}"


def check_layout_options(
    spelled: Mapping[str, str], layout: Mapping[str, str]
) -> Iterator[Finding]:
    """Refuse options that contradict the planned split.

    `spelled` maps each requested name to the engine's, `layout` to the option to use instead.
    """
    for asked, name in spelled.items():
        instead = layout.get(name)
        if instead is not None:
            message = f"{asked!r} decides which devices are used, which the plan does"
            yield Finding("error", "options-conflict", message, instead)


def check_one_stage(plan: Plan, who: str) -> Iterator[Finding]:
    """Refuse pipeline stages for a server that has none."""
    if plan.pp_degree > 1:
        message = f"{who} runs no pipeline stages, and the plan has {plan.pp_degree}"
        yield Finding("error", "pipeline-unsupported", message, "use --family vllm")


def check_engine_options(
    plan: Plan,
    planned: Mapping[str, object],
    spelled: Mapping[str, str],
    *,
    numbers: Collection[str] = (),
) -> Iterator[Finding]:
    """Refuse invalid option names, and options that the plan itself sets.

    `spelled` maps each requested name to the engine's.  `numbers` are the engine's options
    that take numbers alone: they hold no credential, whatever they are called.
    """
    seen: dict[str, str] = {}
    for asked, value in plan.engine_options:
        if asks_for_code(asked, value):
            message = f"{asked[:60]!r} lets the engine run code from the model's files"
            yield Finding("error", "remote-code", message, NEVER_PACKAGED)
            continue
        if not value.isprintable():
            message = f"the value of {asked[:60]!r} has characters that cannot be printed"
            yield Finding("error", "value-refused", message, "give it on one line")
        if not ENGINE_OPTION.fullmatch(asked):
            message = f"{asked[:60]!r} cannot be the name of an engine's option"
            yield Finding("error", "value-refused", message, "use letters, digits and . _ -")
            continue
        if spelled[asked] not in numbers and credential_option(asked, value):
            message = f"engine option {asked!r} holds a credential: the image, its labels and the "
            message += "build record would show it to everybody who can read them"
            hint = "set it when the container starts, as a variable of its environment"
            yield Finding("error", "credential-in-image", message, hint)
        name = spelled[asked]
        if name in planned:
            message = f"{asked!r} is set by the plan, to {str(planned[name])!r}"
            owner = owner_of(plan.container, name)
            hint = f"use {owner}" if owner else "change the request, not the engine's option"
            yield Finding("error", "options-conflict", message, hint)
        elif name in seen:
            message = f"{asked!r} and {seen[name]!r} are the same option"
            yield Finding("error", "options-conflict", message, "give it once")
        seen[name] = asked


NEVER_PACKAGED = "leave it out: such code is never packaged; use a version of the model without"


def asks_for_code(name: str, value: str) -> bool:
    """Report whether a setting, however it is spelled, allows code from the model's files.

    Every engine calls it `trust_remote_code`; JSON that overrides settings may hold it, too.
    """
    spelled = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if spelled.endswith("trust_remote_code"):
        is_negated = spelled.startswith("no_") or "_no_" in spelled
        return not is_negated and value.strip().lower() not in _NO
    return "trust_remote_code" in re.sub(r"[^a-z0-9]+", "_", value.lower())


def draft_unsupported(plan: Plan, who: str, instead: str) -> Iterator[Finding]:
    """Refuse the plan's draft."""
    assert plan.draft is not None
    message = f"{who} has no speculation with a draft of kind {plan.draft.kind!r}"
    yield Finding("error", "draft-unsupported", message, instead)
