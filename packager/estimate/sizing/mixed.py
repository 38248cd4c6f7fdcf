"""Models whose parts get schemes of their own: `--quantize-layer`, in order, the first match wins.

Targets are matched with the names of the headers, and the engines' load-time checks are made here:
a matrix that an engine merges from several has one scheme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from packager.catalog.engine_layers import EXPERTS, find_layers
from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile
from packager.core.request import split_layer
from packager.core.suggestions import guess
from packager.core.techniques import LayerGroup, Quantization
from packager.estimate.sizing.left_out import quantized_modules
from packager.estimate.sizing.schemes import NONE, QuantizationChoice
from packager.models.architectures.demands import HEAD
from packager.models.architectures.profile import SameModel
from packager.models.checkpoints.selecting import CLASSES, MARK, BadEntry, Selection

REST = "Linear"  # the target of what no other matches
FORM = "re:.*\\.mlp\\..*=nvfp4"
MOST_NAMED = 3
OWN_PASS = "works through whole layers in a pass of its own, and a step has one pass"
WHOLE_BITS = 16

Choose = Callable[[str], QuantizationChoice]
Modules = Mapping[str, tuple[int, ...]]  # a module → the shape of its matrix


def choose_mixed(
    layers: tuple[str, ...],
    base: QuantizationChoice,
    choose: Choose,
    model: ModelFiles,
    profile: ModelProfile,
    *,
    mixable: Collection[str],
    ignore: tuple[str, ...] | None = None,
) -> QuantizationChoice:
    """Decide the scheme of each part; what is returned is the largest part's, with all groups.

    `base` is what the rest gets, `choose` decides for a value of `--quantize`, `mixable` are the
    methods that one step can do beside others.
    """
    if profile.quantization:
        message = (
            f"the checkpoint is already quantized with {profile.quantization}; "
            "--quantize-layer has nothing to do there"
        )
        hint = "leave --quantize-layer out, or take the unquantized checkpoint"
        return replace(base, findings=(*base.findings, _error("already-quantized", message, hint)))
    chosen, findings = _choose_each(layers, base, choose, mixable)
    if findings:
        return QuantizationChoice(base.quantization, (*base.findings, *findings))
    try:
        selected, modules = select_layers(layers, model, ignore)
    except BadEntry as error:
        message = f"--quantize-layer cannot be used: {error}"
        hint = f"write a module's name, or `re:` and a pattern: `--quantize-layer '{FORM}'`"
        bad = _error("quantize-layer", message, hint)
        return QuantizationChoice(base.quantization, (*base.findings, bad))
    groups = tuple(_groups(layers, selected, modules, chosen, base.quantization, profile))
    notes = (
        *base.findings,
        *(finding for one in chosen.values() for finding in one.findings),
        *_check_layers(layers, selected, modules, model),
        *_check_rest(selected, modules, base.quantization),
        *_check_fused(groups, selected, modules, profile.architecture),
    )
    quantized = [one for one in groups if one.quantization is not None]
    if not quantized:
        message = "--quantize-layer leaves every matrix as it is: nothing is quantized"
        hint = "give a target another method than `none`, or use `--quantize none` alone"
        nothing = _error("quantize-layer", message, hint)
        return QuantizationChoice(base.quantization, (*notes, nothing))
    largest = max(quantized, key=lambda one: one.parameters).quantization
    assert largest is not None
    return QuantizationChoice(replace(largest, groups=groups), tuple(dict.fromkeys(notes)))


def _choose_each(
    layers: tuple[str, ...], base: QuantizationChoice, choose: Choose, mixable: Collection[str]
) -> tuple[dict[str, QuantizationChoice], list[Finding]]:
    """Return the meaning of each value, and the unknown values."""
    chosen: dict[str, QuantizationChoice] = {}
    findings: list[Finding] = []
    methods = ", ".join(sorted(mixable))
    for text in layers:
        target, asked = split_layer(text)
        if not target:
            message = f"{text[:80]!r} of --quantize-layer is not TARGET=METHOD"
            hint = f"write it as `--quantize-layer '{FORM}'`"
            findings.append(_error("quantize-layer", message, hint))
            continue
        found = choose(asked)
        chosen[asked] = found
        if found.quantization is None:
            findings += found.findings
        elif found.quantization.method not in mixable:
            message = (
                f"{asked[:40]} cannot be used for a part of a model ({target[:60]!r}): "
                f"{found.quantization.method} {OWN_PASS}"
            )
            findings.append(_error("quantize-layer", message, f"use one of {methods}"))
        elif found.quantization.scales_cache:
            message = f"{asked[:40]}: the KV cache is no part that {target[:60]!r} could match"
            hint = "write it for the whole model: `--quantize kv`, or `--quantize fp8,kv`"
            findings.append(_error("quantize-layer", message, hint))
    own = base.quantization
    if own is not None and own.method not in mixable:
        message = (
            f"{own.method} cannot be used beside other schemes of --quantize-layer: it {OWN_PASS}"
        )
        findings.append(_error("quantize-layer", message, f"use one of {methods}"))
    return chosen, findings


def select_layers(
    layers: Iterable[str], model: ModelFiles, ignore: tuple[str, ...] | None
) -> tuple[Mapping[str, int], Modules]:
    """Return the place of the entry that each module belongs to, and all that may be quantized.

    Heads are outside of the layers: only a target that says `lm_head` means them.  Raises
    `BadEntry` for patterns that cannot be used.
    """
    return _select_layers(tuple(layers), SameModel(model), ignore)


@lru_cache(maxsize=2)  # called for each split of the model
def _select_layers(
    layers: tuple[str, ...], same: SameModel, ignore: tuple[str, ...] | None
) -> tuple[Mapping[str, int], Modules]:
    model = same.model
    targets = [split_layer(one)[0] for one in layers]
    modules = dict(quantized_modules(model, ignore))
    heads = _heads(model)
    selection = Selection(targets)
    selection.check_effort({**modules, **heads})
    inside, outside = selection.select(modules), selection.select(heads)
    found: dict[str, int] = {}
    for place, target in enumerate(targets):
        for module in inside[target]:
            found.setdefault(module, place)
        for module in outside[target] if _means_head(target) else ():
            found.setdefault(module, place)
    return found, {**modules, **{head: heads[head] for head in heads if head in found}}


def _heads(model: ModelFiles) -> Modules:
    return {
        tensor.name.removesuffix(".weight"): tensor.shape
        for tensor in model.tensors
        if f".{tensor.name}".endswith(f".{HEAD}weight") and len(tensor.shape) == 2
    }


def _groups(
    layers: tuple[str, ...],
    selected: Mapping[str, int],
    modules: Modules,
    chosen: Mapping[str, QuantizationChoice],
    rest: Quantization | None,
    profile: ModelProfile,
) -> Iterator[LayerGroup]:
    for place, text in enumerate((*layers, "")):
        target, asked = split_layer(text) if text else (REST, "")
        own = [module for module in modules if selected.get(module, len(layers)) == place]
        quantization = chosen[asked].quantization if text else rest
        if quantization is not None:
            whole = profile.experts > 0 and not any(f".{EXPERTS}." in one for one in own)
            quantization = replace(quantization, experts_left_out=whole)
        yield LayerGroup(
            target=target,
            quantization=quantization,
            parameters=sum(math.prod(modules[module]) for module in own),
            modules=len(own),
            head=any(_is_head(module) for module in own),
        )


def _check_layers(
    layers: tuple[str, ...], selected: Mapping[str, int], modules: Modules, model: ModelFiles
) -> Iterator[Finding]:
    """Refuse targets that get no module: a typing error leaves them in the rest, unnoticed."""
    taken = set(selected.values())
    for place, text in enumerate(layers):
        target, asked = split_layer(text)
        if _means_head(target) and asked != NONE and _is_tied(model.config):
            # Engines look tokens up in the embedding, which is not packed.
            message = "lm_head is the embedding (tie_word_embeddings), which stays as it is"
            yield _error("quantize-layer-head", message, "leave lm_head out of --quantize-layer")
        elif place not in taken:
            yield _unmatched(target, layers[:place], modules)


def _unmatched(target: str, before: tuple[str, ...], modules: Modules) -> Finding:
    message = f"{target[:80]!r} of --quantize-layer matches no module of the model"
    is_name = not target.startswith(MARK) and target not in CLASSES
    hint = guess(target, modules) if is_name else ""
    if before and any(Selection((target,)).select(modules).values()):
        earlier = ", ".join(repr(split_layer(one)[0][:60]) for one in before[:MOST_NAMED])
        message += f" that an earlier one ({earlier}) leaves"
        hint = "put it before them: the first target that matches a module counts"
    hint = hint or "name a module as the checkpoint does, or write `re:` and a pattern"
    return _error("quantize-layer-unmatched", message, hint)


def _check_rest(
    selected: Mapping[str, int], modules: Modules, rest: Quantization | None
) -> Iterator[Finding]:
    if rest is not None and _packs(rest) and all(module in selected for module in modules):
        message = f"--quantize-layer takes every module: nothing is left for {rest.method}"
        yield _error("quantize-layer-unmatched", message, "leave --quantize out")


def _packs(quantization: Quantization) -> bool:
    """Whether it changes weights; scales of the KV cache alone leave them in 16 bits."""
    return quantization.bits < WHOLE_BITS


def _means_head(target: str) -> bool:
    return HEAD[:-1] in target


def _is_tied(config: Mapping[str, Any]) -> bool:
    text = config.get("text_config")
    nested = text.get("tie_word_embeddings") if isinstance(text, Mapping) else None
    return config.get("tie_word_embeddings", nested) is True


def _check_fused(
    groups: tuple[LayerGroup, ...],
    selected: Mapping[str, int],
    modules: Modules,
    architecture: str,
) -> Iterator[Finding]:
    """Refuse different schemes of matrices that engines make one of."""
    wrong = []
    fusions = find_layers(architecture).fusions(modules)
    for (path, name), parts in sorted(fusions.items()):
        schemes = {part: _scheme(groups[selected.get(part, -1)]) for part in parts}
        if len(set(schemes.values())) > 1:
            wrong.append((f"{path}.{name}", schemes))
    if not wrong:
        return
    whole, schemes = wrong[0]
    by_scheme: dict[str, list[str]] = {}
    for part, scheme in schemes.items():
        by_scheme.setdefault(scheme, []).append(part.removeprefix(f"{whole.rpartition('.')[0]}."))
    words = "; ".join(f"{_named(names)}: {scheme}" for scheme, names in by_scheme.items())
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    message = (
        f"engines make one matrix of parts that --quantize-layer gives different schemes: "
        f"{whole} ({words}){more}"
    )
    ends = "|".join(dict.fromkeys(part.rpartition(".")[2] for part in schemes))
    hint = f"match all of them with one target, such as `re:.*\\.({ends})$`"
    yield _error("quantize-layer-fused", message, hint)


def _scheme(group: LayerGroup) -> str:
    """Write a group's scheme in words that are equal for equal ones."""
    if group.quantization is None or not _packs(group.quantization):
        return NONE
    options = (f"{name}={value}" if value else name for name, value in group.quantization.options)
    return ",".join((group.quantization.method, *options))


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _is_head(module: str) -> bool:
    return f".{module}.".endswith(f".{HEAD}")


def _error(code: str, message: str, hint: str) -> Finding:
    return Finding("error", code, message, hint)
