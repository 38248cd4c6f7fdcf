"""What of a model stays whole when the rest is quantized, by the names on an ignore list.

An entry that cannot be understood leaves nothing out here: the worker knows better, and a plan
that takes more for quantized than will be refuses what it could allow, and never the reverse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from packager.architectures.demands import stated_quantization
from packager.architectures.sums import LAYER, OTHER_PARTS, is_expert, is_packable
from packager.checkpoints.ignored import read_ignored
from packager.core.model import ModelFiles, ModelProfile, TensorInfo
from packager.core.techniques import Quantization
from packager.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Parts of a model that are not quantized though their kind is."""

    parameters: int = 0  # of matrices that quantizers would pack
    experts: bool = False  # no routed expert is quantized; False of a dense model


def with_left_out(
    chosen: Quantization | None,
    model: ModelFiles,
    profile: ModelProfile,
    ignore: tuple[str, ...] | None,
) -> Quantization | None:
    """Add what stays whole: by the request's ignore list, or by the checkpoint's own."""
    if chosen is None:
        return None
    if chosen.existing:
        stated = stated_quantization(model.config)
        whole = profile.experts > 0 and leaves_experts_whole(model, stated)
        return replace(chosen, experts_left_out=whole)
    left = find_left_out(model, ignore)
    return replace(chosen, parameters_left_out=left.parameters, experts_left_out=left.experts)


def find_left_out(model: ModelFiles, ignore: tuple[str, ...] | None) -> LeftOut:
    """Return what an ignore list of `--quantize-ignore` keeps whole, by the model's headers."""
    if not ignore:
        return LeftOut()
    ignored = read_ignored({"ignore": list(ignore)})
    left = [tensor for tensor in model.tensors if ignored.has(_module(tensor)) and _packs(tensor)]
    packed = (tensor for tensor in model.tensors if is_expert(tensor) and _packs(tensor))
    experts = {tensor.name for tensor in left if is_expert(tensor)}
    return LeftOut(
        parameters=sum(math.prod(tensor.shape) for tensor in left),
        experts=bool(experts) and all(tensor.name in experts for tensor in packed),
    )


def leaves_experts_whole(model: ModelFiles, stated: Mapping[str, Any]) -> bool:
    """Return whether quantization_config, `stated`, leaves out every routed expert there is."""
    ignored = read_ignored(stated)
    experts = (tensor for tensor in model.tensors if is_expert(tensor))  # 100,000 of a large model
    first = next(experts, None)
    return first is not None and all(ignored.has(_module(one)) for one in chain((first,), experts))


def _packs(tensor: TensorInfo) -> bool:
    """Whether quantizers pack a tensor: a matrix of the language model's layers."""
    if LAYER.search(tensor.name) is None or OTHER_PARTS.search(tensor.name) is not None:
        return False
    return is_packable(tensor, in_experts=is_expert(tensor))


def _module(tensor: TensorInfo) -> str:
    return tensor.name.removesuffix(".weight")
