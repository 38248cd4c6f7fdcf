"""The gate for checkpoints that arrive quantized: what is inside is what config.json declares.

Headers alone, and values of scales where they were read.  Engines notice none of it, or
notice it when 100 GB are loaded: a scale that is missing is whatever was in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from packager.catalog.engine_layers import find_layers
from packager.core.findings import Finding
from packager.core.model import ModelFiles, ScaleValues, TensorInfo
from packager.core.prequantized import CheckpointRequirements
from packager.core.traits import EngineTraits
from packager.models.architectures.demands import (
    FLOATS,
    arguments_of,
    config_groups,
    modelopt_algorithm,
    read_arrived,
    stated_quantization,
)
from packager.models.architectures.profile import SameModel, architecture_of, read_head
from packager.models.checkpoints.blocked import Blocked, kind_of, one_of_each
from packager.models.checkpoints.fused import find_partly_quantized
from packager.models.checkpoints.ignored import read_ignored
from packager.models.checkpoints.packed import QUANTIZED, Packed, layouts_of, read_packed

MOST_NAMED = 5
AGAIN = "quantize the model again, or take another checkpoint of it"
# Files beside config.json that some engines read the quantization from.
BESIDE = frozenset({"hf_quant_config.json", "quantize_config.json", "quant_config.json"})
PLAIN_DTYPES = FLOATS | {"I64", "BOOL"}  # of an unquantized checkpoint

UNREACHED = re.compile(r"\.experts\..*input_(?:global_)?scale\Z", re.ASCII)
CACHE_SCALES = (".k_scale", ".v_scale")

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.\d+\.", re.ASCII)
NOT_LANGUAGE = re.compile(r"(?:^|\.)(?:visual|vision|audio|multi_modal|mtp)", re.ASCII)
# Linear layers of every decoder, which "all linear layers" cannot leave out without saying so.
EVERYWHERE = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Methods whose config.json says of every layer whether it is packed; GPTQ's and AutoRound's
# rules for single layers are theirs alone.
SAYS_ALL = frozenset({"compressed-tensors", "awq", "fp8", "fbgemm_fp8", "modelopt", "quark"})


@dataclass(frozen=True, slots=True)
class Inspected:
    """Result of inspecting a checkpoint."""

    arrived: CheckpointRequirements | None
    findings: tuple[Finding, ...]  # of the headers and, where they were read, of the values
    plain_head: tuple[str, ...] = ()  # weights of an MTP head that are declared packed
    blocks: tuple[Blocked, ...] = ()  # of matrices whose weights share scales, one of each kind


def inspect_quantized(model: ModelFiles, values: ScaleValues | None = None) -> Inspected:
    """Read the demands of a quantized checkpoint and check it, once for each model and values."""
    return _inspect(SameModel(model), values)


def _inspect(same: SameModel, values: ScaleValues | None) -> Inspected:
    found = _inspect_headers(same)
    return replace(found, findings=(*found.findings, *_check_values(values))) if values else found


@lru_cache(maxsize=2)
def _inspect_headers(same: SameModel) -> Inspected:
    model = same.model
    stated = stated_quantization(model.config)
    if not stated:
        return Inspected(None, tuple(_check_undeclared(model)))
    arrived = read_arrived(model.config, model.tensors)
    if not layouts_of(stated):
        return Inspected(arrived, ())
    packed = read_packed(stated, model.tensors)
    if not packed:
        return Inspected(arrived, (_nothing_packed(stated),))
    plain, plain_head = _find_plain(stated, model, packed)
    findings = (
        *_check_companions(packed),
        *_check_ignored(stated, packed),
        *_check_plain(plain),
        *_check_fused(model, packed, (*plain, *plain_head)),
    )
    blocks = one_of_each(one.blocked for one in packed if one.blocked is not None)
    return Inspected(arrived, findings, plain_head, blocks)


def quantized_scales(model: ModelFiles) -> tuple[TensorInfo, ...]:
    """List the tensors whose values decide whether packed weights mean anything."""
    stated = stated_quantization(model.config)
    packed = read_packed(stated, model.tensors) if stated else ()
    found = {scale.name: scale for one in packed for scale in one.scales}
    if packed:
        kept = (
            tensor for tensor in model.tensors if tensor.name.endswith((".k_scale", ".v_scale"))
        )
        found |= {tensor.name: tensor for tensor in kept}
    return tuple(found.values())


def check_in_engine(model: ModelFiles, traits: EngineTraits, *, drafts: bool) -> Iterator[Finding]:
    """Check what the engine has no place for: packed weights that it builds plain, and heads."""
    paths = traits.plain_in(architecture_of(model.config))
    if names := _packed_below(SameModel(model), paths):
        message = (
            f"{_count(names, 'packed weight')} in modules that {traits.who} builds without "
            f"quantization: {_listed(names)}"
        )
        yield Finding("error", "quantization-built-plain", message, AGAIN)
    yield from check_head(model, drafts=drafts)


@lru_cache(maxsize=4)  # a plan that does not fit is tried on every machine
def _packed_below(same: SameModel, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return packed weights of modules whose path ends, or goes on below, as one of `paths`."""
    stated = stated_quantization(same.model.config)
    if not stated or not paths:
        return ()
    ends = tuple(f".{path}." for path in paths)
    packed = read_packed(stated, same.model.tensors)
    return tuple(one.weight.name for one in packed if any(end in f"{one.module}." for end in ends))


