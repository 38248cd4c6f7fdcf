"""Draft heads as config.json and headers alone, in every format that is published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.core.model import ModelFiles, ModelRef
from tests.support.headers import tensor
from tests.support.layouts import Headers, read_layout, write_out


def eagle3(target: Mapping[str, Any], *, draft_vocab: int = 32000, **changed: Any) -> ModelFiles:
    """An EAGLE-3 head of a model as its authors publish it, with a vocabulary of its own."""
    config = _numbers(target) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": draft_vocab,
        **changed,
    }
    return files(config, _eagle3(target, "eagle3", draft_vocab))


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
    return files(config, _eagle3(target, "eagle3 of speculators", draft_vocab))


def eagle(target: Mapping[str, Any], **changed: Any) -> ModelFiles:
    """An EAGLE head as its authors publish it: it uses the model's vocabulary."""
    named = {"architectures": ["LlamaForCausalLMEagle"], "model_type": "llama"}
    return files(_numbers(target) | named | changed, _of(target, "eagle"))


def peagle(target: Mapping[str, Any], *, layers: int = 4, **changed: Any) -> ModelFiles:
    """A P-EAGLE head as its authors publish it: EAGLE-3, and what stands for unknown states."""
    whole = eagle3(target, num_hidden_layers=layers, ptd_token_id=7, **changed)
    return files(dict(whole.config), _parallel(target, layers, "eagle3"))


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
    return files(config, _parallel(target, layers, "eagle3 of speculators"))


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
    return files(config, _of(target, "dflash"))


def dflash_of_speculators(
    target: Mapping[str, Any], *, draft_vocab: int = 32000, **changed: Any
) -> ModelFiles:
    """The same head as the speculators library saves it, with a vocabulary of its own."""
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
    parts = ("dflash", "embeddings and scores", "a vocabulary of its own")
    return files(config, _of(target, *parts, draft_vocab=draft_vocab))


def assistant(target: Mapping[str, Any], *, layers: int = 4, **changed: Any) -> ModelFiles:
    """An assistant of Gemma 4: it has no keys and values of its own."""
    config = {
        "architectures": ["Gemma4AssistantForCausalLM"],
        "model_type": "gemma4_assistant",
        "backbone_hidden_size": target["hidden_size"],
        "text_config": {
            "model_type": "gemma4_text",
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "vocab_size": target["vocab_size"],
        },
        **changed,
    }
    shapes = _of(target, "assistant")
    return files(config, shapes | _of(target, "a layer of an assistant", layers=range(layers)))


def medusa_of_vllm(
    hidden: int, vocabulary: int, *, heads: int = 3, layers: int = 1, **changed: Any
) -> ModelFiles:
    """Medusa heads of version 1 in vLLM's names, without biases."""
    shapes: Headers = {}
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


def files(config: Mapping[str, Any], shapes: Headers) -> ModelFiles:
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


def _eagle3(target: Mapping[str, Any], kind: str, draft_vocab: int) -> Headers:
    """Every tensor of an EAGLE-3 head, whose first layer reads two vectors at once."""
    own = () if draft_vocab == target["vocab_size"] else ("a vocabulary of its own",)
    return _of(target, kind, *own, draft_vocab=draft_vocab)


def _parallel(target: Mapping[str, Any], layers: int, kind: str) -> Headers:
    shapes = _eagle3(target, kind, 32000)
    shapes |= _of(target, "another layer", layers=range(1, layers))
    return shapes | _of(target, "a parallel head")


def _of(target: Mapping[str, Any], *parts: str, layers: range = range(1), **more: int) -> Headers:
    """Write out parts of `data/models/heads.json` for a model, once for each layer."""
    heads, hidden = target["num_attention_heads"], target["hidden_size"]
    head_dim = target.get("head_dim", hidden // heads)
    sizes = {
        "hidden": hidden,
        "inner": target.get("intermediate_size", 0),
        "vocab": target["vocab_size"],
        "head_dim": head_dim,
        "q": heads * head_dim,
        "kv": target["num_key_value_heads"] * head_dim,
    }
    rows = {
        name.replace("LAYER", str(layer)): row
        for part in parts
        for layer in layers
        for name, row in read_layout("heads")[part].items()
    }
    return write_out(rows, **sizes, **more)
