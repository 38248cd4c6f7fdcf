"""Parts of a model with schemes of their own, and what readers of a checkpoint are told of them.

The first target that matches a module counts, by the source's name of it or the model's.  Readers
do not agree on more: compressed-tensors sorts the patterns of all groups, vLLM takes them as they
come and asks for what it fuses as well.  So no pattern that was asked for is written: each group
has patterns that match its own modules and no others, in both spellings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from compressed_tensors.utils import is_match
from names import SourceNames
from packager_worker import Rejected

NONE, REST = "none", "Linear"
HEAD = "lm_head"
NUMBER = re.compile(r"(?:(?<=\.)|^)\d+(?=\.|$)")  # of a layer or an expert


@dataclass(frozen=True)
class Group:
    """Modules that get one scheme."""

    settings: Mapping[str, Any]  # of a method, as `recipes.py` reads them
    modules: list[str] = field(default_factory=list)  # as the model calls them
    is_rest: bool = False  # all that no target matches


def find_groups(
    model: Any,
    names: SourceNames,
    asked: Mapping[str, Any],
    *,
    ignore: list[str],
    whole: Iterable[str],
) -> list[Group]:
    """Assign the linear layers that are neither ignored nor `whole`, and heads that a target names.

    Raises `Rejected` where a target gets nothing: the plan found a module for it.
    """
    kept, spellings = set(whole), spellings_of(names)
    groups = [Group(layer) for layer in asked["layers"]]
    groups.append(Group({key: asked[key] for key in asked if key != "layers"}, is_rest=True))
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or is_match(name, module, ignore):
            continue
        place = _place(asked["layers"], (name, *spellings.get(name, ())))
        if name not in kept or (place is not None and is_head(name)):
            groups[-1 if place is None else place].modules.append(name)
    for group in groups[:-1]:
        if not group.modules:
            raise Rejected(
                f"target {group.settings['target']!r} matches no module that can be quantized",
                "name modules as the checkpoint does; routers stay as they are",
            )
    heads = [one for group in groups for one in group.modules if is_head(one)]
    quantized = [one for group in groups if is_quantized(group) for one in group.modules]
    if set(heads) & set(quantized) and model.config.get_text_config().tie_word_embeddings:
        raise Rejected(f"{heads[0]} is the embedding", "leave it out of --quantize-layer")
    return groups


def _place(layers: Iterable[Mapping[str, Any]], names: Iterable[str]) -> int | None:
    for place, layer in enumerate(layers):
        for name in names:
            if is_head(name) and HEAD not in layer["target"]:
                continue  # patterns for the layers do not mean it
            if matches(layer["target"], name):
                return place
    return None


def matches(target: str, name: str) -> bool:
    """Whether a target is a module's name, a pattern that it begins with, or the class of all."""
    if target.startswith("re:"):
        return re.match(target.removeprefix("re:"), name) is not None
    return target in (name, REST)


def is_head(name: str) -> bool:
    return name.rpartition(".")[2] == HEAD


def is_quantized(group: Group) -> bool:
    """Whether weights of a group change."""
    return group.settings["method"] not in (NONE, "kv")


def spellings_of(names: SourceNames) -> dict[str, tuple[str, ...]]:
    """Return other names of the model's modules: the source's, and of what holds all experts."""
    found: dict[str, dict[str, None]] = {}
    for source, target in names.own.items():
        found.setdefault(_module(target), {})[_module(source)] = None
    for source, parts in names.spread.items():
        for part in parts:
            module = _module(part.name)
            found.setdefault(module, {})[names.module(module)] = None
            found[module][source.removesuffix(".weight")] = None
    return {module: tuple(spelled) for module, spelled in found.items()}


def targets_of(groups: Iterable[Group], names: SourceNames) -> list[list[str]]:
    """Return the targets of each group, which match no module of another."""
    every = list(groups)
    return [
        [REST]
        if group.is_rest
        else [
            *dict.fromkeys(
                pattern
                for spell in (names.module, str)
                for pattern in _patterns(
                    map(spell, group.modules),
                    {spell(one) for other in every if other is not group for one in other.modules},
                )
            )
        ]
        for group in every
    ]


def _patterns(own: Iterable[str], others: set[str]) -> Iterator[str]:
    """Yield a pattern for names that differ in numbers alone, unless others differ so, too."""
    kinds: dict[str, list[str]] = {}
    for name in own:
        kinds.setdefault(NUMBER.sub("#", _below(name)), []).append(name)
    shared = {NUMBER.sub("#", _below(name)) for name in others}
    for kind, alike in kinds.items():
        if kind not in shared:
            yield _pattern(kind, {})
            continue
        layers = {number[0] for one in alike if (number := NUMBER.search(_below(one)))}
        taken = {number[0] for one in others if NUMBER.sub("#", _below(one)) == kind
                 and (number := NUMBER.search(_below(one)))}  # fmt: skip
        if layers & taken:
            yield from alike  # some experts of a layer: nothing but their names tells them apart
        else:
            yield _pattern(kind, layers)


def _pattern(kind: str, layers: Iterable[str]) -> str:
    numbers = sorted(layers, key=int)
    spelled = re.escape(kind).replace(r"\#", r"\d+")
    if numbers:
        spelled = spelled.replace(r"\d+", f"(?:{'|'.join(numbers)})", 1)
    return rf"re:(?:.*\.)?{spelled}$"


def _below(name: str) -> str:
    """Return a name from the list of layers on: engines and libraries differ in what is above."""
    steps = name.split(".")
    place = next((at for at, step in enumerate(steps) if step.isdecimal()), len(steps))
    return ".".join(steps[max(0, place - 1) :])


def _module(tensor: str) -> str:
    return tensor.rpartition(".")[0]
