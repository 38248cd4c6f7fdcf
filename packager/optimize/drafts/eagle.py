"""EAGLE heads: one decoder layer or few, which read the model's hidden states.

Two formats are published.  The authors' own names its layer `layers.0` (EAGLE)
or `midlayer` (EAGLE-3) in a config.json like a small Llama's.  That of the
speculators library nests the same numbers in `transformer_layer_config`.

EAGLE joins a token's embedding with one hidden state and makes them one in
`fc`.  EAGLE-3 makes several hidden states one in `fc`, and its first layer reads
that beside the embedding.  It may propose from a smaller vocabulary of its own:
`d2t` says how far each of its tokens is from the model's, `t2d` which are in it.

P-EAGLE is EAGLE-3 that proposes all tokens at once: places it has not computed yet read
`mask_hidden` instead of hidden states, and a token of their own instead of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from packager.core.findings import Finding, errors_in
from packager.core.model import HeadValues, ModelFiles, ModelProfile, TensorInfo
from packager.core.techniques import Draft, DraftKind
from packager.models.architectures.profile import KV_ELEMENT_BYTES, architecture_of, text_config
from packager.optimize.drafts.head_config import check_head_config
from packager.optimize.drafts.numbers import (
    MENDED,
    OWN,
    TRAINED_FOR,
    check_floats,
    check_mask_token,
    check_type,
    counts,
    mapping,
    number,
    other_shape,
    other_vocabulary,
)
from packager.optimize.drafts.request import MOST_TOKENS
from packager.optimize.drafts.token_map import check_token_map
from packager.optimize.drafts.trained_for import check_trained_for

AUX_STATES = 3  # hidden states that an EAGLE-3 head reads by default
PARALLEL_TOKENS = 5  # tokens that a P-EAGLE head proposes by default
KINDS = {
    "eagle": "an EAGLE head",
    "eagle3": "an EAGLE-3 head",
    "peagle": "a P-EAGLE head",
    "dflash": "a DFlash head",
}
THREE = ("eagle3", "peagle")  # kinds that read several hidden states
MASK = "mask_hidden"
INDICES = {"d2t": ("I64", "I32"), "t2d": ("BOOL", "U8", "I64", "I32")}

# Field names of the speculators library and older exports → those of the authors' format.
NAMES = {"fusion_fc.": "fc.", "transformer.": "layers.0.", "midlayer.": "layers.0."}
NEEDED = (
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
    "post_attention_layernorm.weight",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleHead:
    """Fields of a head's config.json and headers. Counts are 0 when not stated."""

    layout: str  # `eagle` or `speculators`
    stated_kind: str  # by config.json: one of `KINDS`, or ""
    shown_kind: str  # by the tensors
    stated_tokens: int  # that it was trained to propose
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    layers: int
    vocab_size: int
    draft_vocab_size: int
    aux_layers: tuple[int, ...]
    tensors: Mapping[str, TensorInfo]  # by the name they have in all formats
    weight_bytes: int


