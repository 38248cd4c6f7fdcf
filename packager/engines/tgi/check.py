"""Checks of TGI's environment: what script, launcher, router and shards refuse, drop or change."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping

from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.suggestions import guess
from packager.core.techniques import Draft
from packager.engines.prequantized import check_arrived
from packager.engines.rules import NO_FACTS, Facts, check_rules
from packager.engines.schema import EngineSchema, check_value, find_schema
from packager.engines.shared import checkpoint_format, draft_unsupported
from packager.engines.successors import find_missing
from packager.engines.tgi.attention import runs_chunks
from packager.engines.tgi.render import DEFAULT_PREFILL, QUANTIZE, schema_of

UNSPLITTABLE_HEADS = {"awq", "gptq"}  # formats whose loader wants quantized Medusa v2 heads


def check_settings(
    env: Mapping[str, str],
    version: str,
    facts: Facts = NO_FACTS,
    *,
    by_script: bool,
    drafts: bool = False,
) -> Iterator[Finding]:
    """Find what this version of TGI refuses, drops or changes of an environment.

    `by_script`: SageMaker's script, which has its own variable names, starts the launcher.
    `drafts`: tokens are proposed by a draft that no variable states, such as Medusa heads.
    """
    schema = find_schema("tgi", version)
    yield from check_names(env, schema, by_script=by_script)
    spelled = _exported(env, schema) if by_script else {}
    read = {**env, **{ours: env[theirs] for ours, theirs in spelled.items()}}
    chunks = not drafts and runs_chunks(version, read, facts)
    yield from check_launcher(read, chunks=chunks)
    known = schema.options
    yield from check_rules("TGI", "tgi", version, read, facts=facts, options=known, spelled=spelled)


def check_names(
    env: Mapping[str, str], schema: EngineSchema, *, by_script: bool = False
) -> Iterator[Finding]:
    """Find variables that TGI does not read, and values that it does not accept."""
    exported = {theirs: ours for ours, theirs in schema.exports.items()}
    known = (*schema.options, *(exported if by_script else ()))
    for name, value in env.items():
        option = schema.options.get(exported.get(name, name))
        if name not in known or option is None:
            yield _unread(name, known, schema, is_of_script=name in exported)
        else:
            yield from check_value("TGI", option, name, value)
    if by_script:
        yield from _check_script(env, schema)


def _unread(
    name: str, known: Collection[str], schema: EngineSchema, *, is_of_script: bool
) -> Finding:
    if is_of_script:
        message = f"{name!r} is read by the script of SageMaker's image alone"
        ours = next(ours for ours, theirs in schema.exports.items() if theirs == name)
        return Finding("error", "key-dropped", message, f"use {ours!r}")
    message = f"neither launcher, router nor shards of TGI {schema.version} read {name!r}"
    gone = find_missing(schema, name)
    return Finding("error", "key-dropped", message, gone.hint if gone else guess(name, known))


def _check_script(env: Mapping[str, str], schema: EngineSchema) -> Iterator[Finding]:
    """Find variables that SageMaker's script overwrites before the launcher reads them."""
    for ours, theirs in _exported(env, schema).items():
        if env.get(ours, env[theirs]) != env[theirs]:
            message = f"{ours!r} is overwritten by SageMaker's script, with {theirs!r}"
            yield Finding("error", "key-dropped", message, f"set {theirs!r} alone")
    for name, given in schema.arguments.items():
        if env.get(name, given) != given:
            message = f"{name!r} is not read: SageMaker's script starts TGI with {given!r} for it"
            yield Finding("error", "key-dropped", message, f"leave it out, or use {given!r}")


def _exported(env: Mapping[str, str], schema: EngineSchema) -> dict[str, str]:
    """Map the launcher's variables to those that SageMaker's script sets them from."""
    return {ours: theirs for ours, theirs in schema.exports.items() if env.get(theirs)}


def check_launcher(env: Mapping[str, str], *, chunks: bool) -> Iterator[Finding]:
    """Check what launcher, router and shards check before a model is loaded.

    `launcher/src/main.rs`, `backends/v3/src/main.rs` and `server/cli.py` at db931fcf.
    """
    if {"MAX_INPUT_TOKENS", "MAX_INPUT_LENGTH"} <= env.keys():
        yield _conflict("MAX_INPUT_TOKENS and MAX_INPUT_LENGTH are both set")
    numbers = {name: int(value) for name, value in env.items() if _is_number(value)}
    yield from _check_lengths(numbers, chunks=chunks)
    for name in ("MAX_BATCH_SIZE", "VALIDATION_WORKERS", "NUM_SHARD"):
        if numbers.get(name, 1) < 1:
            message = f"TGI refuses {numbers[name]} for {name}"
            yield Finding("error", "value-refused", message, "give 1 or more, or leave it out")
    quantize, shards = env.get("QUANTIZE", ""), numbers.get("NUM_SHARD", 1)
    if quantize == "exl2" and shards > 1:
        yield _conflict(f"exl2 weights cannot be split, and there are {shards} shards")
    if quantize and not quantize.startswith("bitsandbytes") and "DTYPE" in env:
        yield _conflict(f"DTYPE and QUANTIZE={quantize} are both set; only one can be")
    adapters = env.get("LORA_ADAPTERS", "").split(",")
    if any(adapter.count(mark) > 1 for adapter in adapters for mark in "@="):
        message = "TGI takes one '@' and '=' in each LORA_ADAPTERS"
        hint = "put a comma between adapters; each has one '=' and one '@' at most"
        yield Finding("error", "value-refused", message, hint)
    if not _is_address(env.get("HOSTNAME", "0.0.0.0")):
        message = f"TGI listens on 0.0.0.0: HOSTNAME {env['HOSTNAME'][:60]!r} is not an address"
        yield Finding("warning", "key-dropped", message, "leave it out, or give an IP address")
    if env.get("NGROK") == "true" and not {"NGROK_AUTHTOKEN", "NGROK_EDGE"} <= env.keys():
        yield _conflict("NGROK needs NGROK_AUTHTOKEN and NGROK_EDGE")


