"""Support of the model's class by the container's engine version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from packager.catalog.model_types import generating_classes, own_attention
from packager.catalog.served_architectures import (
    GENERATIVE,
    Listing,
    find_listing,
    has_list,
    is_listed,
    last_version,
    nearest_read,
    reads_type_in,
    served_types,
    type_comes_with,
)
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.share import read_shipped
from packager.core.versions import version_key
from packager.engines.schema import ENGINES

MOST_NAMED = 3  # containers in a hint

# Since when an engine runs transformers' own code for a class that it lacks: vLLM 0.7.0 brought
# models/transformers.py, SGLang 0.4.6 the same.  States of linear layers are not kept by it.
FALLS_BACK_SINCE: Mapping[str, str] = {"vllm": "0.7.0", "sglang": "0.4.6"}
FALLBACK = "TransformersForCausalLM"  # the class that does, of both


# Ends of names of classes that give vectors or scores.
ENDS_OF_POOLING = ("ForSequenceClassification", "ForCausalLM", "EmbeddingModel", "Model")


def check_listed(who: str, plan: Plan) -> Iterator[Finding]:
    """Find that the engine's version does not have the class, or does not read its type.

    `who` is the engine's name in messages.  Engines without a list are not checked.
    """
    container, architecture = plan.container, plan.profile.architecture
    if container.engine == "tgi":
        yield from _check_type(who, plan)
        return
    if not has_list(container.engine):
        return
    if plan.profile.pooling is not None:
        yield from _check_pooling(who, plan)
        return
    listing = find_listing(container.engine, architecture)
    version = nearest_read(container.engine, container.engine_version)
    if listing is not None and listing.has(version):
        yield from _check_config(who, plan)
    elif listing is not None:
        yield _lacks(who, plan, listing)
    elif is_listed(architecture) or architecture in generating_classes():
        yield _never_had(who, plan)


def served_class(plan: Plan) -> str:
    """Return the engine's class that has the model: its own, or the one for others."""
    engine, architecture = plan.container.engine, plan.profile.architecture
    listing = find_listing(engine, architecture)
    version = nearest_read(engine, plan.container.engine_version)
    return architecture if listing is not None and listing.has(version) else FALLBACK


def converted_class(engine: str, version: str, architecture: str) -> str:
    """Return the class that writes text and is turned into one of vectors or scores.

    "" where the engine's version has the class itself, or none to turn: it looks for
    `QwenForCausalLM` where it lacks `QwenModel` or `QwenForSequenceClassification`.
    """
    read = nearest_read(engine, version)
    own = find_listing(engine, architecture)
    if own is not None and own.has(read) and own.kind not in GENERATIVE:
        return ""
    base = architecture
    for end in ENDS_OF_POOLING:
        base = base.removesuffix(end)
    names = (architecture, f"{base}ForCausalLM", f"{base}LMHeadModel")
    found = ((name, find_listing(engine, name)) for name in names)
    return next(
        (name for name, row in found if row and row.kind in GENERATIVE and row.has(read)), ""
    )


def _check_pooling(who: str, plan: Plan) -> Iterator[Finding]:
    container, architecture = plan.container, plan.profile.architecture
    engine, version = container.engine, container.engine_version
    listing = find_listing(engine, architecture)
    if (listing is not None and listing.has(nearest_read(engine, version))) or converted_class(
        engine, version, architecture
    ):
        yield from _check_config(who, plan)
    elif listing is not None:
        yield _lacks(who, plan, listing)
    else:
        message = f"{who} does not have {architecture}: no version up to {last_version(engine)}"
        hint = "text-embeddings-inference or sentence-transformers itself may serve it"
        yield Finding("error", "engine-lacks-architecture", f"{message} lists it", hint)


