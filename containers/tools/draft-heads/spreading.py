"""A model over several GPUs, each with some of its layers, in their order.

One GPU works at a time, as a text passes through; a model that no single one holds is read
all the same.  Inputs of each part go to the device of its weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from packager_worker import Rejected


def lay_over(model: Any, devices: Sequence[str]) -> Any:
    """Place the layers in equal numbers, what comes before them first, what comes after last."""
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, torch.nn.ModuleList):
        raise Rejected(
            f"{type(model).__name__} cannot be laid over {len(devices)} GPUs: its layers are not "
            "where others have them",
            "use `--gpus 1`",
        )
    first, last = devices[0], devices[-1]
    for number, layer in enumerate(layers):
        layer.to(devices[number // math.ceil(len(layers) / len(devices))])
    placed = {id(value) for layer in layers for value in _values(layer)}
    embeddings = {id(value) for value in _values(model.get_input_embeddings())}
    for after in (getattr(decoder, "norm", None), model.get_output_embeddings()):
        # A head that is tied to the embeddings stays with them, before the layers.
        if after is not None and embeddings.isdisjoint(map(id, _values(after))):
            after.to(last)
            placed |= {id(value) for value in _values(after)}
    rest = {id(value): value for value in _values(model) if id(value) not in placed}
    _move(model, {name: _there(value, first) for name, value in rest.items()})
    for module in model.modules():
        if any(value is not None for value in module._parameters.values()) or module in [*layers]:
            module.register_forward_pre_hook(_bring, with_kwargs=True)
    return model


def _values(module: Any) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _there(value: torch.Tensor, device: str) -> torch.Tensor:
    moved = value.to(device)
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(moved, requires_grad=value.requires_grad)
    return moved


def _move(model: Any, moved: dict[int, torch.Tensor]) -> None:
    """Replace tensors by their identity: what modules share, they share afterwards."""
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, value in held.items():
                if value is not None and id(value) in moved:
                    held[name] = moved[id(value)]


def _bring(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    device = next(iter(_values(module))).device
    return tuple(_moved(value, device) for value in given), {
        name: _moved(value, device) for name, value in named.items()
    }


def _moved(value: Any, device: torch.device) -> Any:
    match value:
        case torch.Tensor():
            return value.to(device)
        case list() | tuple() if type(value) in (list, tuple):
            return type(value)(_moved(one, device) for one in value)
        case dict() if type(value) is dict:
            return {name: _moved(one, device) for name, one in value.items()}
    return value
