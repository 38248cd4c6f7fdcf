"""The multi-token-prediction (MTP) head in a model's own checkpoint, used as its draft.

The head is part of the model's files, so it needs no reference. It is refused where parts of it are
missing, or where the engine cannot serve it for this model; the finding names which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from packager.core.engine_rows import engine_name
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile
from packager.core.techniques import Draft
from packager.models.architectures.mtp import MtpHead
from packager.models.architectures.profile import read_head, text_config
from packager.optimize.drafts.mtp_engines import (
    HeadParts,
    ServedModels,
    find_parts,
    find_served,
    model_names,
    mtp_method,
    served_models,
    serves,
)
from packager.optimize.drafts.numbers import FLOATS, main_dtype, other_shape
from packager.optimize.drafts.request import MOST_TOKENS

OTHERS = "use `--draft auto`, a draft model, a head of its own, or `--draft ngram`"
WHOLE = (
    "use the checkpoint as it was published, or one that was quantized together with its head; "
    "quantizers drop what they do not load"
)


def mtp_draft(
    draft: Draft, model: ModelFiles, container: ContainerFacts, profile: ModelProfile
) -> Draft:
    """Return the draft with its numbers: each MTP layer keeps a cache like a layer of the model."""
    head = read_head(model)
    layers = used_layers(head, find_served(container.engine, model.config))
    cached = max(1, profile.cached_layers or profile.layers)
    return replace(
        draft,
        speculative_tokens=draft.speculative_tokens or min(layers, MOST_TOKENS),
        weight_bytes=head.weight_bytes,
        kv_bytes_per_token=layers * profile.kv_bytes_per_token // cached,
        kv_heads=0 if profile.attention == "mla" else profile.kv_heads,
        heads=layers,
        dtype=main_dtype(head.tensors),
        method=mtp_method(model.config, container),
    )


def check_mtp(
    model: ModelFiles, profile: ModelProfile, container: ContainerFacts, tokens: int
) -> Iterator[Finding]:
    """Refuse a missing, incomplete or unsupported head; `tokens` 0 means one per layer.

    Errors of the checkpoint are reported before those of the engine.
    """
    head = read_head(model)
    absent = _why_absent(head)
    if absent is not None:
        yield absent
        return
    yield from _check_parts(head, model, profile)
    yield from check_engine(model.config, container)
    row = find_served(container.engine, model.config)
    layers = used_layers(head, row)
    repeats = container.traits.drafts.repeats_mtp_layers
    if repeats and tokens > layers and tokens % layers:
        message = f"{tokens} speculative tokens: not a multiple of the head's {layers} MTP layers"
        who = engine_name(container.engine)
        hint = f"use `--draft mtp:{layers}` or a multiple of it: {who} refuses other numbers"
        yield Finding("error", "draft-mtp-tokens", message, hint)


def why_not_mtp(model: ModelFiles, profile: ModelProfile, container: ContainerFacts) -> str | None:
    """Return why `--draft mtp` is refused, "" if it is not; None for a model without a head."""
    head = read_head(model)
    if not head.declared and not head.tensors:
        return None
    if container.engine not in served_models():
        return f"{container.engine} serves no MTP head"
    found = next(check_mtp(model, profile, container, 0), None)
    return found.message if found else ""


def layer_words(count: int) -> str:
    """Format a number of MTP layers."""
    return f"{count} MTP layer" + ("s" if count != 1 else "")


def used_layers(head: MtpHead, row: ServedModels | None) -> int:
    """Return how many MTP layers the engine runs."""
    layers = max(1, head.layers)
    return min(layers, row.uses) if row and row.uses else layers


def _why_absent(head: MtpHead) -> Finding | None:
    if head.problem:
        message = f"config.json does not say how many MTP layers there are: {head.problem}"
        hint = "use the config.json that was published with these weights"
        return Finding("error", "draft-mtp-config", message, hint)
    if head.tensors and not head.declared and not head.assumed:
        message = (
            f"the checkpoint has {len(head.tensors)} tensors of an MTP head, such as "
            f"{head.tensors[0].name[:60]!r}, and config.json declares no MTP layer"
        )
        hint = "use the config.json that was published with these weights"
        return Finding("error", "draft-mtp-config", message, hint)
    if head.tensors and not head.missing:
        return None
    if head.declared:
        lacking = ", ".join(head.missing[:5]) or "any tensor of them"
        message = (
            f"config.json declares {layer_words(head.declared)} ({head.key}), "
            f"and the checkpoint lacks {lacking}"
        )
        return Finding("error", "draft-mtp-missing", message, WHOLE)
    if head.separate:
        message = (
            f"the MTP head of this model is a checkpoint of its own, of type {head.separate!r}; "
            "the model's files have none"
        )
        hint = f"name it with `--draft mtp:REF`, or {OTHERS}"
        return Finding("error", "draft-mtp-none", message, hint)
    message = "the model has no MTP head: neither config.json nor the tensors have one"
    return Finding("error", "draft-mtp-none", message, OTHERS)


def _check_parts(head: MtpHead, model: ModelFiles, profile: ModelProfile) -> Iterator[Finding]:
    """Check that the head has all parts of its kind, and that it fits the model."""
    absent = _absent_parts(head, model.config)
    if absent:
        message = f"the MTP head lacks {len(absent)} of its tensors, such as {absent[0]!r}"
        yield Finding("error", "draft-mtp-missing", message, WHOLE)
    parts = find_parts(model.config)
    if parts is None:
        return
    shape = (profile.hidden_size, 2 * profile.hidden_size)
    for tensor in head.tensors:
        is_join = tensor.name.endswith(parts.joins) and tensor.dtype in FLOATS
        if is_join and tensor.shape != shape:
            yield other_shape(tensor, shape, WHOLE)
            return


def _absent_parts(head: MtpHead, config: Mapping[str, Any]) -> list[str]:
    parts = find_parts(config)
    if parts is None:
        return []
    # By module: a quantized matrix has other tensors, such as `eh_proj.weight_packed`.
    modules = {tensor.name.rpartition(".")[0] for tensor in head.tensors}
    counts = {
        part: sum(module.endswith(_end(part.removesuffix(".weight"))) for module in modules)
        for part in parts.tensors
    }
    least = _least(parts, head)
    return [part for part, count in counts.items() if count < least]


def _end(part: str) -> str:
    return part if part.startswith("mtp") else f".{part}"


def _least(parts: HeadParts, head: MtpHead) -> int:
    return max(1, head.declared) if parts.each == "layer" else 1


def check_engine(config: Mapping[str, Any], container: ContainerFacts) -> Iterator[Finding]:
    """Refuse an engine that is known not to serve the head; families refuse theirs as a whole."""
    engine = container.engine
    if engine not in served_models():
        return
    who = engine_name(engine)
    row = find_served(engine, config)
    named = " ".join(sorted(model_names(config)))[:80] or str(text_config(config))[:20]
    if row is None:
        message = f"{who} is not known to serve an MTP head of {named}"
        yield Finding("error", "draft-mtp-engine", message, OTHERS)
    elif not serves(row, container.engine_version):
        message = (
            f"{who} {container.engine_version} does not serve the MTP head of {named}; "
            f"it came with {row.since}"
        )
        hint = f"use a container with {who} {row.since} or newer, see `packager list containers`"
        yield Finding("error", "draft-mtp-engine", message, hint)
