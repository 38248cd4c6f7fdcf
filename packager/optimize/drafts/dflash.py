"""DFlash heads: a few decoder layers that propose a whole block of tokens in one pass.

Like EAGLE-3 they read several of the model's hidden states, joined in `fc`; unlike it their
layers are a plain decoder's and see each other's places, and all of the block but its first
token is one mask token.  Two formats are published: the authors' own, whose config.json is like
a small Qwen3's with a `dflash_config`, and that of the speculators library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from packager.core.findings import Finding
from packager.core.model import HeadValues, ModelFiles, ModelProfile
from packager.core.techniques import Draft
from packager.optimize.drafts.eagle import (
    INDICES,
    MASK,
    EagleHead,
    check_kind,
    check_needed,
    check_vocabulary,
    eagle_draft,
    is_mapped,
    read_eagle,
)
from packager.optimize.drafts.head_config import check_head_config
from packager.optimize.drafts.numbers import (
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
from packager.optimize.drafts.trained_for import check_trained_for

SLIDING = "sliding_attention"
MASK_FILE = "mask_embedding.pt"  # vLLM 0.32 reads it beside the weights of some heads
LAYER_TENSORS = (
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
)


def read_dflash(files: ModelFiles) -> EagleHead:
    """Read a head of either format; its layers are numbered as vLLM counts them."""
    config = files.config
    head = read_eagle(files)
    is_library = head.layout == "speculators"
    return replace(
        head,
        layout="speculators" if is_library else "dflash",
        aux_layers=aux_layers(config),
        stated_tokens=head.stated_tokens or block_tokens(config),
        draft_vocab_size=head.draft_vocab_size or head.vocab_size,
    )


def aux_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the model's layers that feed the head; the authors count from the layer before."""
    stated = counts(config.get("aux_hidden_state_layer_ids"))
    own = counts(mapping(config.get("dflash_config")).get("target_layer_ids"))
    return stated or tuple(layer + 1 for layer in own or counts(config.get("target_layer_ids")))


def block_tokens(config: Mapping[str, Any]) -> int:
    """Return how many tokens a block proposes; 0 when config.json does not state it.

    The first position is the model's own token, unless the head samples there, too.
    """
    own = mapping(config.get("dflash_config"))
    block = number(config, "block_size") or number(own, "block_size")
    samples_first = config.get("sample_from_anchor", own.get("sample_from_anchor")) is True
    return max(0, block if samples_first else block - 1)


def dflash_draft(draft: Draft, head: EagleHead) -> Draft:
    """Return the draft with its numbers."""
    tokens = draft.speculative_tokens or min(head.stated_tokens, MOST_TOKENS)
    return eagle_draft(replace(draft, speculative_tokens=tokens), head)


def check_dflash(
    head: EagleHead,
    files: ModelFiles,
    model: ModelFiles,
    profile: ModelProfile,
    tokens: int,
    values: HeadValues | None = None,
) -> Iterator[Finding]:
    """Refuse a head that does not fit the model, or is not whole; `tokens` 0: a whole block."""
    if not head.hidden_size or not head.heads:
        message = "the draft's config.json does not state hidden_size and num_attention_heads"
        yield Finding("error", "draft-config", message, OWN)
        return
    found = head.stated_kind if head.stated_kind == "dflash" else head.shown_kind
    yield from check_kind("dflash", found or head.stated_kind)
    yield from check_type(files.config)
    yield from check_trained_for(files.config, model, profile)
    yield from check_head_config(files, model, profile)
    if head.vocab_size and head.vocab_size != profile.vocab_size:
        yield other_vocabulary(head.vocab_size, profile.vocab_size)
    yield from check_floats(head.tensors.values(), indices=INDICES)
    yield from _check_shapes(head, profile)
    yield from _check_whole(head, files, profile)
    yield from check_vocabulary(head, profile, values)
    yield from _check_layers(head, profile)
    own = mapping(files.config.get("dflash_config"))
    yield from check_mask_token({**files.config, **own}, profile.vocab_size)
    yield from _check_block(block_tokens(files.config), tokens)
    yield from _check_windows(files.config)


