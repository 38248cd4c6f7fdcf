"""Draft heads as config.json and headers alone, in every format that is published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.core.model import ModelFiles, ModelRef
from tests.support.headers import tensor

Shapes = dict[str, tuple[str, tuple[int, ...]]]


def eagle3(target: Mapping[str, Any], *, draft_vocab: int = 32000, **changed: Any) -> ModelFiles:
    """An EAGLE-3 head of a model as its authors publish it, with a vocabulary of its own."""
    config = _numbers(target) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": draft_vocab,
        **changed,
    }
    return files(config, eagle3_shapes(target, draft_vocab=draft_vocab, layer="midlayer"))


def eagle3_of_speculators(
    target: Mapping[str, Any], *, draft_vocab: int = 32000, **changed: Any
) -> ModelFiles:
    """The same head as the speculators library saves it."""
    config = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": draft_vocab,
        "transformer_layer_config": _numbers(target) | {"model_type": "llama"},
        "speculators_config": {
            "algorithm": "eagle3",
            "verifier": {
                "name_or_path": "/home/trainer/target",
                "architectures": target["architectures"],
            },
        },
        **changed,
    }
    return files(config, eagle3_shapes(target, draft_vocab=draft_vocab, layer="layers.0"))


def eagle3_shapes(target: Mapping[str, Any], *, draft_vocab: int, layer: str) -> Shapes:
    """Every tensor of an EAGLE-3 head, whose first layer reads two vectors at once."""
    hidden = target["hidden_size"]
    shapes = {
        "embed_tokens.weight": ("BF16", (target["vocab_size"], hidden)),
        "fc.weight": ("BF16", (hidden, 3 * hidden)),
        "norm.weight": ("BF16", (hidden,)),
        "lm_head.weight": ("BF16", (draft_vocab, hidden)),
        f"{layer}.hidden_norm.weight": ("BF16", (hidden,)),
        **_layer(target, layer, reads=2 * hidden),
    }
    if draft_vocab != target["vocab_size"]:
        shapes["d2t"] = ("I64", (draft_vocab,))
        shapes["t2d"] = ("BOOL", (target["vocab_size"],))
    return shapes


def eagle(target: Mapping[str, Any], **changed: Any) -> ModelFiles:
    """An EAGLE head as its authors publish it: it uses the model's vocabulary."""
    hidden = target["hidden_size"]
    shapes = {
        "embed_tokens.weight": ("BF16", (target["vocab_size"], hidden)),
        "fc.weight": ("BF16", (hidden, 2 * hidden)),
        **_layer(target, "layers.0", reads=hidden),
    }
    named = {"architectures": ["LlamaForCausalLMEagle"], "model_type": "llama"}
    return files(_numbers(target) | named | changed, shapes)


def peagle(target: Mapping[str, Any], *, layers: int = 4, **changed: Any) -> ModelFiles:
    """A P-EAGLE head as its authors publish it: EAGLE-3, and what stands for unknown states."""
    whole = eagle3(target, num_hidden_layers=layers, ptd_token_id=7, **changed)
    return files(dict(whole.config), _parallel(target, layers, "midlayer"))


def peagle_of_speculators(
    target: Mapping[str, Any], *, layers: int = 4, **changed: Any
) -> ModelFiles:
    """The same head as the speculators library saves it."""
    whole = eagle3_of_speculators(
        target,
        speculators_model_type="peagle",
        architectures=["PEagleDraftModel"],
        mask_token_id=7,
        **changed,
    )
    numbers = {**whole.config["transformer_layer_config"], "num_hidden_layers": layers}
    stated = {
        **whole.config["speculators_config"],
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 8}],
    }
    config = {**whole.config, "transformer_layer_config": numbers, "speculators_config": stated}
    return files(config, _parallel(target, layers, "layers.0"))


def _parallel(target: Mapping[str, Any], layers: int, first: str) -> Shapes:
    hidden = target["hidden_size"]
    shapes = eagle3_shapes(target, draft_vocab=32000, layer=first)
    for layer in range(1, layers):
        shapes |= _layer(target, f"layers.{layer}", reads=hidden)
    return shapes | {"mask_hidden": ("BF16", (1, 1, 3 * hidden))}


DFLASH_LAYERS = (1, 9, 17, 25, 29)  # of 32: the layers before those that vLLM counts


def dflash(target: Mapping[str, Any], **changed: Any) -> ModelFiles:
    """A DFlash head as its authors publish it: embeddings and scores are the model's."""
    own = {"target_layer_ids": list(DFLASH_LAYERS), "mask_token_id": 7}
    config = _numbers(target) | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 5,
        "block_size": 16,
        "dflash_config": own,
        **changed,
    }
    return files(config, dflash_shapes(target))


def dflash_of_speculators(
    target: Mapping[str, Any], *, draft_vocab: int = 32000, **changed: Any
) -> ModelFiles:
    """The same head as the speculators library saves it, with a vocabulary of its own."""
    hidden = target["hidden_size"]
    config = {
        "architectures": ["DFlashDraftModel"],
        "speculators_model_type": "dflash",
        "draft_vocab_size": draft_vocab,
        "block_size": 8,
        "mask_token_id": 7,
        "aux_hidden_state_layer_ids": [layer + 1 for layer in DFLASH_LAYERS],
        "transformer_layer_config": _numbers(target)
        | {"model_type": "qwen3", "num_hidden_layers": 5},
        "speculators_config": {
            "algorithm": "dflash",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 7}],
            "verifier": {
                "name_or_path": "/home/trainer/target",
                "architectures": target["architectures"],
            },
        },
        **changed,
    }
    shapes = dflash_shapes(target) | {
        "embed_tokens.weight": ("BF16", (target["vocab_size"], hidden)),
        "lm_head.weight": ("BF16", (draft_vocab, hidden)),
        "d2t": ("I64", (draft_vocab,)),
        "t2d": ("BOOL", (target["vocab_size"],)),
    }
    return files(config, shapes)


