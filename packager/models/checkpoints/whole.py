"""Check that a quantized checkpoint has everything its source had, from headers alone.

The worker that quantizes checks its own work; this is the other side, which believes no worker
and no entry of a cache.  Each tensor of the source must be there under its name, with its shape
and type, or quantized in place, or replaced by the packed words and scales of the same module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packager.core.model import TensorInfo

SHOWN = 5  # names that a message lists
WEIGHT = ".weight"
BYTE_WIDE = frozenset(("F8_E4M3", "F8_E5M2", "I8", "U8"))
WORD_BITS = {"I32": 32, "U32": 32, "U8": 8, "I8": 8}
WEIGHT_BITS = (1, 2, 3, 4, 5, 6, 7, 8)
# What replaces `MODULE.weight`; the first is what its shape is compared by.
PACKED = {
    "compressed-tensors": ("weight_packed", "weight_scale"),
    "awq": ("qweight", "qzeros", "scales"),
    "gptq": ("qweight", "qzeros", "scales"),
}
HEADS = ("lm_head.weight", "embed_out.weight", "output.weight")
EMBEDDINGS = ("embed_tokens.weight", "embed_in.weight", "wte.weight", "tok_embeddings.weight")
EXPERTS = ".experts"
ENDS = ("weight", "weight_packed", "qweight")
FUSED = {  # last part of a tensor of all experts → the parts of single experts
    "gate_up_proj": ("gate_proj", "up_proj"),
    "up_proj": ("up_proj",),
    "down_proj": ("down_proj",),
    "input_linear": ("gate_proj", "up_proj"),
    "output_linear": ("down_proj",),
}


@dataclass(frozen=True, slots=True)
class Lost:
    """A tensor of the source that the result has not, or has otherwise."""

    name: str
    how: str


@dataclass(frozen=True, slots=True)
class _Format:
    """Format of quantized weights, as config.json states it."""

    method: str
    bits: tuple[int, ...]  # of a weight, in any group


def lost_tensors(
    source: Iterable[TensorInfo], result: Iterable[TensorInfo], config: Mapping[str, Any]
) -> tuple[Lost, ...]:
    """Compare headers; `config` is the result's config.json. Return nothing if nothing is lost."""
    made = {tensor.name: tensor for tensor in result}
    stated = config.get("quantization_config")
    form = _read_format(stated if isinstance(stated, Mapping) else {})
    modules = {name.rpartition(".")[0] for name in made}
    found = []
    for tensor in source:
        how = _difference(tensor, made, modules, form)
        if how and not _is_tied(tensor, made, config):
            found.append(Lost(tensor.name, how))
    return tuple(found)


def describe_lost(lost: tuple[Lost, ...], count: int) -> str:
    """Write the first names, what is wrong with them, and how many of `count` there are."""
    shown = "; ".join(f"{one.name} {one.how}" for one in lost[:SHOWN])
    more = "; and others" if len(lost) > SHOWN else ""
    return f"{len(lost)} of the source's {count} tensors are lost or changed: {shown}{more}"


def _read_format(stated: Mapping[str, Any]) -> _Format:
    """Read the method and the widths; without a width, words of any width will do."""
    method = stated.get("quant_method")
    groups = stated.get("config_groups")
    each = groups.values() if isinstance(groups, Mapping) else ()
    weights = (group.get("weights") for group in each if isinstance(group, Mapping))
    widths = [one.get("num_bits") for one in weights if isinstance(one, Mapping)]
    known = {bits for bits in (*widths, stated.get("bits")) if type(bits) is int and 0 < bits <= 8}
    return _Format(method if isinstance(method, str) else "", tuple(sorted(known)) or WEIGHT_BITS)


def _difference(
    tensor: TensorInfo, made: Mapping[str, TensorInfo], modules: set[str], form: _Format
) -> str:
    """Return the fault of a source's tensor in the result; "" if none."""
    module = tensor.name.removesuffix(WEIGHT)
    same = made.get(tensor.name)
    if same is None:
        return _replacement_fault(tensor, module, made, modules, form)
    if same.shape != tensor.shape:
        return f"has shape {list(same.shape)}, not {list(tensor.shape)}"
    if same.dtype == tensor.dtype:
        return ""
    if same.dtype in BYTE_WIDE and f"{module}.weight_scale" in made:
        return ""
    return f"is {same.dtype}, not {tensor.dtype}, and has no scale"


