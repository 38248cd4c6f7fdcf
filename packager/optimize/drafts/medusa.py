"""Medusa heads: residual layers on the last hidden state, with an output layer each.

Those of version 1 bring a vocabulary each; those of version 2 use the model's.
TGI reads the names of the authors (`0.0.linear.weight`, `0.1.weight`), vLLM those
of its own (`blocks.0.layers.0.weight`, `lm_heads.0.weight`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from packager.core.findings import Finding
from packager.core.model import HeadValues, ModelFiles, ModelProfile, TensorInfo
from packager.core.techniques import Draft
from packager.optimize.drafts.head_config import check_head_config
from packager.optimize.drafts.numbers import MENDED, OWN, check_floats, number, other_shape
from packager.optimize.drafts.token_map import check_medusa_map
from packager.optimize.drafts.trained_for import check_trained_for

AUTHORS = re.compile(
    r"(?:.*\.)?(?P<head>\d{1,6})\.(?P<layer>\d{1,6})\.(?P<linear>linear\.)?(?P<what>weight|bias)",
    re.ASCII,
)
VLLM = re.compile(
    r"(?:.*\.)?blocks\.(?P<head>\d{1,6})\.layers\.(?P<layer>\d{1,6})\.(?:linear\.)?"
    r"(?P<what>weight|bias)",
    re.ASCII,
)
VLLM_VOCABULARY = re.compile(r"(?:.*\.)?lm_heads\.(?P<head>\d{1,6})\.weight", re.ASCII)
TOKEN_MAP = "token_map"

MOST_HEADS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaTensor:
    """One tensor and its place: a residual layer's, or what makes tokens."""

    head: int
    layer: int  # -1: what makes tokens
    what: str  # `weight`, `bias`
    tensor: TensorInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaHeads:
    """Medusa heads as the headers describe them."""

    layout: str  # `medusa` (the authors' names) or `blocks` (vLLM's)
    tensors: tuple[MedusaTensor, ...] = ()
    others: Mapping[str, TensorInfo] = field(default_factory=lambda: MappingProxyType({}))
    heads: int = 0
    head_layers: int = 0

    @property
    def has_vocabulary(self) -> bool:
        return any(one.layer < 0 for one in self.tensors)

    @property
    def biased(self) -> bool:
        return any(one.what == "bias" for one in self.tensors)

    @property
    def vocab_size(self) -> int:
        """Tokens that a head scores; 0 for heads of version 2."""
        return next((one.tensor.shape[0] for one in self.tensors if one.layer < 0), 0)


def read_medusa(files: ModelFiles) -> MedusaHeads:
    """Find the heads among the tensors."""
    found: list[MedusaTensor] = []
    others: dict[str, TensorInfo] = {}
    layout = "medusa"
    for tensor in files.tensors:
        place = place_of(tensor)
        if place is None:
            others[tensor.name.rpartition(".")[2]] = tensor
            continue
        found.append(place)
        if VLLM.fullmatch(tensor.name) or VLLM_VOCABULARY.fullmatch(tensor.name):
            layout = "blocks"
    return MedusaHeads(
        layout=layout,
        tensors=tuple(found),
        others=MappingProxyType(others),
        heads=max((one.head + 1 for one in found), default=0),
        head_layers=max((one.layer + 1 for one in found), default=0),
    )


def place_of(tensor: TensorInfo) -> MedusaTensor | None:
    """Return which tensor of which head it is; None when it belongs to no head."""
    name = tensor.name
    if match := VLLM.fullmatch(name):
        layer = int(match["layer"])
        return MedusaTensor(head=int(match["head"]), layer=layer, what=match["what"], tensor=tensor)
    if match := VLLM_VOCABULARY.fullmatch(name):
        return MedusaTensor(head=int(match["head"]), layer=-1, what="weight", tensor=tensor)
    match = AUTHORS.fullmatch(name)
    if match is None:
        return None
    layer = int(match["layer"]) if match["linear"] else -1
    return MedusaTensor(head=int(match["head"]), layer=layer, what=match["what"], tensor=tensor)


