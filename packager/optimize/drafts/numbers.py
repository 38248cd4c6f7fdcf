"""Numbers of a draft's config.json and headers, and findings where they do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packager.core.findings import Finding
from packager.core.model import TensorInfo
from packager.models.architectures.profile import text_config

FLOATS = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
OWN = "use the config.json that was published with the head"
TRAINED_FOR = "name the head that was trained for this model"
MENDED = "get the head again, or export it again: some of its tensors are missing"


def number(config: Mapping[str, Any], key: str) -> int:
    """Return a positive count of a config.json; 0 when it states none."""
    value = config.get(key)
    return value if type(value) is int and 0 < value < 2**31 else 0


def counts(value: object) -> tuple[int, ...]:
    """Return a list of layer numbers; () when `value` is not one."""
    if isinstance(value, list | tuple) and all(type(one) is int for one in value):
        return tuple(value)
    return ()


def mapping(value: object) -> Mapping[str, Any]:
    """Return a nested part of a config.json; empty when `value` is not one."""
    return value if isinstance(value, Mapping) else {}


def head_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a head's config.json, with the speculators library's nested fields merged in."""
    return {**config, **mapping(config.get("transformer_layer_config"))}


def rope_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rotary embeddings of a config.json, as transformers 5 spells them.

    Empty where it states none, or states them per kind of layer.
    """
    numbers = text_config(config)
    found = dict(mapping(numbers.get("rope_parameters")) or mapping(numbers.get("rope_scaling")))
    if any(isinstance(value, Mapping) for value in found.values()):
        return {}
    if numbers.get("rope_theta") is not None:
        found.setdefault("rope_theta", numbers["rope_theta"])
    if found:  # `type` is how transformers spelled it before 4.43
        found.setdefault("rope_type", found.get("type", "default"))
    return found


def other_vocabulary(own: int, models: int) -> Finding:
    """Refuse a draft of other tokens than the model's."""
    hint = "a draft must share the model's tokenizer: name another, or `--draft ngram`"
    message = f"the draft's vocabulary has {own} tokens, the model's {models}"
    return Finding("error", "draft-vocabulary", message, hint)


def other_shape(tensor: TensorInfo, expected: tuple[int, ...], hint: str = TRAINED_FOR) -> Finding:
    """Refuse a head that has a tensor of another model's size."""
    message = (
        f"{tensor.name[:60]} of the draft has the shape {list(tensor.shape)[:4]}; "
        f"the model needs {list(expected)}"
    )
    return Finding("error", "draft-shape", message, hint)


def check_floats(tensors: Iterable[TensorInfo], indices: Iterable[str] = ()) -> Iterator[Finding]:
    """Refuse head weights that are not 16- or 32-bit floats: engines convert only those."""
    named = (one for one in tensors if one.dtype not in FLOATS and one.name not in indices)
    odd = next(named, None)
    if odd is not None:
        message = f"{odd.name[:60]} of the draft is {odd.dtype}; heads are read in 16 or 32 bits"
        hint = "use the head before it was quantized: it is small"
        yield Finding("error", "draft-dtype", message, hint)


MASK_TOKENS = ("mask_token_id", "pard_token", "ptd_token_id")  # as heads name one token


def check_mask_token(config: Mapping[str, Any], vocab_size: int) -> Iterator[Finding]:
    """Refuse a head for parallel proposals whose config lacks the mask token.

    `config` is where the head states it: of DFlash also in a part of its own.
    """
    key = next((key for key in MASK_TOKENS if config.get(key) is not None), "")
    if not key:
        message = f"the draft's config.json states no {MASK_TOKENS[0]}, which it proposes with"
        yield Finding("error", "draft-config", message, OWN)
        return
    stated = config[key]
    if type(stated) is not int or not 0 <= stated < vocab_size:
        message = (
            f"the draft's {key} is {repr(stated)[:40]}, not one of the model's {vocab_size} tokens"
        )
        yield Finding("error", "draft-config", message, OWN)


def main_dtype(tensors: Iterable[TensorInfo]) -> str:
    """Return the element type of most bytes, as plans spell it; "" for an unsupported one."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.size
    most = max(sizes, key=lambda name: sizes[name], default="")
    return FLOATS.get(most, "")


def check_type(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Find that the head's config.json names no type, which engines choose its class by."""
    if not isinstance(config.get("model_type"), str) and "speculators_model_type" not in config:
        message = "the draft's config.json names no model_type, by which engines choose its class"
        yield Finding("error", "model-type-missing", message, OWN)
