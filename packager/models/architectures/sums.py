"""Totals over a checkpoint's headers: parameters, experts, and bytes by location."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packager.core.model import TensorInfo
from packager.models.architectures.experts import Experts
from packager.models.architectures.quantized import Quantized, holds_no_weights, parameters_in
from packager.models.architectures.routers import LAYER, is_indexer

OTHER_PARTS = re.compile(
    r"(?:^|\.)(?:visual|vision|audio|multi_modal|mtp|image|vpm|apm|talker|code2wav|token2wav)",
    re.ASCII,
)
# Routers decide by small differences: every quantizer leaves them whole.
NOT_PACKED = (
    ".gate.weight",
    ".router.weight",
    ".router.layer.weight",
    "shared_expert_gate.weight",
    "norm.weight",
)
# Experts by themselves, or all in one: Granite's linears (not those of its `shared_mlp`).
EXPERTS = (".experts.", "moe.input_linear.", "moe.output_linear.")

_Layer = tuple[str, str, bool]  # what stands before its number, the number, whether it is served


@dataclass(slots=True)
class Sums:
    """Totals over a checkpoint's headers."""

    parameters: int | None = 0  # None: packed words hold an unknown number
    expert_parameters: int = 0
    linear_parameters: int = 0
    outside_bytes: int = 0
    tower_bytes: int = 0
    expert_bytes: int = 0
    unserved_bytes: int = 0
    layers: int = 0  # distinct ones


@dataclass(slots=True)
class _Alike:
    """Tensors that differ in the number of their layer alone."""

    first: TensorInfo
    layer: _Layer | None
    count: int = 0
    size: int = 0  # of all, in bytes


def add_up(
    tensors: Iterable[TensorInfo],
    head: frozenset[str],
    stated: int,
    quantization: Quantized,
    routers: frozenset[str] = frozenset(),
) -> Sums:
    """Sort every tensor in one pass: a checkpoint may have 100 000 of them.

    `head` names the tensors of an MTP head, which only drafting loads; layers beyond the
    `stated` ones are not quantized, nor are `routers`.
    """
    sums = Sums()
    parts: dict[str, _Layer | None] = {}  # by the beginning of names
    # Layers and experts repeat each other: equal tensors are checked once.
    kinds: dict[tuple[object, ...], _Alike] = {}
    at, prefix, layer = 0, "", None  # most tensors have those of the one before
    for tensor in tensors:
        name, dtype, shape, size, _ = tensor
        if name in head:
            sums.unserved_bytes += size
            continue
        if not prefix or not name.startswith(prefix):
            match = LAYER.search(name)
            at = match.end() if match else 0
            prefix = name[:at]  # "" outside of layers
            if match and prefix not in parts:
                parts[prefix] = _layer_of(match, stated)
            layer = parts.get(prefix)
        kind = (layer[0], layer[2], name[at:], dtype, shape) if layer else (name, dtype, shape)
        alike = kinds.get(kind)
        if alike is None:
            kinds[kind] = alike = _Alike(tensor, layer)
        alike.count += 1
        alike.size += size
    for alike in kinds.values():
        _add_kind(sums, alike, quantization, routers)
    sums.layers = len({layer[1] for layer in parts.values() if layer})
    return sums


def _add_kind(sums: Sums, alike: _Alike, quantization: Quantized, routers: frozenset[str]) -> None:
    tensor, layer, name = alike.first, alike.layer, alike.first.name
    in_experts = is_expert(tensor)
    if layer is None:
        sums.outside_bytes += alike.size
        if LAYER.search(name) or OTHER_PARTS.search(name):
            sums.tower_bytes += alike.size
    elif in_experts:
        sums.expert_bytes += alike.size
    each = parameters_in(tensor, quantization)
    if each is None or sums.parameters is None:
        sums.parameters = None
        return
    count = each * alike.count
    sums.parameters += count
    if layer is None:
        return
    if in_experts:
        sums.expert_parameters += count
    if name not in routers and is_packable(tensor, in_experts=in_experts):
        sums.linear_parameters += count


def _layer_of(match: re.Match[str], stated: int) -> _Layer | None:
    """Return the layer that a name is in; None where it is not of the language model."""
    if OTHER_PARTS.search(match.string, 0, match.end()):
        return None
    number = match[1]
    return match.string[: match.start(1)], number, len(number) < 10 and int(number) < stated


def is_expert(tensor: TensorInfo) -> bool:
    """Whether a tensor belongs to routed experts: by its name, or all of a layer in one."""
    if any(part in tensor.name for part in EXPERTS):
        return True
    return len(tensor.shape) == 3 and ".moe." in tensor.name  # Step 3.5


def is_packable(tensor: TensorInfo, *, in_experts: bool) -> bool:
    """Whether quantizers pack it: matrices of the layers, also those of all experts in one."""
    dimensions = len(tensor.shape)
    if dimensions == 3:
        return in_experts and not tensor.name.endswith(("bias", "_scales"))
    return (
        dimensions == 2 and tensor.name.endswith(".weight") and not is_kept_unquantized(tensor.name)
    )


def is_kept_unquantized(name: str) -> bool:
    """Whether a matrix of a layer stays in 16 bits."""
    return name.endswith(NOT_PACKED) or holds_no_weights(name) or is_indexer(name)


def active_parameters(parameters: int, in_experts: int, experts: Experts) -> int:
    """Return the parameters without the experts that a token does not use."""
    count, per_token = experts.count, experts.per_token
    idle = in_experts * (count - per_token) // count if 0 < per_token <= count else 0
    return max(0, parameters - idle)