def check_head(model: ModelFiles, *, drafts: bool) -> Iterator[Finding]:
    """Check an MTP head that config.json declares; `drafts` if the engine speculates with it.

    A missing head is refused with the draft, so it is not reported twice.
    """
    head = read_head(model)
    if head.declared and head.missing and not drafts:
        message = (
            f"config.json declares {head.declared} MTP layers ({head.key}), and the checkpoint "
            f"lacks {_listed(head.missing)}"
        )
        hint = "speculation by mtp is not possible with it; take a checkpoint that kept them"
        yield Finding("warning", "mtp-missing", message, hint)
    names = inspect_quantized(model).plain_head
    if names:
        message = (
            f"{_count(names, 'weight')} plain in the MTP head, and quantization_config does not "
            f"leave them out: {_listed(names)}"
        )
        hint = "name the head's modules among the ignored ones; engines load it as if packed"
        yield Finding("error" if drafts else "warning", "mtp-plain", message, hint)


def _method(stated: Mapping[str, Any]) -> str:
    return str(stated.get("quant_method", "")).lower().replace("compressed_", "compressed-")


def _check_undeclared(model: ModelFiles) -> Iterator[Finding]:
    """Find packed weights that config.json does not mention."""
    if {tensor.dtype for tensor in model.tensors} <= PLAIN_DTYPES:
        return
    if any(file.path in BESIDE for file in model.files):
        return
    names = [
        tensor.name
        for tensor in model.tensors
        if tensor.dtype in QUANTIZED or tensor.name.endswith((".qweight", ".weight_packed"))
    ]
    if names:
        message = (
            f"{_count(names, 'tensor')} packed and config.json has no quantization_config: "
            f"{_listed(names)}"
        )
        hint = "use the config.json that the quantizer wrote"
        yield Finding("error", "quantization-undeclared", message, hint)


def _nothing_packed(stated: Mapping[str, Any]) -> Finding:
    message = (
        f"config.json declares weights quantized with {str(stated['quant_method'])[:40]!r}, "
        "and no tensor is packed so"
    )
    hint = "use the weights that the quantizer wrote, or the config.json of the plain ones"
    return Finding("error", "quantization-plain", message, hint)


def _check_companions(packed: Iterable[Packed]) -> Iterator[Finding]:
    missing = [one.missing for one in packed if one.missing]
    if missing:
        message = f"{_count(missing, 'tensor')} missing that packed weights need: "
        message += _listed(missing)
        yield Finding("error", "quantization-scale-missing", message, AGAIN)
    misshapen = [one.misshapen for one in packed if one.misshapen]
    if misshapen:
        message = (
            f"{_count(misshapen, 'packed weight')} stored with scales of another shape than "
            f"quantization_config declares: {_listed(misshapen, '; ')}"
        )
        yield Finding("error", "quantization-shape", message, AGAIN)


def _check_ignored(stated: Mapping[str, Any], packed: Iterable[Packed]) -> Iterator[Finding]:
    ignored = read_ignored(stated)
    names = [one.weight.name for one in packed if ignored.has(one.module)]
    if names:
        message = (
            f"{_count(names, 'packed weight')} in modules that quantization_config leaves plain: "
            f"{_listed(names)}"
        )
        hint = "take the modules off its list of ignored ones, or the checkpoint's plain weights"
        yield Finding("error", "quantization-ignored", message, hint)


