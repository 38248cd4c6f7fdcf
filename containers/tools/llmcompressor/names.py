"""Which tensors of the source the loaded model holds, and where.

transformers renames, fuses and drops tensors when it loads, and llm-compressor takes fused experts
apart again.  The mapping is derived from the source's own headers and from the transforms that
were used for loading, never from a table of models, so that a result can go back to the source's
names.  What cannot be mapped is refused by name: a tensor under the wrong name is worse than none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any

import torch
from compressed_tensors.offload import disable_onloading
from fused_experts import PARTS
from llmcompressor.modeling.moe.linear_experts import LinearExperts2D
from llmcompressor.modeling.moe.linearize import linearize_moe
from packager_worker import Rejected
from transformers.core_model_loading import (
    Concatenate,
    MergeModulelist,
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)

SHOWN = 5  # names that a message lists


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of the model that holds a part of a fused tensor of the source."""

    name: str  # in the model: `...experts.3.gate_proj.weight`
    expert: int
    part: int  # 0: gate, 1: up, where both lie in one tensor
    parts: int
    transposed: bool  # the source has inputs before outputs
    interleaved: bool  # gate and up alternate

    def of(self, fused: torch.Tensor) -> torch.Tensor:
        """Cut this part out of the source's tensor, as a Linear module has it."""
        one = fused[self.expert]
        outputs = one.ndim - 1 if self.transposed else 0
        if self.parts > 1 and self.interleaved:
            places = torch.arange(self.part, one.shape[outputs], self.parts)
            one = one.index_select(outputs, places)
        elif self.parts > 1:
            one = one.chunk(self.parts, outputs)[self.part]
        return one.T if self.transposed and one.ndim == 2 else one

    def shape(self, fused: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of this part of a tensor of the shape given."""
        sides = list(fused[1:])
        sides[-1 if self.transposed else 0] //= self.parts
        return tuple(sides[::-1] if self.transposed else sides)


@dataclass(frozen=True)
class SourceNames:
    """Where the tensors of the source are in the model. Every one is in exactly one place."""

    own: Mapping[str, str] = field(default_factory=dict)  # held whole, under the model's name
    spread: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)  # held in several
    converted: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # changed on loading:
    # the model's tensor, and the digest of its bytes then
    unread: tuple[str, ...] = ()  # the model has no place for it
    tied: frozenset[str] = frozenset()  # tensors of the model that are written once where equal
    buffers: frozenset[str] = frozenset()  # that the model computes

    def to_json(self) -> str:
        """Write the names down, for a later run that finds the model quantized."""
        told = {
            "own": dict(self.own),
            "spread": {
                name: [astuple(part) for part in parts] for name, parts in self.spread.items()
            },
            "converted": dict(self.converted),
            "unread": self.unread,
            "tied": sorted(self.tied),
            "buffers": sorted(self.buffers),
        }
        return json.dumps(told)

    @classmethod
    def from_json(cls, text: str) -> SourceNames:
        """Read what `to_json` wrote."""
        told = json.loads(text)
        spread = {
            name: tuple(Part(*part) for part in parts) for name, parts in told["spread"].items()
        }
        return cls(
            own=told["own"],
            spread=spread,
            converted={name: tuple(one) for name, one in told["converted"].items()},
            unread=tuple(told["unread"]),
            tied=frozenset(told["tied"]),
            buffers=frozenset(told["buffers"]),
        )

    @cached_property
    def _modules(self) -> Mapping[str, str]:
        return _modules(self.own)

    def module(self, name: str) -> str:
        """Return a module of the model under the source's name, as far as that is known."""
        steps = name.split(".")
        for count in range(len(steps), 0, -1):
            theirs = self._modules.get(".".join(steps[:count]))
            if theirs is not None:
                return ".".join((theirs, *steps[count:]))
        return name


def map_names(
    model: Any, names_of_source: Iterable[str], read: Callable[[str], torch.Tensor]
) -> SourceNames:
    """Linearize the experts of a model just loaded, and find every tensor of the source in it."""
    before = _state(model)
    transforms = list(getattr(model, "_weight_conversions", None) or ())
    linearize_moe(model)  # as `oneshot` would do later
    after = _state(model)
    own: dict[str, str] = {}
    spread: dict[str, tuple[Part, ...]] = {}
    converted: dict[str, tuple[str, str]] = {}
    unread: list[str] = []
    merged: dict[tuple[str, str], list[str]] = {}
    renamings = [one for one in transforms if isinstance(one, WeightRenaming)]
    converters = [one for one in transforms if isinstance(one, WeightConverter)]
    by_pattern = {pattern: one for one in converters for pattern in one.source_patterns}
    for name in sorted(names_of_source, key=dot_natural_key):
        prefix = model.base_model_prefix
        target, pattern = rename_source_key(name, renamings, converters, prefix, before)
        if target not in before and name in before:
            target, pattern = rename_source_key(name, [], [], prefix, before)
        if target not in before:
            unread.append(name)
        elif pattern is not None and target in after:
            converted[name] = (target, _digest(model, target))
        elif pattern is not None:
            merged.setdefault((target, pattern), []).append(name)
        elif target in after:
            own[name] = target
        else:
            spread[name] = tuple(_parts(model, target))
    checked: set[str] = set()
    for (target, pattern), names in merged.items():
        for expert, name in enumerate(names):
            own[name] = _expert(model, target, by_pattern[pattern], pattern, expert, name)
            if pattern not in checked:
                checked.add(pattern)
                _check_value(model, own[name], read(name), name)
    kinds = {name.removesuffix(".weight").rpartition(".")[2]: name for name in spread}
    for name in kinds.values():  # one of each kind: reading them all takes as long as loading
        part = spread[name][-1]
        _check_value(model, part.name, part.of(read(name)), name)
    with disable_onloading():
        buffers = frozenset(name for name, _ in model.named_buffers())
    return SourceNames(
        own=own,
        spread=spread,
        converted=converted,
        unread=tuple(unread),
        tied=frozenset(_tied(model)),
        buffers=buffers,
    )


def wished(names: SourceNames, ignore: Iterable[str]) -> list[str]:
    """Add the model's names of modules that an ignore list names as the source does."""
    entries = list(ignore)
    exact = {entry for entry in entries if not entry.startswith("re:")}
    patterns = [re.compile(entry[3:]) for entry in entries if entry.startswith("re:")]
    found = []
    places = [(name, (target,)) for name, target in names.own.items() if name.endswith(".weight")]
    places += [(name, tuple(part.name for part in parts)) for name, parts in names.spread.items()]
    for name, targets in places:
        module = name.removesuffix(".weight")
        if module in exact or any(pattern.match(module) for pattern in patterns):
            held = (target.removesuffix(".weight") for target in targets)
            found += [one for one in held if one != module]
    return [*entries, *sorted(set(found) - exact)]


def listed(names: Iterable[str]) -> str:
    """Write how many names there are, and the first of them."""
    every = sorted(names)
    more = " and others" if len(every) > SHOWN else ""
    return f"{len(every)}, {', '.join(every[:SHOWN])}{more}"


def _tied(model: Any) -> Iterator[str]:
    """List tied tensors, and both embeddings: the library writes one where they are equal."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    yield from (*tied, *tied.values())
    ends = {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    for name, module in model.named_modules():
        if id(module) in ends:
            yield f"{name}.weight"


def _state(model: Any) -> dict[str, bool]:
    with disable_onloading():
        return dict.fromkeys(model.state_dict(), True)


def _parts(model: Any, target: str) -> Iterator[Part]:
    """List the tensors that a fused tensor of experts was taken apart into, in order."""
    path, _, attribute = target.rpartition(".")
    experts = _experts(model, target)
    kind = "bias" if attribute.endswith("_bias") else "weight"
    parts = PARTS[attribute.removesuffix("_bias")]
    for expert in range(experts.num_experts):
        for number, part in enumerate(parts):
            yield Part(
                name=f"{path}.{expert}.{part}.{kind}",
                expert=expert,
                part=number,
                parts=len(parts),
                transposed=bool(experts.is_transposed) and kind == "weight",
                interleaved=not experts.is_concatenated,
            )


def _expert(model: Any, target: str, converter: Any, pattern: str, expert: int, name: str) -> str:
    """Find the tensor of the model that holds an expert's matrix, which loading had fused."""
    _experts(model, target)
    path, _, attribute = target.rpartition(".")
    parts = PARTS[attribute.removesuffix("_bias")]
    plain = isinstance(converter.operations[0], MergeModulelist) and all(
        isinstance(one, Concatenate) for one in converter.operations[1:]
    )
    if not plain or len(converter.source_patterns) != len(parts):
        raise Rejected(f"the experts of this model cannot be named as in the source: {name}")
    kind = "bias" if attribute.endswith("_bias") else "weight"
    return f"{path}.{expert}.{parts[converter.source_patterns.index(pattern)]}.{kind}"


def _experts(model: Any, target: str) -> Any:
    path, _, attribute = target.rpartition(".")
    module = model.get_submodule(path)
    known = attribute.removesuffix("_bias") in PARTS
    if not isinstance(module, LinearExperts2D) or not known:
        raise Rejected(f"the library took {target} apart in a way that is not known here")
    return module


def _check_value(model: Any, target: str, expected: torch.Tensor, name: str) -> None:
    """Compare a matrix with the source's: names that fit say nothing of the order of parts."""
    held = model.get_parameter(target).detach()
    first = held[:1].cpu()
    same = held.shape == expected.shape and torch.equal(first, expected[:1].to(held.dtype))
    if not same:
        raise Rejected(f"{target} does not hold what {name} of the source has")


def _digest(model: Any, target: str) -> str:
    module, _, attribute = target.rpartition(".")
    return digest_of(getattr(model.get_submodule(module), attribute))


def digest_of(tensor: torch.Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes."""
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()


def _modules(own: Mapping[str, str]) -> dict[str, str]:
    """Map modules of the model to the source's, as deep as their tensors' names agree.

    Of a module with a name of its own the library also writes that name below the source's path.
    """
    found: dict[str, str] = {}
    halfway: dict[str, str] = {}
    for name, target in own.items():
        theirs, ours = name.split("."), target.split(".")
        if theirs[-1] == ours[-1]:
            halfway[".".join((*theirs[:-2], *ours[-2:-1]))] = ".".join(theirs[:-1])
        while len(theirs) > 1 and len(ours) > 1 and theirs[-1] == ours[-1]:
            theirs, ours = theirs[:-1], ours[:-1]
            found.setdefault(".".join(ours), ".".join(theirs))
    return {**halfway, **found}