def _replacement_fault(
    tensor: TensorInfo,
    module: str,
    made: Mapping[str, TensorInfo],
    modules: set[str],
    form: _Format,
) -> str:
    if form.method not in PACKED:  # of another tool: names are all that can be compared
        return "" if module in modules else "is missing"
    if len(tensor.shape) >= 2 and (parts := tuple(_expert_parts(tensor, made))):
        return _experts_fault(tensor, parts, made, form)
    if tensor.name == module or module not in modules:
        return "is missing"
    return _packed_fault(module, tensor.shape, made, form)


def _packed_fault(
    module: str, shape: tuple[int, ...], made: Mapping[str, TensorInfo], form: _Format
) -> str:
    """Compare packed words with the weight that they stand for."""
    parts = PACKED[form.method]
    missing = [part for part in parts if f"{module}.{part}" not in made]
    if "qzeros" in missing and form.method == "gptq":  # symmetric ones may go without
        missing.remove("qzeros")
    if missing:
        return f"is missing, and so is {missing[0]}"
    packed = made[f"{module}.{parts[0]}"]
    if not _holds(packed, shape, form):
        words = f"{packed.dtype} {list(packed.shape)}"
        return f"of shape {list(shape)} is replaced by {words}"
    return ""


def _holds(packed: TensorInfo, shape: tuple[int, ...], form: _Format) -> bool:
    """Whether words of this type and shape hold a weight of `shape` at one of the widths."""
    word = WORD_BITS.get(packed.dtype)
    if word is None or len(shape) != 2 or len(packed.shape) != 2:
        return False
    outputs, inputs = shape
    rows, words = packed.shape
    if form.method == "awq":
        return rows == inputs and any(words * word == outputs * bits for bits in form.bits)
    if form.method == "gptq":
        return words == outputs and any(rows * word == inputs * bits for bits in form.bits)
    return rows == outputs and any(words == -(-inputs * bits // word) for bits in form.bits)


def _expert_parts(tensor: TensorInfo, made: Mapping[str, TensorInfo]) -> Iterator[str]:
    """List the tensors that stand for a tensor of all experts: one of each, and of each part."""
    path, _, last = tensor.name.removesuffix(WEIGHT).rpartition(".")
    kind = "bias" if last.endswith("_bias") else "weight"
    parts = FUSED.get(last.removesuffix("_bias"), ())
    container = path if path.endswith(EXPERTS) else f"{path}{EXPERTS}"
    if not any(f"{container}.0.{part}.{end}" in made for part in parts for end in ENDS):
        return
    for expert in range(tensor.shape[0]):
        for part in parts:
            yield f"{container}.{expert}.{part}.{kind}"


def _experts_fault(
    tensor: TensorInfo, parts: tuple[str, ...], made: Mapping[str, TensorInfo], form: _Format
) -> str:
    """Compare the experts one by one with the tensor that held them all."""
    each = math.prod(tensor.shape) // len(parts)
    for name in parts:
        whole = made.get(name)
        if whole is not None:
            if math.prod(whole.shape) != each:
                return f"is replaced by {name} of shape {list(whole.shape)}"
            continue
        module = name.removesuffix(WEIGHT)
        sides = _sides(tensor, len(parts) // tensor.shape[0])
        faults = [_packed_fault(module, shape, made, form) for shape in sides]
        if module == name or all(faults):
            return f"is replaced by experts, of which {name} is missing or of another shape"
    return ""


def _sides(tensor: TensorInfo, parts: int) -> tuple[tuple[int, int], ...]:
    """Return the shapes that one part may have: inputs may stand before or behind outputs."""
    if len(tensor.shape) != 3:
        return ()
    _, first, second = tensor.shape
    return ((first // parts, second), (second // parts, first))


def _is_tied(tensor: TensorInfo, made: Mapping[str, TensorInfo], config: Mapping[str, Any]) -> bool:
    """Whether a head may be left out: config.json says that it is the embedding, which is there."""
    text = config.get("text_config")
    nested = text.get("tie_word_embeddings") if isinstance(text, Mapping) else None
    if config.get("tie_word_embeddings", nested) is not True or tensor.name in made:
        return False
    if not tensor.name.endswith(HEADS):
        return False
    return any(
        one.shape == tensor.shape and name.endswith(EMBEDDINGS) for name, one in made.items()
    )