def read_eagle(files: ModelFiles) -> EagleHead:
    """Read a head of either format."""
    config = files.config
    nested = mapping(config.get("transformer_layer_config"))
    numbers = nested or text_config(config)
    tensors = {plain_name(one.name): one for one in files.tensors}
    hidden_size, heads = number(numbers, "hidden_size"), number(numbers, "num_attention_heads")
    head_dim = number(numbers, "head_dim") or (hidden_size // heads if heads else 0)
    return EagleHead(
        layout="speculators" if nested else "eagle",
        stated_kind=stated_kind(config),
        shown_kind=_shown_kind(tensors, hidden_size),
        stated_tokens=_stated_tokens(config),
        hidden_size=hidden_size,
        heads=heads,
        kv_heads=number(numbers, "num_key_value_heads") or heads,
        head_dim=head_dim,
        intermediate_size=number(numbers, "intermediate_size"),
        layers=number(numbers, "num_hidden_layers") or 1,
        vocab_size=number(numbers, "vocab_size"),
        draft_vocab_size=number(config, "draft_vocab_size"),
        aux_layers=aux_layers(config),
        tensors=tensors,
        weight_bytes=files.weight_bytes,
    )


def plain_name(name: str) -> str:
    """Return a tensor's name without format-specific prefixes."""
    bare = name.removeprefix("model.")
    for theirs, ours in NAMES.items():
        if bare.startswith(theirs):
            return ours + bare.removeprefix(theirs)
    return bare


def aux_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the model's layers whose hidden states the head reads, counted as vLLM does.

    SGLang's place for them is `eagle_config`, and it means the layer before.
    """
    stated = counts(config.get("eagle_aux_hidden_state_layer_ids"))
    nested = counts(mapping(config.get("eagle_config")).get("eagle_aux_hidden_state_layer_ids"))
    return stated or tuple(layer + 1 for layer in nested)


def eagle_draft(draft: Draft, head: EagleHead) -> Draft:
    """Return the draft with sizes and defaults filled in."""
    per_token = 2 * head.layers * head.kv_heads * head.head_dim * KV_ELEMENT_BYTES
    tokens = draft.speculative_tokens or min(head.stated_tokens or PARALLEL_TOKENS, MOST_TOKENS)
    return replace(
        draft,
        speculative_tokens=tokens,
        weight_bytes=head.weight_bytes,
        kv_bytes_per_token=per_token,
        kv_heads=head.kv_heads,
        attention_heads=head.heads,
        intermediate_size=head.intermediate_size,
        vocab_size=head.draft_vocab_size or head.vocab_size,
        layout=head.layout,
        aux_layers=head.aux_layers,
    )


def check_eagle(
    kind: DraftKind,
    head: EagleHead,
    files: ModelFiles,
    model: ModelFiles,
    profile: ModelProfile,
    values: HeadValues | None = None,
    *,
    trains: bool = False,
) -> Iterator[Finding]:
    """Yield findings where a head does not fit the model or is incomplete.

    `values` are those of its vocabulary, where they were read; `trains` when it is trained on.
    """
    if not head.hidden_size or not head.heads:
        message = "the draft's config.json does not state hidden_size and num_attention_heads"
        yield Finding("error", "draft-config", message, OWN)
        return
    yield from _check_kind(kind, head)
    yield from check_type(files.config)
    yield from check_trained_for(files.config, model, profile)
    yield from check_head_config(files, model, profile)
    if head.vocab_size and head.vocab_size != profile.vocab_size:
        yield other_vocabulary(head.vocab_size, profile.vocab_size)
    yield from check_floats(head.tensors.values(), indices=INDICES)
    yield from _check_shapes(kind, head, profile)
    yield from _check_whole(kind, head)
    if kind in THREE:
        yield from check_vocabulary(head, profile, values, trains=trains)
        yield from _check_aux_layers(head, profile)
    if kind == "peagle":
        yield from check_mask_token(files.config, profile.vocab_size)


def stated_kind(config: Mapping[str, Any]) -> str:
    """Return the kind of head that a config.json names; "" when it names none."""
    library = config.get("speculators_model_type")
    if isinstance(library, str) and library in KINDS:
        return library
    named = architecture_of(config).lower()
    return next((kind for kind in ("dflash", "peagle", "eagle3", "eagle") if kind in named), "")


def _stated_tokens(config: Mapping[str, Any]) -> int:
    methods = mapping(config.get("speculators_config")).get("proposal_methods")
    first = methods[0] if isinstance(methods, list) and methods else None
    return number(mapping(first), "speculative_tokens")


def _shown_kind(tensors: Mapping[str, TensorInfo], hidden_size: int) -> str:
    """Return the kind that the first layer's shape proves: EAGLE-3 reads two vectors at once."""
    query = tensors.get("layers.0.self_attn.q_proj.weight")
    if query is None or len(query.shape) != 2 or not hidden_size:
        return ""
    if "hidden_norm.weight" in tensors:
        return "dflash"
    three = "peagle" if MASK in tensors else "eagle3"
    return {2 * hidden_size: three, hidden_size: "eagle"}.get(query.shape[1], "")


def _check_kind(kind: DraftKind, head: EagleHead) -> Iterator[Finding]:
    found = head.shown_kind or head.stated_kind
    if (head.shown_kind, head.stated_kind) == ("eagle3", "peagle"):
        found = "peagle"  # without the tensor that tells the kinds apart
    yield from check_kind(kind, found)


def check_kind(kind: DraftKind, found: str) -> Iterator[Finding]:
    """Refuse a head whose kind differs from the requested one."""
    if found and found != kind:
        message = f"the draft is {KINDS[found]}, and is requested as {kind!r}"
        yield Finding("error", "draft-kind", message, f"write `--draft {found}:REF`")


def _check_shapes(kind: DraftKind, head: EagleHead, profile: ModelProfile) -> Iterator[Finding]:
    """Compare the shapes of the head's matrices with its own config and the model's."""
    if kind == "eagle" and head.hidden_size != profile.hidden_size:
        message = (
            f"the draft reads hidden states of {head.hidden_size}, "
            f"the model gives {profile.hidden_size}"
        )
        yield Finding("error", "draft-shape", message, TRAINED_FOR)
        return
    for name, shape in _expected(kind, head, profile).items():
        tensor = head.tensors.get(name)
        if tensor is not None and tensor.shape != shape:
            yield other_shape(tensor, shape)
            return
    mask, fused = head.tensors.get(MASK), _fused(kind, head, profile)
    if kind == "peagle" and mask is not None and math.prod(mask.shape) != fused:
        yield other_shape(mask, (1, fused))


def _fused(kind: DraftKind, head: EagleHead, profile: ModelProfile) -> int:
    """Return how many numbers `fc` reads."""
    states = len(head.aux_layers) or AUX_STATES
    return states * profile.hidden_size if kind in THREE else 2 * head.hidden_size


def _expected(
    kind: DraftKind, head: EagleHead, profile: ModelProfile
) -> Mapping[str, tuple[int, ...]]:
    hidden, attended = head.hidden_size, head.heads * head.head_dim
    read = 2 * hidden if kind in THREE else hidden
    shapes = {
        "fc.weight": (hidden, _fused(kind, head, profile)),
        "embed_tokens.weight": (profile.vocab_size, hidden),
        "layers.0.self_attn.q_proj.weight": (attended, read),
        "layers.0.self_attn.k_proj.weight": (head.kv_heads * head.head_dim, read),
        "layers.0.self_attn.v_proj.weight": (head.kv_heads * head.head_dim, read),
        "layers.0.self_attn.o_proj.weight": (hidden, attended),
    }
    if head.intermediate_size:
        shapes["layers.0.mlp.down_proj.weight"] = (hidden, head.intermediate_size)
    if kind == "eagle":
        shapes["lm_head.weight"] = (profile.vocab_size, hidden)
    return shapes


def _check_whole(kind: DraftKind, head: EagleHead) -> Iterator[Finding]:
    needed = ["fc.weight"]
    needed += [f"layers.{layer}.{name}" for layer in range(head.layers) for name in NEEDED]
    if kind in THREE:
        needed += ["norm.weight", "layers.0.hidden_norm.weight"]
        needed += ["lm_head.weight"] if is_mapped(head) else []
    needed += [MASK] if kind == "peagle" else []
    yield from check_needed(needed, head.tensors)


def check_needed(needed: Iterable[str], tensors: Mapping[str, TensorInfo]) -> Iterator[Finding]:
    """Refuse a head that lacks tensors which every head of its kind has."""
    missing = [name for name in needed if name not in tensors]
    if missing:
        message = f"the draft lacks {len(missing)} tensors of its head, such as {missing[0]!r}"
        yield Finding("error", "draft-truncated", message, MENDED)


def is_mapped(head: EagleHead) -> bool:
    """Return whether a head has its own vocabulary."""
    return bool(head.draft_vocab_size and head.draft_vocab_size != head.vocab_size)


def check_vocabulary(
    head: EagleHead,
    profile: ModelProfile,
    values: HeadValues | None = None,
    *,
    trains: bool = False,
) -> Iterator[Finding]:
    """Check the smaller vocabulary that a head proposes from, and its map."""
    own = head.draft_vocab_size or profile.vocab_size
    if own > profile.vocab_size:
        yield other_vocabulary(own, profile.vocab_size)
        return
    scores = head.tensors.get("lm_head.weight")
    if scores is not None and scores.shape != (own, head.hidden_size):
        yield other_shape(scores, (own, head.hidden_size), OWN)
    found = tuple(_check_lengths(head, own, profile))
    yield from found
    if own != profile.vocab_size and "d2t" not in head.tensors:
        message = (
            f"the draft proposes from {own} tokens of {profile.vocab_size}, and has no 'd2t' that "
            "says which"
        )
        yield Finding("error", "draft-mapping", message, MENDED)
    elif errors_in(found):
        return
    missing = [name for name in INDICES if name not in head.tensors]
    if trains and len(missing) == 1:
        message = f"the draft lacks {missing[0]!r}: trainers read 'd2t' and 't2d', or neither"
        yield Finding("error", "draft-mapping", message, MENDED)
    if "d2t" not in missing:
        yield from check_token_map(values, profile.vocab_size, trains=trains)


def _check_lengths(head: EagleHead, own: int, profile: ModelProfile) -> Iterator[Finding]:
    """Compare the headers of a map with the numbers of tokens that it maps."""
    lengths = {"d2t": own, "t2d": profile.vocab_size}
    for name, dtypes in INDICES.items():
        tensor = head.tensors.get(name)
        if tensor is None:
            continue
        if tensor.shape != (lengths[name],):
            message = (
                f"{name!r} maps {list(tensor.shape)[:4]} tokens; the draft proposes from {own} "
                f"of the model's {profile.vocab_size}"
            )
            yield Finding("error", "draft-mapping", message, TRAINED_FOR)
        elif tensor.dtype not in dtypes:
            message = (
                f"{name!r} of the draft is {tensor.dtype}; a map is one of {', '.join(dtypes)}"
            )
            yield Finding("error", "draft-mapping", message, MENDED)


def _check_aux_layers(head: EagleHead, profile: ModelProfile) -> Iterator[Finding]:
    """Check which of the model's layers feed the head: engines index with these numbers."""
    layers = profile.layers
    ids = head.aux_layers
    if not ids and layers:
        ids = (2, layers // 2, layers - 3)  # what vLLM and SGLang take
    outside = [one for one in ids if not 0 <= one <= layers]
    if outside and head.aux_layers:
        message = f"the draft reads layer {outside[0]} of the model, which has {layers}"
        yield Finding("error", "draft-aux-layers", message, TRAINED_FOR)
    elif outside or len(set(ids)) < len(ids):
        message = (
            f"the draft would read the model's layers {list(ids)}: "
            f"{AUX_STATES} different ones of {layers} are needed"
        )
        hint = "state `eagle_aux_hidden_state_layer_ids` in the draft's config.json"
        yield Finding("error", "draft-aux-layers", message, hint)
    elif list(ids) != sorted(ids):
        message = (
            f"the draft names the model's layers as {list(ids)}; "
            "engines give them in the model's order"
        )
        hint = "check that the head was trained with them in ascending order"
        yield Finding("warning", "draft-aux-layers", message, hint)
