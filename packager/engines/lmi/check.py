"""Checks of LMI's keys: dropped, refused and conflicting ones, for a plan or any configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.suggestions import guess
from packager.core.techniques import cache_option
from packager.engines.capability import CACHE_DTYPE, check_capability
from packager.engines.lmi.options import CLOSED_UNTIL, VLLM_NAMES, LmiOptions
from packager.engines.lmi.render import (
    ASYNC_MODE,
    ASYNC_SINCE,
    ENTRY_POINT,
    KV_DTYPE,
    ROLLING_BATCH,
    SERVED_NAME,
    release_of,
    settings,
)
from packager.engines.rendering.environment import NotRepresentable, to_property_value
from packager.engines.rules import NO_FACTS, Facts, check_rules
from packager.engines.schema import check_value, find_schema
from packager.engines.shared import check_unnamed, draft_dir, draft_unsupported
from packager.engines.successors import find_missing

EAGLE_SINCE = 16  # vllm/config.py of 0.8.4 sets the method by the path and ignores the option

LMI_DIST_UNTIL = 15  # the first without lmi-dist, which was the default

VLLM_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

HANDLERS = {"async": "the asynchronous service", "vllm": "the rolling batch"}

SWITCHES = frozenset({"true", "false"})

# With these LMI sets load_on_devices=0 and maxWorkers=1.
ALONE = ("option.enable_lora", "option.enable_stateful_sessions")


def check_workers(plan: Plan) -> Iterator[Finding]:
    """Refuse options with which LMI starts one server only: LmiConfigRecommender."""
    asked = settings(plan)
    for name in ALONE:
        if plan.workers > 1 and asked.get(name, "").lower() == "true":
            message = f"with {name!r} LMI starts one server, and the plan has {plan.workers}"
            hint = f"use --tp-degree {plan.tp_degree * plan.workers}, or leave it out"
            yield Finding("error", "options-conflict", message, hint)


def check_eagle(plan: Plan) -> Iterator[Finding]:
    """Refuse a head that vLLM 0.8 takes for a whole model: it looks for `eagle-` in the path."""
    if plan.draft is not None and plan.draft.kind == "eagle" and release_of(plan) < EAGLE_SINCE:
        hint = f"use --container-version {EAGLE_SINCE} or newer"
        yield from draft_unsupported(plan, f"LMI {release_of(plan)} at {draft_dir(plan)}", hint)


def check_unread(plan: Plan, options: LmiOptions) -> Iterator[Finding]:
    """Find what the plan decides and this version of LMI has no key for."""
    if SERVED_NAME not in options.types:
        yield from check_unnamed(plan, f"LMI {options.container}")
    if plan.kv_dtype != "auto" and KV_DTYPE not in options.types:
        message = (
            f"LMI {options.container} silently ignores {KV_DTYPE!r}: the cache would be kept "
            f"in {plan.dtype}, and twice as large as it is planned"
        )
        option = cache_option(plan.quantization)
        hint = f"leave {option} out, or use --container-version {CLOSED_UNTIL + 1} or newer"
        yield Finding("error", "kv-dtype-unsupported", message, hint)


def check_settings(
    meant: Mapping[str, str],
    options: LmiOptions,
    facts: Facts = NO_FACTS,
    *,
    vllm_version: str = "",
) -> Iterator[Finding]:
    """Find keys that LMI does not read, values that it does not take, and combinations.

    The rules of vLLM apply where its version is known.
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
            message = (
                f"LMI {options.container} ignores {key!r}: {HANDLERS[handler]} does not read it"
            )
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
            message = f"LMI {options.container} silently ignores {key!r}"
            gone = _gone(key, options, vllm_version)
            hint = gone or guess(key, options.types, "leave it out, or use another family")
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
        name = spelled.get(CACHE_DTYPE, CACHE_DTYPE)
        yield from check_capability("vLLM", "vllm", vllm_version, asked, facts, spelled=name)


def _other_handler(meant: Mapping[str, str], release: int) -> Finding | None:
    """Return a finding where LMI serves the model without vLLM, or by unknown rules."""
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


def _gone(key: str, options: LmiOptions, vllm_version: str) -> str:
    """Return what became of an option of vLLM that LMI would hand on; "" for other keys."""
    if not options.pass_through or not vllm_version:
        return ""
    missing = find_missing(find_schema("vllm", vllm_version), key.removeprefix("option."))
    return missing.hint.replace("write --", "write option.") if missing is not None else ""


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