def check_neuron_type(plan: Plan) -> Iterator[Finding]:
    """Find that the image's library for Neuron devices does not list the type of the model."""
    model_type, variant = plan.profile.model_type, plan.container.variant
    for library in _neuron_libraries():
        if model_type and variant in library["variants"] and model_type not in library["types"]:
            message = (
                f"{library['name']} does not list models of type {model_type[:40]!r} "
                f"({library['date']}); it has {', '.join(library['types'])}"
            )
            hint = "compile it before you rely on it, or choose an instance with NVIDIA GPUs"
            yield Finding("warning", "engine-lacks-architecture", message, hint)


def _lacks(who: str, plan: Plan, listing: Listing) -> Finding:
    version, architecture = plan.container.engine_version, plan.profile.architecture
    first, gone = listing.comes_with(version), listing.went_with(version)
    when = (
        f"the first version that has it is {first}"
        if first
        else f"the last version that has it is {last_version(plan.container.engine, before=gone)}"
        if gone
        else "other versions have it"
    )
    message = f"{who} {version} does not have {architecture}; {when}"
    if not first and _falls_back(plan):
        return _fallback(message)
    hint = _containers_hint(plan, listing, "take a model of an architecture that it has")
    return Finding("error", "engine-lacks-architecture", message, hint)


def _never_had(who: str, plan: Plan) -> Finding:
    engine, version = plan.container.engine, plan.container.engine_version
    architecture, newest = plan.profile.architecture, last_version(engine)
    message = f"{who} does not have {architecture}: no version up to {newest} lists it"
    if _falls_back(plan):
        return _fallback(message)
    key, last = version_key(version), version_key(newest)
    is_later = key is not None and last is not None and key > last
    hint = "take another family; `packager list containers` shows them"
    return Finding("warning" if is_later else "error", "engine-lacks-architecture", message, hint)


def _falls_back(plan: Plan) -> bool:
    """Whether the engine may run transformers' code: decoders whose attention it can replace."""
    since = version_key(FALLS_BACK_SINCE.get(plan.container.engine, ""))
    key = version_key(plan.container.engine_version)
    is_new = key is None or (since is not None and key >= since)
    architecture = plan.profile.architecture
    is_known = architecture in generating_classes() and architecture not in own_attention()
    return is_new and is_known and not plan.profile.state_bytes


def _fallback(message: str) -> Finding:
    hint = "it runs transformers' own code instead, slower and without a promise: try it first"
    return Finding("warning", "engine-falls-back", message, hint)


def _check_config(who: str, plan: Plan) -> Iterator[Finding]:
    engine, version = plan.container.engine, plan.container.engine_version
    model_type = plan.profile.model_type
    first = type_comes_with(model_type, engine, version)
    if not model_type or not first or reads_type_in(model_type, engine, version):
        return
    message = (
        f"{who} {version} has {plan.profile.architecture}, and does not read a configuration of "
        f"type {model_type!r}; the first version that does is {first}"
    )
    listing = Listing("", ((first, ""),))
    hint = _containers_hint(plan, listing, "take a model whose configuration it reads")
    yield Finding("error", "engine-lacks-architecture", message, hint)


def _check_type(who: str, plan: Plan) -> Iterator[Finding]:
    model_type = plan.profile.model_type
    if model_type and model_type not in served_types("tgi"):
        message = f"{who} {last_version('tgi')} has no code of its own for models of type "
        yield _fallback(message + repr(model_type[:40]))


def _containers_hint(plan: Plan, listing: Listing, otherwise: str) -> str:
    """Propose containers of the family whose engine has it."""
    chosen = plan.container
    names = dict.fromkeys(
        one.release or one.engine_version
        for one in plan.containers
        if (one.family, one.kind, one.engine) == (chosen.family, chosen.kind, chosen.engine)
        and one != chosen
        and listing.has(one.engine_version)
    )
    if not names:
        return otherwise
    return f"use --container-version {' or '.join([*names][:MOST_NAMED])}; or {otherwise}"


@cache
def _neuron_libraries() -> tuple[Mapping[str, Any], ...]:
    rows = read_shipped(ENGINES / "neuron_models.toml")["library"]
    return tuple(rows)
