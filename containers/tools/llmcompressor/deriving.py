"""Folds found in a model: where scales may move without changing what it computes.

One text passes through one layer of each kind.  Hooks see which norm's output which matrices read,
and which matrices could hand scales to which.  Each candidate is then tried: the source's output
is divided by powers of two, a column each, and what reads it gets its input multiplied by them.
Powers of two change no digit, so a right fold gives the same numbers, bit by bit, in every matrix
of the layer and behind it; a second reader, an activation or a norm in between gives others.

Nothing is multiplied in the weights: they may be on disk, and stay there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from compressed_tensors.offload import disable_onloading, update_offload_parameter
from compressed_tensors.utils import is_match
from llmcompressor.modeling.moe.context import moe_calibration_context
from structure import find_experts

TOKENS = 32  # of a text, that pass through
# How far outputs may be off: float16 has few powers of two below what it usually holds.
EXACT = {torch.float16: 2.0**-9}
USUAL = 2.0**-16
PARTS = (1, 2, 3)  # the last of so many equal parts of a matrix's outputs may be what is read


@dataclass(frozen=True)
class Fold:
    """One move of scales. What is divided and what is multiplied cancel out."""

    layer: str  # name of the decoder layer that both are in
    source: str  # a norm, or a matrix whose outputs are scaled
    consumers: tuple[str, ...]  # matrices that read the source's output, all of them


class _Reached(Exception):
    """All layers that are looked at were reached."""


@dataclass(frozen=True)
class _Candidate:
    """Modules of a layer by paths below it; experts of one container stand together."""

    sources: tuple[str, ...]  # one, or one of each expert
    consumers: tuple[tuple[str, ...], ...]  # of each source
    parts: int = 1


@dataclass
class _Pass:
    """What one text's pass through a layer showed."""

    outputs: dict[str, torch.Tensor] = field(default_factory=dict)  # "" is the layer itself
    reads: dict[int, list[str]] = field(default_factory=dict)  # by storage of what is read
    gives: dict[str, torch.Tensor] = field(default_factory=dict)  # of norms, kept alive
    order: list[str] = field(default_factory=list)
    kept: list[torch.Tensor] = field(default_factory=list)  # freed ones would give places away


def derive_folds(
    model: Any,
    layers: str,
    tokens: list[int],
    ignore: list[str],
    *,
    norms_only: bool = False,
    left: Iterable[str] = (),
) -> list[Fold]:
    """Return the folds of every layer, in the order in which their sources are computed.

    `norms_only` is SmoothQuant's choice: scales leave norms alone, and no norm before experts,
    since one scale for all of them makes them worse.  `left` names sources, as paths below a layer,
    that are to be left alone.  A fold whose consumers all stay unquantized is left out.  An empty
    list means that nothing can move.
    """
    modules = dict(model.named_modules())
    kinds = _kinds(modules, layers)
    with torch.no_grad(), moe_calibration_context():
        calls = _calls(model, modules, [names[0] for names in kinds.values()], tokens)
        found = [
            Fold(layer, f"{layer}.{source}", tuple(f"{layer}.{name}" for name in consumers))
            for names in kinds.values()
            for candidate in _proven(modules, names[0], calls[names[0]], norms_only=norms_only)
            for source, consumers in zip(candidate.sources, candidate.consumers, strict=True)
            if source not in left
            for layer in names
        ]
    at = {name: number for number, name in enumerate(modules)}
    return sorted(
        (
            fold
            for fold in found
            if any(not is_match(name, modules[name], ignore) for name in fold.consumers)
        ),
        key=lambda fold: at[fold.layer],
    )


def _kinds(modules: Mapping[str, Any], layers: str) -> dict[Any, list[str]]:
    """Group layers by what is in them: names, classes and shapes."""
    parts: dict[str, list[Any]] = {}
    pattern = re.compile(rf"({re.escape(layers)}\.\d+)(?:\.(.+))?")
    with disable_onloading():  # shapes alone: weights on disk stay there
        for name, module in modules.items():
            if match := pattern.fullmatch(name):
                weight = getattr(module, "weight", None)
                shape = tuple(weight.shape) if torch.is_tensor(weight) else ()
                parts.setdefault(match[1], []).append((match[2], type(module).__name__, shape))
    found: dict[Any, list[str]] = {}
    for name, rows in parts.items():
        found.setdefault(tuple(rows), []).append(name)
    return found


