"""Modules that stay unquantized, by the names on an ignore list.

An invalid ignore list selects no module here: the plan is refused anyway.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile, TensorInfo
from packager.core.techniques import Quantization
from packager.core.traits import EngineTraits
from packager.models.architectures.demands import stated_quantization
from packager.models.architectures.kinds import sees
from packager.models.architectures.profile import (
    SameModel,
    architecture_of,
    make_profile,
    read_head,
)
from packager.models.architectures.routers import LAYER, find_routers, is_indexer
from packager.models.architectures.sums import OTHER_PARTS, is_expert, is_packable
from packager.models.checkpoints.ignored import read_ignored
from packager.models.checkpoints.renamed import loaded_name
from packager.models.checkpoints.selecting import BadEntry, Selection, compile_entry


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
    parameters, experts = find_left_out(model, ignore)
    return replace(chosen, parameters_left_out=parameters, experts_left_out=experts)


def entries_left_out(
    model: ModelFiles, ignore: tuple[str, ...] | None, traits: EngineTraits
) -> tuple[str, ...]:
    """Return the request's entries, and patterns of what the engine builds without quantization.

    Of models that see the engine's table names matrices of towers, which are quantized nowhere.
    """
    paths = () if sees(model.config) else traits.plain_in(architecture_of(model.config))
    return (*(ignore or ()), *(rf"re:.*\.{re.escape(path)}(\..*)?$" for path in paths))


def check_entries(model: ModelFiles, ignore: tuple[str, ...] | None) -> Iterator[Finding]:
    """Refuse entries of `--quantize-ignore` that are invalid, or could take long to match."""
    broken = False
    for entry in ignore or ():
        try:
            compile_entry(entry)
        except BadEntry as error:
            broken = True
            message = f"{entry[:80]!r} of --quantize-ignore cannot be used: {error}"
            hint = "write a module's name, or `re:` and a pattern such as `re:.*\\.mlp\\..*`"
            yield Finding("error", "quantize-ignore-pattern", message, hint)
    if ignore and not broken:
        try:
            select_ignored(model, ignore)
        except BadEntry as error:
            message = f"--quantize-ignore cannot be used: {error}"
            hint = "write fewer `.*`, or names in place of patterns"
            yield Finding("error", "quantize-ignore-pattern", message, hint)


def select_ignored(model: ModelFiles, ignore: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """Return the modules that each entry selects, by either name; raises `BadEntry`."""
    return _select(SameModel(model), ignore)


@lru_cache(maxsize=2)
def _select(same: SameModel, ignore: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    selection = Selection(ignore)
    modules = dict.fromkeys(_module(tensor) for tensor in same.model.tensors)
    with_towers = sees(same.model.config)
    names = {loaded_name(module, sees=with_towers): module for module in modules}
    names |= {module: module for module in modules}
    selection.check_effort(names)
    selected = selection.select(names)
    return {entry: frozenset(names[one] for one in found) for entry, found in selected.items()}


def ignored_modules(model: ModelFiles, ignore: tuple[str, ...] | None) -> frozenset[str]:
    """Return the modules that an ignore list leaves whole; none where it cannot be used."""
    try:
        selected = select_ignored(model, ignore) if ignore else {}
    except BadEntry:
        return frozenset()
    return frozenset(chain.from_iterable(selected.values()))


def find_left_out(model: ModelFiles, ignore: tuple[str, ...] | None) -> tuple[int, bool]:
    """Return what an ignore list of `--quantize-ignore` keeps whole, by the model's headers.

    The parameters of matrices that quantizers would pack, and whether no routed expert is
    quantized; False of a dense model.
    """
    ignored = ignored_modules(model, ignore)
    if not ignored:
        return 0, False
    packed = packable(model)
    left = [tensor for tensor in packed if _module(tensor) in ignored]
    experts = [tensor for tensor in packed if is_expert(tensor)]
    parameters = sum(math.prod(tensor.shape) for tensor in left)
    return parameters, bool(experts) and all(_module(tensor) in ignored for tensor in experts)


def quantized_modules(
    model: ModelFiles, ignore: tuple[str, ...] | None
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the modules that will be quantized, with the shapes of their weights."""
    ignored = ignored_modules(model, ignore)
    modules = ((_module(tensor), tensor.shape) for tensor in packable(model))
    return tuple(one for one in modules if one[0] not in ignored)


def leaves_experts_whole(model: ModelFiles, stated: Mapping[str, Any]) -> bool:
    """Return whether quantization_config, `stated`, leaves out every routed expert there is."""
    ignored = read_ignored(stated)
    experts = (tensor for tensor in model.tensors if is_expert(tensor))  # 100,000 of a large model
    first = next(experts, None)
    return first is not None and all(ignored.has(_module(one)) for one in chain((first,), experts))


def find_indexers(model: ModelFiles) -> tuple[str, ...]:
    """Return matrices of the layers that choose tokens for sparse attention: they stay whole."""
    return tuple(
        _module(tensor)
        for tensor in model.tensors
        if len(tensor.shape) == 2 and is_indexer(tensor.name) and LAYER.search(tensor.name)
    )


def packable(model: ModelFiles) -> tuple[TensorInfo, ...]:
    """Return the tensors that quantizers pack: matrices of the language model's layers."""
    return _packable(SameModel(model))


@lru_cache(maxsize=2)
def _packable(same: SameModel) -> tuple[TensorInfo, ...]:
    head = frozenset(tensor.name for tensor in read_head(same.model).tensors)
    routers = find_routers(same.model.tensors)
    served = make_profile(same.model)[0].layers
    return tuple(
        tensor
        for tensor in same.model.tensors
        if tensor.name not in routers
        and is_packable(tensor, in_experts=is_expert(tensor))
        and (match := LAYER.search(tensor.name)) is not None
        and OTHER_PARTS.search(tensor.name, 0, match.end()) is None
        and int(match[1][:9]) < served  # those behind the last are for drafting
        and tensor.name not in head
    )


def _module(tensor: TensorInfo) -> str:
    return tensor.name.removesuffix(".weight")
