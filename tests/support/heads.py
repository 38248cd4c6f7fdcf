"""Draft heads as config.json and headers alone, in every format that is published."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from packager.core.model import HeadValues, ModelFiles, ModelRef
from tests.support.doubles.models import token_maps
from tests.support.headers import tensor
from tests.support.layouts import Headers, read_layout, write_out


def eagle3(target: Mapping[str, Any], *, draft_vocab: int = 32000, **changed: Any) -> ModelFiles:
    """An EAGLE-3 head of a model as its authors publish it, with a vocabulary of its own."""
    stated = _numbers(target) | _stated("eagle3") | {"draft_vocab_size": draft_vocab}
    return files(stated | changed, _eagle3(target, "eagle3", draft_vocab))


def eagle3_of_speculators(
    target: Mapping[str, Any], *, draft_vocab: int = 32000, **changed: Any
) -> ModelFiles:
    """The same head as the speculators library saves it."""
    kind = "eagle3 of speculators"
    config = _of_speculators(kind, target, draft_vocab)
    return files(config | changed, _eagle3(target, kind, draft_vocab))


def eagle(target: Mapping[str, Any], **changed: Any) -> ModelFiles:
    """An EAGLE head as its authors publish it: it uses the model's vocabulary."""
    return files(_numbers(target) | _stated("eagle") | changed, _of(target, "eagle"))


def peagle(target: Mapping[str, Any], *, layers: int = 4, **changed: Any) -> ModelFiles:
    """A P-EAGLE head as its authors publish it: EAGLE-3, and what stands for unknown states."""
    whole = eagle3(target, num_hidden_layers=layers, ptd_token_id=7, **changed)
    return files(dict(whole.config), _parallel(target, layers, "eagle3"))


def peagle_of_speculators(
    target: Mapping[str, Any], *, layers: int = 4, **changed: Any
) -> ModelFiles:
    """The same head as the speculators library saves it."""
    config = _of_speculators("peagle of speculators", target) | changed
    config["transformer_layer_config"]["num_hidden_layers"] = layers
    return files(config, _parallel(target, layers, "eagle3 of speculators"))


def dflash(target: Mapping[str, Any], **changed: Any) -> ModelFiles:
    """A DFlash head as its authors publish it: embeddings and scores are the model's.

    It counts the layers before those that vLLM counts, of 32.
    """
    return files(_numbers(target) | _stated("dflash") | changed, _of(target, "dflash"))


def dflash_of_speculators(
    target: Mapping[str, Any], *, draft_vocab: int = 32000, **changed: Any
) -> ModelFiles:
    """The same head as the speculators library saves it, with a vocabulary of its own."""
    config = _of_speculators("dflash of speculators", target, draft_vocab) | changed
    parts = ("dflash", "embeddings and scores", "a vocabulary of its own")
    return files(config, _of(target, *parts, draft_vocab=draft_vocab))


def assistant(target: Mapping[str, Any], *, layers: int = 4, **changed: Any) -> ModelFiles:
    """An assistant of Gemma 4: it has no keys and values of its own."""
    config = _stated("assistant") | {"backbone_hidden_size": target["hidden_size"]}
    config["text_config"] |= {"num_hidden_layers": layers, "vocab_size": target["vocab_size"]}
    shapes = _of(target, "assistant") | _of(target, "a layer of an assistant", layers=range(layers))
    return files(config | changed, shapes)


def medusa_of_vllm(
    hidden: int, vocabulary: int, *, heads: int = 3, layers: int = 1, **changed: Any
) -> ModelFiles:
    """Medusa heads of version 1 in vLLM's names, without biases."""
    rows: dict[str, list[Any]] = {}
    for head in range(heads):
        rows[f"blocks.{head}.layers.{{0-{layers - 1}}}.weight"] = ["BF16", hidden, hidden]
        rows[f"lm_heads.{head}.weight"] = ["BF16", vocabulary, hidden]
    config = {"model_type": "medusa", "num_heads": heads, "num_hidden_layers": layers, **changed}
    return files(config, write_out(rows))


def values_of(head: ModelFiles, **changed: Any) -> HeadValues:
    """What the map of a head holds, as `write_safetensors` writes it."""
    maps = token_maps({one.name: (one.dtype, one.shape) for one in head.tensors})
    return HeadValues(**{name: tuple(values) for name, values in maps.items()} | changed)


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
    sizes = ("hidden_size", "intermediate_size", "head_dim", "vocab_size")
    names = (*sizes, "num_attention_heads", "num_key_value_heads", "max_position_embeddings")
    return {name: target[name] for name in names if name in target} | {"num_hidden_layers": 1}


def _stated(kind: str) -> dict[str, Any]:
    """Return what the configuration of a kind says, whatever the model."""
    return copy.deepcopy(dict(read_layout("head_configs")[kind]))


def _of_speculators(
    kind: str, target: Mapping[str, Any], draft_vocab: int = 32000
) -> dict[str, Any]:
    """Return a configuration that names the model, and has its numbers for the head's layers."""
    stated = _stated(kind) | {"draft_vocab_size": draft_vocab}
    layer = _numbers(target) | stated["transformer_layer_config"]
    verifier = {"name_or_path": "/home/trainer/target", "architectures": target["architectures"]}
    named = stated["speculators_config"] | {"verifier": verifier}
    return stated | {"transformer_layer_config": layer, "speculators_config": named}


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
