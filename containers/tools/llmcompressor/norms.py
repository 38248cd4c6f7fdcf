"""Norms that add 1 to their weight, as plain ones while scales move in and out of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from compressed_tensors.offload import update_offload_parameter
from compressed_tensors.registry import standardize_lookup_name
from llmcompressor.modeling.offset_norm import CalibrationOffsetNorm, NormCalibrationModule


class PlainNorm(CalibrationOffsetNorm):
    """An offset norm as `x * weight`, its weight in 32 bits."""

    def __init__(self, original: Any) -> None:
        super().__init__(original, None)
        gain = 1.0 + original.weight.detach().float()
        self.weight = torch.nn.Parameter(gain.clone(), requires_grad=False)
        self.original_gain = gain.cpu()


@contextmanager
def plain_norms(model: Any) -> Iterator[None]:
    """Replace norms that add 1 to their weight; put them back, with what was folded into them.

    llm-compressor does so in 16 bits, which rounds norms that nothing was folded into.
    """
    known = {*NormCalibrationModule.registered_names(), *NormCalibrationModule.registered_aliases()}
    found = {
        name: module
        for name, module in model.named_modules()
        if standardize_lookup_name(type(module).__name__) in known
    }
    plain = {name: PlainNorm(module) for name, module in found.items()}
    for name, module in plain.items():
        model.set_submodule(name, module)
    try:
        yield
    finally:
        for name, original in found.items():
            gain = plain[name].weight.detach()
            if not torch.equal(gain.cpu(), plain[name].original_gain):
                weight = (gain - 1.0).to(original.weight.dtype)
                update_offload_parameter(original, "weight", weight)
            model.set_submodule(name, original)