def _check_shapes(head: EagleHead, profile: ModelProfile) -> Iterator[Finding]:
    hidden, attended, kept = (
        head.hidden_size,
        head.heads * head.head_dim,
        head.kv_heads * head.head_dim,
    )
    states = len(head.aux_layers) or head.layers  # as many as layers, unless stated
    expected = {
        "fc.weight": (hidden, states * profile.hidden_size),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "embed_tokens.weight": (profile.vocab_size, hidden),
        "layers.0.self_attn.q_proj.weight": (attended, hidden),
        "layers.0.self_attn.k_proj.weight": (kept, hidden),
        "layers.0.self_attn.v_proj.weight": (kept, hidden),
        "layers.0.self_attn.o_proj.weight": (hidden, attended),
    }
    if head.intermediate_size:
        expected["layers.0.mlp.down_proj.weight"] = (hidden, head.intermediate_size)
    for name, shape in expected.items():
        tensor = head.tensors.get(name)
        if tensor is not None and tensor.shape != shape:
            yield other_shape(tensor, shape)
            return


def _check_whole(head: EagleHead, files: ModelFiles, profile: ModelProfile) -> Iterator[Finding]:
    needed = ["fc.weight", "hidden_norm.weight", "norm.weight"]
    needed += [f"layers.{layer}.{name}" for layer in range(head.layers) for name in LAYER_TENSORS]
    # Embeddings and scores that it lacks are the model's, which needs equal hidden sizes.
    borrows = head.hidden_size == profile.hidden_size
    needed += [] if borrows else ["embed_tokens.weight"]
    needed += [] if borrows and not is_mapped(head) else ["lm_head.weight"]
    yield from check_needed(needed, head.tensors)
    if any(path.endswith(MASK_FILE) for path in files.left_out):
        message = (
            f"the embedding of the draft's mask token is a pickle, {MASK_FILE!r}, which is never "
            "packaged: the head would read another one"
        )
        hint = "use a head whose mask token is in its or the model's embeddings"
        yield Finding("error", "draft-truncated", message, hint)
    if MASK in head.tensors:
        message = f"the draft has {MASK!r}, which a DFlash head does not read: vLLM refuses it"
        yield Finding("error", "draft-kind", message, "write `--draft peagle:REF`")


def _check_layers(head: EagleHead, profile: ModelProfile) -> Iterator[Finding]:
    ids, layers = head.aux_layers, profile.layers
    outside = [layer for layer in ids if not 0 <= layer <= layers]
    if outside:
        message = f"the draft reads layer {outside[0]} of the model, which has {layers}"
        yield Finding("error", "draft-aux-layers", message, TRAINED_FOR)
    elif not ids:
        message = "the draft's config.json does not say which of the model's layers it reads"
        hint = "state `dflash_config.target_layer_ids`, or `aux_hidden_state_layer_ids`"
        yield Finding("error", "draft-aux-layers", message, hint)
    elif len(set(ids)) != len(ids):
        message = f"the draft reads layers {list(ids)[:8]} of the model, some of them twice"
        yield Finding("error", "draft-aux-layers", message, TRAINED_FOR)


def _check_block(block: int, tokens: int) -> Iterator[Finding]:
    if not block and not tokens:
        message = "the draft's config.json does not state block_size, how many tokens it proposes"
        hint = "say how many with --speculative-tokens, or use the config.json published with it"
        yield Finding("error", "draft-config", message, hint)
    elif block and tokens > block:
        message = f"{tokens} speculative tokens are more than the {block} that the head's block has"
        hint = f"use --speculative-tokens {block}, or fewer: it was trained for no more"
        yield Finding("error", "draft-block", message, hint)


def _check_windows(config: Mapping[str, Any]) -> Iterator[Finding]:
    nested = mapping(config.get("transformer_layer_config")) or config
    types = nested.get("layer_types")
    if isinstance(types, list) and SLIDING in types and any(one != SLIDING for one in types):
        message = (
            "the draft has layers with and without a sliding window: vLLM's first model runner "
            "refuses such a head"
        )
        hint = "try the image before you rely on it; VLLM_USE_V2_MODEL_RUNNER=1 may be needed"
        yield Finding("warning", "draft-windows", message, hint)
