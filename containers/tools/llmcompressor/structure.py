"""What of a model is quantized, by its structure: linear layers of the decoder, routers apart.

Names differ between families, and a pattern that matches nothing says nothing.  So what stays
whole follows from where a module is and what it gives:

- everything outside the decoder's layers: heads, embeddings, towers, projectors
- routers and gates of experts: beside a container of experts, with as many outputs as there are
  experts, or one
- indexers of sparse attention, which choose tokens

Convolutions, norms and state matrices are no linear layers, which are all that is quantized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from compressed_tensors.offload import disable_onloading
from llmcompressor.modeling.moe.linear_experts import LinearExperts2D
from packager_worker import Rejected

INDEXER = re.compile("indexer", re.IGNORECASE)


def find_layers(model: Any) -> str:
    """Return the name of the decoder's list of layers; raise `Rejected` where there is none."""
    text = model.config.get_text_config()
    counts = {getattr(text, name, None) for name in ("num_hidden_layers", "n_layer", "num_layers")}
    with disable_onloading():  # shapes alone: weights on disk stay there
        found = {
            name: sum(one.weight.numel() for one in module.modules() if _is_linear(one))
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.ModuleList) and len(module) in counts
        }
    largest = max(found, key=lambda name: found[name], default="")
    if not found.get(largest):
        raise Rejected(
            f"no list of {text.num_hidden_layers} decoder layers with linear modules was found",
            "use `--quantize none`: packager does not know how this model is built",
        )
    return largest


def whole_modules(model: Any, layers: str) -> list[str]:
    """Return linear layers that stay unquantized; raise `Rejected` where experts have no router."""
    modules = dict(model.named_modules())
    routers = set(find_routers(modules, layers))
    return sorted(
        name
        for name, module in modules.items()
        if _is_linear(module)
        and (not name.startswith(f"{layers}.") or name in routers or _indexes(modules, name))
    )


def find_routers(modules: Mapping[str, Any], layers: str) -> Iterator[str]:
    """Yield what chooses or weighs experts, linear layers or not; raise `Rejected` if one lacks."""
    with disable_onloading():
        for container, count in find_experts(modules, layers).items():
            block = container.rpartition(".")[0]
            found = list(_routers_in(modules, block, container, count))
            if not any(modules[name].weight.shape[0] == count for name in found):
                layer = re.match(rf"{re.escape(layers)}\.\d+", container)
                assert layer is not None
                found += _routers_in(modules, layer[0], container, count)
            if not any(modules[name].weight.shape[0] == count for name in found):
                if not isinstance(modules[container], LinearExperts2D):
                    continue  # several attentions or MLPs of one layer
                raise Rejected(
                    f"no router was found for the {count} experts of {container}",
                    "name it with `--quantize-ignore`, or use `--quantize none`",
                )
            yield from found


def find_experts(modules: Mapping[str, Any], layers: str) -> dict[str, int]:
    """Return lists of experts, modules of one class with several linear layers, and how many."""
    found = {}
    for name, module in modules.items():
        if name.startswith(f"{layers}.") and isinstance(module, torch.nn.ModuleList):
            experts = [one for one in module if sum(map(_is_linear, one.modules())) > 1]
            if len(experts) > 1 and len({type(one) for one in experts}) == 1:
                found[name] = len(experts)
    return found


def _routers_in(
    modules: Mapping[str, Any], block: str, container: str, count: int
) -> Iterator[str]:
    """Yield matrices of a block with an output for each expert, or one, that are no MLP's."""
    for name, module in modules.items():
        if not name.startswith(f"{block}.") or name.startswith(f"{container}."):
            continue
        weight = getattr(module, "weight", None)
        if getattr(weight, "ndim", 0) != 2 or weight.shape[0] not in (1, count):
            continue
        parent = name.rpartition(".")[0]
        beside = sum(map(_is_linear, modules[parent].children()))
        if parent == block or beside < 2:
            yield name


def _indexes(modules: Mapping[str, Any], name: str) -> bool:
    """Whether a module is part of an indexer, by the class or the name of one that holds it."""
    steps = name.split(".")
    holders = (".".join(steps[:count]) for count in range(1, len(steps)))
    return any(
        INDEXER.search(holder.rpartition(".")[2]) or INDEXER.search(type(modules[holder]).__name__)
        for holder in holders
    )


def _is_linear(module: Any) -> bool:
    return isinstance(module, torch.nn.Linear)
