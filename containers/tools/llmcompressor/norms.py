"""Norms that add 1 to their weight, as plain ones while scales move in and out of them.

Which norms do is seen, not known by name: one whose weight is 0 still gives something.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from compressed_tensors.offload import update_offload_parameter
from compressed_tensors.registry import standardize_lookup_name
from llmcompressor.modeling.offset_norm import NormCalibrationModule

CLOSE = 0.02  # how far a norm in 16 bits may be from the same one in 32
EPSILONS = ("eps", "variance_epsilon", "norm_eps")  # what classes call it


class PlainNorm(torch.nn.Module):
    """An offset norm as `x * weight + bias`, both in 32 bits; `centred` as LayerNorm is."""

    def __init__(self, original: Any, *, centred: bool) -> None:
        super().__init__()
        self.centred = centred
        self.eps = _eps(original)
        gain = 1.0 + original.weight.detach().float()
        self.weight = torch.nn.Parameter(gain.clone(), requires_grad=False)
        bias = getattr(original, "bias", None)
        if bias is None:
            self.register_parameter("bias", None)
        else:
            own = bias.detach().float().clone()
            self.bias = torch.nn.Parameter(own, requires_grad=False)
        self.original_gain = gain.cpu()
        self.original_bias = None if bias is None else self.bias.detach().cpu().clone()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm of `x` in its own type."""
        output = _normed(x.float(), self.eps, centred=self.centred) * self.weight
        return (output if self.bias is None else output + self.bias).type_as(x)

    def _apply(self, fn: Any, recurse: bool = True) -> PlainNorm:
        """Follow the model to a device, and to no other type: AutoRound casts to 16 bits."""
        kept = {name: one.detach().clone() for name, one in self.named_parameters()}
        super()._apply(fn, recurse)
        for name, value in kept.items():
            own = getattr(self, name)
            if own.dtype != value.dtype:
                own.data = value.to(own.device)
        return self

    def moved(self) -> dict[str, torch.Tensor]:
        """Return weight and bias as the original has them, where scales moved into them."""
        found = {}
        gain, bias = self.weight.detach(), self.bias
        if not torch.equal(gain.cpu(), self.original_gain):
            found["weight"] = gain - 1.0
        if bias is not None and not torch.equal(bias.detach().cpu(), self.original_bias):
            found["bias"] = bias.detach()
        return found


@contextmanager
def plain_norms(model: Any) -> Iterator[None]:
    """Replace norms that add 1 to their weight; put them back, with what was folded into them.

    llm-compressor does so by name and in 16 bits, which rounds norms that nothing was folded into.
    """
    forms: dict[type, bool | None] = {}
    found = {}
    for name, module in model.named_modules():
        if type(module) not in forms:
            forms[type(module)] = _form(module)
        if forms[type(module)] is not None:
            found[name] = module
    plain = {
        name: PlainNorm(module, centred=bool(forms[type(module)])) for name, module in found.items()
    }
    for name, module in plain.items():
        model.set_submodule(name, module)
    try:
        yield
    finally:
        for name, original in found.items():
            for part, value in plain[name].moved().items():
                update_offload_parameter(original, part, value.to(original.weight.dtype))
            model.set_submodule(name, original)


def _form(norm: Any) -> bool | None:
    """Return whether a norm that adds 1 to its weight centres its inputs; None for no such norm."""
    weight = getattr(norm, "weight", None)
    if getattr(weight, "ndim", 0) != 1 or not _eps(norm):
        return None
    known = {*NormCalibrationModule.registered_names(), *NormCalibrationModule.registered_aliases()}
    if standardize_lookup_name(type(norm).__name__) in known:
        return False
    numbers = (torch.linspace(-2, 3, len(weight)).sin() + 0.1)[None].to(weight.device)
    given = _given_by_zeros(norm, numbers.to(weight.dtype))
    if given is None or not given.any():
        return None
    for centred in (False, True):
        meant = _normed(numbers, _eps(norm), centred=centred)
        if given.shape == meant.shape and (given - meant).norm() <= CLOSE * meant.norm():
            return centred
    return None


def _eps(norm: Any) -> float:
    """Return what a norm adds to the variance; 0 for what is no norm."""
    return next((float(getattr(norm, one)) for one in EPSILONS if hasattr(norm, one)), 0.0)


def _given_by_zeros(norm: Any, numbers: torch.Tensor) -> torch.Tensor | None:
    """Return what a norm gives while its weight and bias are 0; None where it reads more."""
    held = {
        name: getattr(norm, name).detach().clone()
        for name in ("weight", "bias")
        if torch.is_tensor(getattr(norm, name, None))
    }
    try:
        for name, value in held.items():
            update_offload_parameter(norm, name, torch.zeros_like(value))
        with torch.no_grad():
            given = norm(numbers)
    except Exception:  # whatever a class says of inputs that it does not take
        return None
    finally:
        for name, value in held.items():
            update_offload_parameter(norm, name, value)
    return given.float() if torch.is_tensor(given) else None


def _normed(x: torch.Tensor, eps: float, *, centred: bool) -> torch.Tensor:
    if centred:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