def _calls(
    model: Any, modules: Mapping[str, Any], wanted: list[str], tokens: list[int]
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return what each wanted layer is called with when a text passes through the model."""
    calls: dict[str, tuple[Any, dict[str, Any]]] = {}

    def remember(name: str) -> Any:
        def hook(_module: Any, arguments: Any, settings: dict[str, Any]) -> None:
            calls.setdefault(name, (arguments, dict(settings)))
            if len(calls) == len(wanted):
                raise _Reached

        return hook

    with ExitStack() as stack:
        for name in wanted:
            handle = modules[name].register_forward_pre_hook(remember(name), with_kwargs=True)
            stack.callback(handle.remove)
        with suppress(_Reached):
            model(input_ids=torch.tensor([tokens[:TOKENS]]), use_cache=False)
    return calls


def _proven(
    modules: Mapping[str, Any], layer: str, call: Any, *, norms_only: bool
) -> Iterator[_Candidate]:
    """Yield the candidates of a layer that change nothing it computes."""
    prefix = f"{layer}."
    below = {
        name.removeprefix(prefix): module
        for name, module in modules.items()
        if name.startswith(prefix)
    }
    containers = find_experts(modules, layer.rpartition(".")[0])
    experts = [name.removeprefix(prefix) for name in containers if name.startswith(prefix)]
    before = _run(modules[layer], below, call)
    candidates = [*_of_norms(below, before, experts, skip_experts=norms_only)]
    if not norms_only:
        candidates += _of_matrices(below, before, experts)
    place = {name: number for number, name in enumerate(before.order)}
    for candidate in sorted(candidates, key=lambda one: place[one.sources[0]]):
        if _changes_nothing(modules[layer], below, call, before, candidate):
            yield candidate


def _run(layer: Any, below: Mapping[str, Any], call: Any, changed: Any = None) -> _Pass:
    """Pass the text through a layer, with outputs and inputs `changed` where that is given."""
    seen = _Pass()
    divided, multiplied = changed or ({}, {})

    def before(name: str) -> Any:
        def hook(_module: Any, inputs: Any) -> Any:
            if not inputs or not torch.is_tensor(inputs[0]):
                return None
            seen.kept.append(inputs[0])
            seen.reads.setdefault(_place(inputs[0]), []).append(name)
            if name not in multiplied:
                return None
            return (inputs[0] * multiplied[name].to(inputs[0].dtype), *inputs[1:])

        return hook

    def after(name: str) -> Any:
        def hook(module: Any, _inputs: Any, output: Any) -> Any:
            seen.order.append(name)
            first = output[0] if isinstance(output, tuple) else output
            if not torch.is_tensor(first):
                return None
            if _is_matrix(module):
                seen.outputs[name] = first.detach().float()
            elif module.weight.ndim == 1:
                seen.gives[name] = first
            if name in divided and first is output:
                return output / divided[name].to(output.dtype)
            return None

        return hook

    with ExitStack() as stack:
        for name, module in below.items():
            if torch.is_tensor(getattr(module, "weight", None)):
                stack.callback(module.register_forward_pre_hook(before(name)).remove)
                stack.callback(module.register_forward_hook(after(name)).remove)
        arguments, settings = call
        output = layer(*arguments, **settings)
    seen.outputs[""] = (output[0] if isinstance(output, tuple) else output).float()
    return seen


def _of_norms(
    below: Mapping[str, Any], seen: _Pass, experts: list[str], *, skip_experts: bool
) -> Iterator[_Candidate]:
    """Yield norms with the matrices that read their outputs, of every expert where of one."""
    for name, given in seen.gives.items():
        if not _scales_with_its_weight(below[name], given):
            continue
        readers = [one for one in seen.reads.get(_place(given), ()) if _is_matrix(below[one])]
        of_experts = any(one.startswith(f"{place}.") for one in readers for place in experts)
        if readers and not (skip_experts and of_experts):
            yield _Candidate((name,), (tuple(dict.fromkeys(readers)),))


def _of_matrices(below: Mapping[str, Any], seen: _Pass, experts: list[str]) -> Iterator[_Candidate]:
    """Yield pairs of matrices of one block, the second computed later, whose sides fit."""
    linear = [
        name for name in dict.fromkeys(seen.order) if isinstance(below[name], torch.nn.Linear)
    ]
    families: dict[str, list[str]] = {}
    for name in linear:
        families.setdefault(_family(name, experts), []).append(name)
    for first, sources in families.items():
        for second, consumers in families.items():
            block = first.rpartition(".")[0]
            fits = block == second.rpartition(".")[0] and len(sources) == len(consumers)
            if not fits or linear.index(sources[0]) >= linear.index(consumers[0]):
                continue
            with disable_onloading():
                outputs, inputs = below[sources[0]].out_features, below[consumers[0]].in_features
                has_bias = below[sources[0]].bias is not None
            parts = next((one for one in PARTS if inputs * one == outputs), 0)
            if parts == 1 or (parts and not has_bias):  # the library divides a whole bias
                pairs = tuple((name,) for name in sorted(consumers))
                yield _Candidate(tuple(sorted(sources)), pairs, parts)


def _changes_nothing(
    layer: Any, below: Mapping[str, Any], call: Any, before: _Pass, candidate: _Candidate
) -> bool:
    """Whether a layer gives the same numbers with scales moved as a candidate says."""
    divided, multiplied = {}, {}
    for number, (source, consumers) in enumerate(
        zip(candidate.sources, candidate.consumers, strict=True)
    ):
        with disable_onloading():
            size = below[consumers[0]].weight.shape[-1]
            if any(below[name].weight.shape[-1] != size for name in consumers):
                return False
        scales = _powers(size, number)
        kept = torch.ones(size * (candidate.parts - 1))
        divided[source] = torch.cat([kept, scales])
        multiplied |= dict.fromkeys(consumers, scales)
    after = _run(layer, below, call, (divided, multiplied))
    dtypes = {below[name].weight.dtype for name in (*divided, *multiplied)}
    close = max(EXACT.get(dtype, USUAL) for dtype in dtypes)
    return all(
        _same(was, after.outputs[name], close)
        for name, was in before.outputs.items()
        if name not in divided and name in after.outputs
    )


def _same(was: torch.Tensor, now: torch.Tensor, close: float) -> bool:
    return was.shape == now.shape and bool((now - was).norm() <= close * was.norm())


def _powers(size: int, seed: int) -> torch.Tensor:
    """Return powers of two, 1/2 to 2, other ones for each seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.exp2(torch.randint(-1, 2, (size,), generator=generator).float())


def _scales_with_its_weight(norm: Any, given: torch.Tensor) -> bool:
    """Whether what is divided out of a norm's weight and bias is divided out of its output."""
    weight = norm.weight.detach()
    if weight.ndim != 1 or given.shape[-1] != len(weight):
        return False
    numbers = torch.linspace(-2, 3, len(weight)).sin().to(weight.dtype)[None]
    held = {"weight": weight.clone()}
    if getattr(norm, "bias", None) is not None:
        held["bias"] = norm.bias.detach().clone()
    try:
        was = norm(numbers)
        for name, value in held.items():
            update_offload_parameter(norm, name, value / 2)
        now = norm(numbers)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return False  # it reads more than one tensor
    finally:
        for name, value in held.items():
            update_offload_parameter(norm, name, value)
    return torch.is_tensor(was) and _same(was.float() / 2, now.float(), EXACT[torch.float16])


def _family(name: str, experts: Iterable[str]) -> str:
    """Return a path in which an expert's number is `*`."""
    for container in experts:
        if name.startswith(f"{container}."):
            number, _, rest = name.removeprefix(f"{container}.").partition(".")
            return f"{container}.*.{rest}" if number.isdigit() else name
    return name


def _is_matrix(module: Any) -> bool:
    return getattr(getattr(module, "weight", None), "ndim", 0) == 2


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