def _check_lengths(numbers: Mapping[str, int], *, chunks: bool) -> Iterator[Finding]:
    """Check that no limit of tokens is above one that must hold it."""
    prompt = numbers.get("MAX_INPUT_TOKENS", numbers.get("MAX_INPUT_LENGTH"))
    total, batch = numbers.get("MAX_TOTAL_TOKENS"), numbers.get("MAX_BATCH_TOTAL_TOKENS")
    prefill = numbers.get("MAX_BATCH_PREFILL_TOKENS")
    if prompt and total and prompt >= total:
        yield _conflict(f"the prompt's limit {prompt} is not below MAX_TOTAL_TOKENS {total}")
    if total and batch and total > batch:
        yield _conflict(f"MAX_TOTAL_TOKENS {total} is above MAX_BATCH_TOTAL_TOKENS {batch}")
    if prefill and batch and prefill > batch:
        yield _conflict(f"MAX_BATCH_PREFILL_TOKENS {prefill} is above a batch's {batch} tokens")
    if prompt and prefill and prompt > prefill and not chunks:
        yield _conflict(f"the prompt's limit {prompt} is above a prefill's {prefill} tokens")
    if prompt and prefill is None and prompt > DEFAULT_PREFILL and not chunks:
        message = (
            f"TGI may not start: it computes a prompt of {prompt} tokens at once, and its own "
            f"limit for that is {DEFAULT_PREFILL} or what it estimates of the GPU"
        )
        hint = f"set MAX_BATCH_PREFILL_TOKENS to {prompt} or more"
        yield Finding("warning", "options-conflict", message, hint)


def check_format(plan: Plan) -> Iterator[Finding]:
    found = checkpoint_format(plan)
    if found and found not in QUANTIZE:
        message = f"TGI does not load weights in format {found!r}"
        yield Finding("error", "quantization-unsupported", message, "use --family vllm")
    else:
        yield from check_arrived("TGI", plan)


def check_draft(plan: Plan) -> Iterator[Finding]:
    draft = plan.draft
    if draft is None:
        return
    if draft.kind not in schema_of(plan).draft_methods:
        yield from draft_unsupported(plan, "TGI", "use --family vllm, or Medusa heads, or ngram")
    if draft.kind != "medusa":
        return
    if not draft.heads or not draft.head_layers:
        message = "TGI needs to know how many Medusa heads there are, and of how many layers"
        yield Finding("error", "draft-incomplete", message, "the draft's config.json must say both")
    elif draft.speculative_tokens > draft.heads:
        message = f"{draft.heads} Medusa heads cannot propose {draft.speculative_tokens} tokens"
        hint = f"use --speculative-tokens {draft.heads}"
        yield Finding("error", "draft-too-short", message, hint)
    if draft.vocab_size and draft.vocab_size != plan.profile.vocab_size:
        message = f"TGI has no map for heads that score {draft.vocab_size} of the model's tokens"
        hint = "use heads with the whole vocabulary, or --family vllm"
        yield Finding("error", "draft-unsupported", message, hint)
    if draft.heads and not draft.biased:
        message = "TGI looks for a bias in every Medusa layer, and these have none"
        yield Finding("error", "draft-unsupported", message, "use --family vllm, up to 0.32")
    if draft.version == "v2":
        yield from _check_second_version(plan, draft)


def _check_second_version(plan: Plan, draft: Draft) -> Iterator[Finding]:
    """Check what TGI needs of Medusa v2 heads."""
    if checkpoint_format(plan) in UNSPLITTABLE_HEADS:
        message = (
            f"TGI cannot load Medusa v2 heads beside {checkpoint_format(plan)} weights: "
            "it looks for quantized heads"
        )
        yield Finding("error", "draft-unsupported", message, "use Medusa v1 heads, or fp8")
    if draft.head_layers > 1:
        message = f"TGI loads Medusa v2 heads of 1 layer, and these have {draft.head_layers}"
        yield Finding("error", "draft-unsupported", message, "use Medusa v1 heads")
    if plan.profile.hidden_size % plan.tp_degree:
        message = f"Medusa v2 heads of {plan.profile.hidden_size} do not split in {plan.tp_degree}"
        yield Finding("error", "draft-unsupported", message, "choose another tp_degree")


def check_shards(plan: Plan) -> Iterator[Finding]:
    profile = plan.profile
    for what, count in (("attention", profile.heads), ("key-value", profile.kv_heads)):
        if count % plan.tp_degree:
            message = f"TGI cannot split {count} {what} heads over {plan.tp_degree} shards"
            hint = f"choose a tp_degree that divides {count}"
            yield Finding("error", "heads-not-divisible", message, hint)


def _conflict(message: str) -> Finding:
    hint = "change one of them so that they agree, or leave it out"
    return Finding("error", "options-conflict", f"TGI does not start: {message}", hint)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdecimal()