def _find_plain(
    stated: Mapping[str, Any], model: ModelFiles, packed: Iterable[Packed]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Find plain weights that are declared packed: those of the model, and of its MTP head."""
    method, ignored = _method(stated), read_ignored(stated)
    if method not in SAYS_ALL or ignored.uncertain or stated.get("layer_quant_config"):
        return (), ()
    everywhere = _covers_all_linear(method, stated)
    if method == "compressed-tensors" and not everywhere:
        return (), ()  # its targets are names or patterns, and may well leave layers out
    if modelopt_algorithm(stated) == "MIXED_PRECISION":
        return (), ()  # as are the layers that it lists
    head = frozenset(tensor.name for tensor in read_head(model).tensors)
    kinds = {kind_of(one.module) for one in packed}
    plain, plain_head = [], []
    for tensor in model.tensors:
        name = tensor.name
        if tensor.dtype not in FLOATS or len(tensor.shape) != 2 or not name.endswith(".weight"):
            continue
        module = name.removesuffix(".weight")
        declared = kind_of(module) in kinds or (everywhere and module.endswith(EVERYWHERE))
        if not declared or ignored.has(module):
            continue
        if name in head:
            plain_head.append(name)
        elif _is_decoder(name):
            plain.append(name)
    return tuple(plain), tuple(plain_head)


def _check_fused(
    model: ModelFiles, packed: Iterable[Packed], declared: Iterable[str]
) -> Iterator[Finding]:
    """Find matrices that engines make one of, and that are packed in part."""
    refused = frozenset(name.removesuffix(".weight") for name in declared)  # refused already
    quantized = {one.module for one in packed}
    head = frozenset(tensor.name for tensor in read_head(model).tensors)
    plain = [
        module
        for tensor in model.tensors
        if tensor.dtype in FLOATS and len(tensor.shape) == 2 and tensor.name.endswith(".weight")
        if (module := tensor.name.removesuffix(".weight")) not in quantized
        if tensor.name not in head and _is_decoder(tensor.name) and module not in refused
    ]
    layers = find_layers(architecture_of(model.config))
    parts = list(find_partly_quantized(layers, quantized, plain))
    if parts:
        message = (
            "engines make one matrix of several that are quantized only in part: unquantized is "
            f"{_listed((one.words for one in parts), '; ')}"
        )
        yield Finding("error", "quantization-fused", message, AGAIN)


def _check_plain(names: tuple[str, ...]) -> Iterator[Finding]:
    if names:
        message = (
            f"{_count(names, 'weight')} plain though quantization_config declares them quantized: "
            f"{_listed(names)}"
        )
        hint = "name their modules among the ignored ones if they shall be plain; else " + AGAIN
        yield Finding("error", "quantization-plain", message, hint)


def _covers_all_linear(method: str, stated: Mapping[str, Any]) -> bool:
    """Whether every linear layer is declared packed that is not on the list of ignored ones."""
    if method == "awq":
        return True
    if method != "compressed-tensors":
        return False
    targets = [group.get("targets") for group in config_groups(stated)]
    return any(isinstance(one, list) and "Linear" in one for one in targets) and all(
        arguments_of(group, "weights") for group in config_groups(stated)
    )


def _check_values(values: ScaleValues) -> Iterator[Finding]:
    part = f", read in part: {values.read_bytes} of {values.total_bytes} bytes"
    sampled = part if values.read_bytes < values.total_bytes else ""
    if values.not_finite:
        message = f"{_count(values.not_finite, 'scale')} not finite: {_listed(values.not_finite)}"
        yield Finding("error", "quantization-scale-value", message + sampled, AGAIN)
    # Experts that calibration never reached have no range of inputs; engines take the largest.
    unreached = tuple(name for name in values.zero if UNREACHED.search(name))
    zero = tuple(name for name in values.zero if name not in frozenset(unreached))
    if zero:
        message = f"{_count(zero, 'scale')} 0 throughout: {_listed(zero)}"
        yield Finding("error", "quantization-scale-value", message + sampled, AGAIN)
    if unreached:
        message = (
            f"{_count(unreached, 'scale')} 0 for inputs of experts that calibration did not reach: "
            f"{_listed(unreached)}"
        )
        hint = "calibrate with more texts; compare the answers with the unquantized model's"
        yield Finding("warning", "quantization-scale-zero", message, hint)
    if values.some_zero:
        message = (
            f"{_count(values.some_zero, 'scale')} 0 in places, where the weights become 0: "
            f"{_listed(values.some_zero)}"
        )
        hint = "compare the answers with the unquantized model's"
        yield Finding("warning", "quantization-scale-zero", message + sampled, hint)


def _is_decoder(name: str) -> bool:
    match = LAYER.search(name)
    return match is not None and NOT_LANGUAGE.search(name, 0, match.end()) is None


def _listed(names: Iterable[str], between: str = ", ") -> str:
    found = list(names)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return between.join(name[:160] for name in found[:MOST_NAMED]) + more


def _count(names: Iterable[str], what: str) -> str:
    count = len(list(names))
    return f"1 {what} is" if count == 1 else f"{count} {what}s are"