def medusa_draft(draft: Draft, heads: MedusaHeads) -> Draft:
    """Return the draft with sizes and defaults filled in. Unused heads are not loaded."""
    tokens = draft.speculative_tokens or heads.heads
    return replace(
        draft,
        speculative_tokens=tokens,
        weight_bytes=sum(one.tensor.size for one in heads.tensors if one.head < tokens),
        replicated=heads.has_vocabulary,
        version="v1" if heads.has_vocabulary else "v2",
        heads=heads.heads,
        head_layers=heads.head_layers,
        layout=heads.layout,
        biased=heads.biased,
        vocab_size=heads.vocab_size,
    )


def check_medusa(
    heads: MedusaHeads,
    files: ModelFiles,
    model: ModelFiles,
    profile: ModelProfile,
    tokens: int,
    values: HeadValues | None = None,
) -> Iterator[Finding]:
    """Yield findings where the heads do not fit the model or are incomplete."""
    if not heads.heads or heads.heads > MOST_HEADS or not heads.head_layers:
        message = "the draft holds no complete Medusa heads: tensors `0.0.linear.weight` and on"
        hint = "name the directory with medusa_lm_head.safetensors"
        yield Finding("error", "draft-heads", message, hint)
        return
    yield from check_trained_for(files.config, model, profile)
    yield from check_head_config(files, model, profile)
    yield from check_floats((one.tensor for one in heads.tensors), indices=(TOKEN_MAP,))
    found = tuple(_check_shapes(heads, profile))
    yield from found
    if TOKEN_MAP in heads.others and not found:
        yield from check_medusa_map(values, profile.vocab_size)
    yield from _check_whole(heads)
    yield from _check_stated(heads, files)
    if tokens > heads.heads:
        message = f"speculative_tokens {tokens} is requested; the draft has {heads.heads} heads"
        yield Finding("error", "draft-heads", message, f"ask for at most {heads.heads}")


def _check_shapes(heads: MedusaHeads, profile: ModelProfile) -> Iterator[Finding]:
    hidden = profile.hidden_size
    scored = heads.vocab_size if TOKEN_MAP in heads.others else profile.vocab_size
    for one in heads.tensors:
        if one.what == "bias":
            expected: tuple[int, ...] = (hidden,)
        else:
            expected = (scored, hidden) if one.layer < 0 else (hidden, hidden)
        if one.tensor.shape != expected:
            yield other_shape(one.tensor, expected)
            return
    token_map = heads.others.get(TOKEN_MAP)
    if token_map is not None and token_map.shape != (scored,):
        message = f"'token_map' names {list(token_map.shape)[:4]} tokens; the heads score {scored}"
        yield Finding("error", "draft-mapping", message, MENDED)


def _check_whole(heads: MedusaHeads) -> Iterator[Finding]:
    """Check that all heads have the same layers, and all or none a vocabulary."""
    there = {(one.head, one.layer, one.what) for one in heads.tensors}
    parts = {(one.layer, one.what) for one in heads.tensors}
    parts |= {(layer, "weight") for layer in range(heads.head_layers)}
    missing = [
        (head, *part)
        for head in range(heads.heads)
        for part in sorted(parts)
        if (head, *part) not in there
    ]
    if missing:
        head, layer, what = missing[0]
        named = "vocabulary" if layer < 0 else f"{what} of layer {layer}"
        message = f"the draft lacks {len(missing)} tensors, such as the {named} of head {head}"
        yield Finding("error", "draft-truncated", message, MENDED)


def _check_stated(heads: MedusaHeads, files: ModelFiles) -> Iterator[Finding]:
    for key, found in (
        ("medusa_num_heads", heads.heads),
        ("num_heads", heads.heads),
        ("medusa_num_layers", heads.head_layers),
    ):
        stated = number(files.config, key)
        if stated and stated != found:
            message = f"the draft's config.json says {key} {stated}; its tensors show {found}"
            yield Finding("error", "draft-config", message, OWN)


def with_base_model(config: Mapping[str, Any], directory: str) -> bytes | None:
    """Return TGI heads' own config.json with the model's directory, as it is written by hand.

    None where the heads state no number of their own, or name a class: TGI would then take
    them for a model.
    """
    if not number(config, "medusa_num_heads") or "architectures" in config:
        return None
    return json.dumps({**config, "base_model_name_or_path": directory}, indent=2).encode()