def dflash_shapes(target: Mapping[str, Any], *, layers: int = 5) -> Shapes:
    """Every tensor of a DFlash head that borrows embeddings and scores."""
    hidden = target["hidden_size"]
    size = target.get("head_dim", hidden // target["num_attention_heads"])
    shapes: Shapes = {
        "fc.weight": ("BF16", (hidden, len(DFLASH_LAYERS) * hidden)),
        "hidden_norm.weight": ("BF16", (hidden,)),
        "norm.weight": ("BF16", (hidden,)),
    }
    for layer in range(layers):
        at = f"layers.{layer}"
        shapes |= _layer(target, at, reads=hidden)
        shapes[f"{at}.input_layernorm.weight"] = ("BF16", (hidden,))
        shapes |= {f"{at}.self_attn.{name}_norm.weight": ("BF16", (size,)) for name in "qk"}
    return shapes


def assistant(target: Mapping[str, Any], *, layers: int = 4, **changed: Any) -> ModelFiles:
    """An assistant of Gemma 4: it has no keys and values of its own."""
    hidden, backbone, inner = 256, target["hidden_size"], 1024
    config = {
        "architectures": ["Gemma4AssistantForCausalLM"],
        "model_type": "gemma4_assistant",
        "backbone_hidden_size": backbone,
        "text_config": {
            "model_type": "gemma4_text",
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "vocab_size": target["vocab_size"],
        },
        **changed,
    }
    shapes: Shapes = {
        "pre_projection.weight": ("BF16", (hidden, 2 * backbone)),
        "post_projection.weight": ("BF16", (backbone, hidden)),
        "model.embed_tokens.weight": ("BF16", (target["vocab_size"], hidden)),
        "masked_embedding.token_ordering": ("I64", (target["vocab_size"],)),
    }
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes[f"{at}.self_attn.q_proj.weight"] = ("BF16", (1024, hidden))
        shapes[f"{at}.self_attn.o_proj.weight"] = ("BF16", (hidden, 1024))
        shapes[f"{at}.mlp.down_proj.weight"] = ("BF16", (hidden, inner))
    return files(config, shapes)


def medusa_of_vllm(
    hidden: int, vocabulary: int, *, heads: int = 3, layers: int = 1, **changed: Any
) -> ModelFiles:
    """Medusa heads of version 1 in vLLM's names, without biases."""
    shapes: Shapes = {}
    for head in range(heads):
        for layer in range(layers):
            shapes[f"blocks.{head}.layers.{layer}.weight"] = ("BF16", (hidden, hidden))
        shapes[f"lm_heads.{head}.weight"] = ("BF16", (vocabulary, hidden))
    config = {"model_type": "medusa", "num_heads": heads, "num_hidden_layers": layers, **changed}
    return files(config, shapes)


def without(model: ModelFiles, *names: str) -> ModelFiles:
    """The same without some tensors, as a save that broke off leaves it."""
    return with_shapes(model, dict.fromkeys(names))


def with_shapes(
    model: ModelFiles, changed: Mapping[str, tuple[str, tuple[int, ...]] | None]
) -> ModelFiles:
    """The same with some tensors of other types and shapes, or without them."""
    shapes: dict[str, tuple[str, tuple[int, ...]] | None] = {
        one.name: (one.dtype, one.shape) for one in model.tensors
    }
    unknown = changed.keys() - shapes.keys()
    assert not unknown, unknown
    shapes |= changed
    return files(dict(model.config), {name: shape for name, shape in shapes.items() if shape})


def files(config: Mapping[str, Any], shapes: Shapes) -> ModelFiles:
    return ModelFiles(
        ref=ModelRef(source="hub", name="org/head", revision="c" * 40),
        files=(),
        config=dict(config),
        tensors=tuple(tensor(name, dtype, shape) for name, (dtype, shape) in shapes.items()),
    )


def _numbers(target: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
    )
    return {name: target[name] for name in names if name in target} | {"num_hidden_layers": 1}


def _layer(target: Mapping[str, Any], at: str, *, reads: int) -> Shapes:
    hidden, inner = target["hidden_size"], target["intermediate_size"]
    heads, kv_heads = target["num_attention_heads"], target["num_key_value_heads"]
    head_dim = target.get("head_dim", hidden // heads)
    matrices = {
        "self_attn.q_proj": (heads * head_dim, reads),
        "self_attn.k_proj": (kv_heads * head_dim, reads),
        "self_attn.v_proj": (kv_heads * head_dim, reads),
        "self_attn.o_proj": (hidden, heads * head_dim),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes: Shapes = {f"{at}.{name}.weight": ("BF16", shape) for name, shape in matrices.items()}
    for name in ("input_layernorm", "post_attention_layernorm"):
        shapes[f"{at}.{name}.weight"] = ("BF16", (hidden,))
    return shapes
