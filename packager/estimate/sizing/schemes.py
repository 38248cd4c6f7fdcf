"""Quantized formats: which one a method gives on a device, and how large the weights become.

Only matrices of the layers are packed.  Embeddings, the head, norms and the
routers of experts stay as they are, so a 4-bit model is never a quarter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.instance import GPUS, Instance
from packager.core.model import ModelFiles, ModelProfile
from packager.core.suggestions import guessed
from packager.core.techniques import LayerGroup, Quantization, Rejected, Scheme
from packager.core.traits import EngineTraits
from packager.estimate.sizing.blocks import read_blocks
from packager.estimate.sizing.memory import ELEMENT_BYTES, served_weight_bytes
from packager.estimate.sizing.processors import check_kernel, may_compute
from packager.estimate.sizing.quantizable import Support, support_of, why_not

W4A16 = Scheme(
    name="W4A16", needs="w4a16", word="w4a16", bits=4, group_size=128, zero_bits=4
)  # Llama-3-70B: 39.8 GB
W8A8_FP8 = Scheme(name="W8A8-FP8", needs="fp8_w8a8", word="fp8", bits=8)
W8A16_FP8 = Scheme(name="W8A16-FP8", needs="fp8_w8a16", word="fp8", bits=8)
W8A8_INT8 = Scheme(name="W8A8-INT8", needs="int8_w8a8", word="w8a8", bits=8, scale_bytes=4)

# method → schemes it can give, best first; the device chooses.
# FP8 runs as W8A8 where there is FP8 arithmetic, as weights only (Marlin) from Turing on.
METHODS: dict[str, tuple[Scheme, ...]] = {
    "awq": (W4A16,),
    "gptq": (W4A16,),
    "fp8": (W8A8_FP8, W8A16_FP8),
    "smoothquant": (W8A8_INT8,),
}
NONE = "none"

# What an already quantized checkpoint is, in the same words: (scheme, checkpoint format).
EXISTING_SCHEMES = {
    "w4a16": "W4A16",
    "int8_w8a8": "W8A8-INT8",
    "nvfp4_w4a4": "NVFP4",
    "nvfp4_w4a16": "NVFP4A16",
    "mxfp4": "MXFP4",
    "mxfp8": "MXFP8",
}


@dataclass(frozen=True, slots=True)
class QuantizationChoice:
    """Chosen quantization, or why it is impossible. Both empty: weights stay unquantized."""

    quantization: Quantization | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeRequest:
    """`[QUANTIZER:]METHOD[,OPTION…]`, taken apart. An option is `NAME` or `NAME=VALUE`."""

    method: str
    quantizer: str = ""
    options: tuple[tuple[str, str], ...] = ()  # sorted; the value of a bare name is ""


def parse_quantize(asked: str) -> QuantizeRequest:
    """Parse the value of `--quantize`; does not check that method and options exist."""
    named, *options = (part.strip() for part in asked.split(","))
    quantizer, _, method = named.rpartition(":")
    pairs = ((name.strip(), text.strip()) for name, _, text in (o.partition("=") for o in options))
    return QuantizeRequest(
        method=method, quantizer=quantizer, options=tuple(sorted(dict(pairs).items()))
    )


def choose_quantization(
    asked: str | None,
    profile: ModelProfile,
    instance: Instance,
    container: ContainerFacts,
    methods: Mapping[str, tuple[Scheme, ...]] = MappingProxyType({}),
    *,
    model: ModelFiles | None = None,
    ignore: tuple[str, ...] | None = None,
    untested: bool = False,
) -> QuantizationChoice:
    """Decide the scheme for the requested method. Without a request nothing is quantized.

    `methods` are those of the quantizer that will do it; `QUANTIZER:METHOD` has named it.  With
    `model` and its unquantized modules, the model and the table of architectures (`quantizable.py`)
    count; `untested` allows methods without a row.
    """
    wanted = parse_quantize(asked) if asked else None
    methods = {**METHODS, **methods}
    if profile.quantization:
        return _existing(wanted.method if wanted else None, profile, instance)
    if wanted is None or wanted.method == NONE:
        return QuantizationChoice(None)
    method = wanted.method
    if method not in methods:
        choices = (NONE, *methods)
        hint = guessed(method, choices, f"choose one of {', '.join(choices)}", kind="quantize")
        return _refused(
            "quantize-unknown", f"there is no quantization method {method[:40]!r}", hint
        )
    if not profile.linear_parameters:
        message = f"{method} finds no quantizable linear layers: the architecture is unknown"
        return _refused("quantize-nothing", message, "serve the model as it is: `--quantize none`")
    names = [name for name, _ in wanted.options]
    schemes = offered_schemes(methods[method], names)
    served = [one for one in schemes if _serves(one, instance, container.traits)]
    scheme, problem = _with_options((served or schemes)[0], wanted.options)
    quantization = Quantization(
        method=method,
        scheme=scheme.name,
        bits=scheme.bits,
        group_size=scheme.group_size,
        checkpoint_format=_checkpoint_format(method, container.traits),
        layout=scheme,
        options=wanted.options,
    )
    if problem:
        return QuantizationChoice(quantization, (problem,))
    others = _others(methods, profile, instance, container, model, ignore)
    tried: tuple[Finding, ...] = ()
    if model is not None:
        support = support_of(
            model, profile, method, names, ignore, container=container, untested=untested
        )
        if support.refused:
            error = _no_architecture(profile.architecture, method, support, others)
            return QuantizationChoice(quantization, (error,))
        tried = () if support.tried else (_untried(profile.architecture, method),)
    if not served:
        lacking = _lacking_kernel(scheme, method, instance, container.traits, others)
        return QuantizationChoice(quantization, lacking)
    noted = (*_note_kernel(scheme, instance, container.traits), *tried)
    return QuantizationChoice(quantization, noted)


def _others(
    methods: Mapping[str, tuple[Scheme, ...]],
    profile: ModelProfile,
    instance: Instance,
    container: ContainerFacts,
    model: ModelFiles | None,
    ignore: tuple[str, ...] | None,
) -> list[str]:
    """Return the methods that engine and device serve, and that the model does not refuse."""
    return [
        name
        for name, schemes in methods.items()
        if any(scheme.needs and _serves(scheme, instance, container.traits) for scheme in schemes)
        and (
            model is None
            or not support_of(model, profile, name, ignore=ignore, container=container).refused
        )
    ]


def _note_kernel(scheme: Scheme, instance: Instance, traits: EngineTraits) -> tuple[Finding, ...]:
    """Note that weights are unpacked before each product, or that the kernel is unknown."""
    if scheme.name != W8A16_FP8.name:
        return check_kernel(scheme.needs, instance, traits)
    message = (
        f"{instance.device_name} has no FP8 arithmetic: weights are FP8, computing is "
        "16 bits; less memory, hardly faster"
    )
    return (Finding("note", "format-weights-only", message),)


def offered_schemes(schemes: tuple[Scheme, ...], options: Collection[str]) -> tuple[Scheme, ...]:
    """Return the schemes of a method that its options leave: one that an option names, alone."""
    named = tuple(scheme for scheme in schemes if scheme.option in options)
    return named or tuple(scheme for scheme in schemes if not scheme.option)


def _lacking_kernel(
    scheme: Scheme, method: str, instance: Instance, traits: EngineTraits, others: list[str]
) -> tuple[Finding, ...]:
    instead = " or ".join(f"`--quantize {other}`" for other in others)
    hint = f"`--quantize {others[0]}`" if others else "choose `--quantize none`"
    if scheme.option:  # the method works without it
        method = f"{method},{scheme.option}"
        hint = f"leave {scheme.option} out"
    message = f"{instance.device_name} has no kernel for {method}"
    error = Finding("error", "quantize-unsupported", message, f"{hint}, or another instance")
    return check_kernel(scheme.needs, instance, traits, instead) or (error,)


def _no_architecture(
    architecture: str, method: str, support: Support, others: list[str]
) -> Finding:
    instead = " or ".join(f"`--quantize {other}`" for other in others[:2])
    hint = f"use {instead or '`--quantize none`'}"
    message = why_not(support, method, architecture)
    if support.tried:
        return Finding("error", "quantize-architecture", message, hint)
    hint = f"try it with `--try-untested` and compare the result by `--evaluate`, or {hint}"
    return Finding("error", "quantize-untried", message, hint)


def _untried(architecture: str, method: str) -> Finding:
    message = f"{method} was not tried with {architecture}"
    hint = "compare the result with the source: `--evaluate default`"
    return Finding("warning", "quantize-untried", message, hint)


def _with_options(
    scheme: Scheme, options: tuple[tuple[str, str], ...]
) -> tuple[Scheme, Finding | None]:
    """Apply the options that change what a weight costs; the quantizer knows all of them."""
    for name, text in options:
        if name == "group" and scheme.group_size:
            if not text.isdecimal() or not 8 <= int(text) <= 4096 or int(text) % 8:
                message = f"{text[:40]!r} is not a valid group size"
                hint = "write a multiple of 8 such as `group=64`; most kernels want 32, 64 or 128"
                return scheme, Finding("error", "quantize-option", message, hint)
            scheme = replace(scheme, group_size=int(text))
        elif name == "symmetric" and scheme.group_size:
            scheme = replace(scheme, zero_bits=0)
        elif name == "asymmetric" and scheme.group_size:
            scheme = replace(scheme, zero_bits=scheme.bits)
    return scheme, None


def rejected_methods(
    profile: ModelProfile,
    instance: Instance,
    tp_degree: int,
    container: ContainerFacts,
    model: ModelFiles,
) -> tuple[Rejected, ...]:
    """Return why methods that were not requested are impossible here; a missing one is possible."""
    if profile.quantization or not profile.linear_parameters:
        return ()
    found = []
    for method, schemes in METHODS.items():
        served = [scheme for scheme in schemes if _serves(scheme, instance, container.traits)]
        cut = _refuse_groups(profile, model, tp_degree, method, served[0]) if served else ""
        support = support_of(model, profile, method, container=container)
        if support.refused:
            reason = why_not(support, method, profile.architecture)
            code = "quantize-architecture" if support.tried else "quantize-untried"
            instead = "another method" if support.tried else "`--try-untested`"
        elif not served:
            reason = f"{instance.device_name} has no kernel for {method}"
            code, instead = "quantize-unsupported", "another instance"
        elif cut:
            reason = f"{method} at TP {tp_degree}: {cut}"
            code, instead = "tp-not-allowed", "a smaller tp"
        else:
            continue
        found.append(Rejected(what=f"quantize {method}", code=code, reason=reason, instead=instead))
    return tuple(found)


def _refuse_groups(
    profile: ModelProfile, model: ModelFiles, degree: int, method: str, scheme: Scheme
) -> str:
    wanted = Quantization(
        method=method,
        scheme=scheme.name,
        bits=scheme.bits,
        group_size=scheme.group_size,
        layout=scheme,
    )
    blocked = read_blocks(model, profile, wanted)
    return blocked.refuse(degree) or blocked.refuse_experts(degree)


def quantized_weight_bytes(profile: ModelProfile, quantization: Quantization | None) -> int:
    """Return the bytes that the engine loads: packed matrices with scales, the rest in 16 bits."""
    whole = served_weight_bytes(profile)
    if quantization is None or quantization.existing:
        return whole
    if quantization.groups:
        return whole - sum(
            _saved_bytes(profile, one.quantization, one.parameters)
            for one in quantization.groups
            if one.quantization is not None
        )
    left = profile.linear_parameters - quantization.parameters_left_out
    return whole - _saved_bytes(profile, quantization, max(0, left))


def _saved_bytes(profile: ModelProfile, quantization: Quantization, count: int) -> int:
    """Return the bytes that `count` weights of matrices take less than in 16 bits."""
    scheme = scheme_of(quantization)
    # Without groups there is a scale for each output: about one in `hidden_size` weights.
    scales = count // (scheme.group_size or max(1, profile.hidden_size))
    packed_bits = count * scheme.bits + scales * (8 * scheme.scale_bytes + scheme.zero_bits)
    return count * ELEMENT_BYTES - packed_bits // 8


def scheme_of(quantization: Quantization) -> Scheme:
    """Find the scheme that a quantization of ours gives."""
    if quantization.layout is not None:
        return quantization.layout
    schemes = METHODS[quantization.method]
    return next(scheme for scheme in schemes if scheme.name == quantization.scheme)


def _serves(scheme: Scheme, instance: Instance, traits: EngineTraits) -> bool:
    """Whether the engine has kernels for the scheme on this kind of device."""
    if not scheme.needs:
        return True
    if instance.kind == "cpu":
        return may_compute(scheme.needs, instance, traits) and not scheme.capabilities
    if instance.kind not in GPUS or scheme.needs not in instance.formats:
        return False
    first, last = scheme.capabilities or (0.0, math.inf)
    return first <= (instance.compute_capability or 0.0) <= last


def _checkpoint_format(method: str, traits: EngineTraits) -> str:
    """Return the format to write: AWQ's own where the engine reads zero points in no other."""
    return traits.awq_format if method == "awq" else "compressed-tensors"


def _existing(asked: str | None, profile: ModelProfile, instance: Instance) -> QuantizationChoice:
    method = profile.quantization
    if asked not in (None, NONE, method) and not _same_format(asked, profile):
        message = (
            f"the checkpoint is already quantized with {method}; "
            f"quantizing it again with {asked} is not supported"
        )
        hint = f"use `--quantize none`, or take the unquantized checkpoint for {asked}"
        return _refused("already-quantized", message, hint)
    formats = (profile.weight_format, *profile.other_formats)
    first, *others = (_existing_format(one, profile, instance) for one in formats)
    groups = tuple(
        LayerGroup(target="", quantization=one, parameters=0, modules=0) for one in (first, *others)
    )
    return QuantizationChoice(replace(first, groups=groups) if others else first)


def _existing_format(weight_format: str, profile: ModelProfile, instance: Instance) -> Quantization:
    """Describe an existing checkpoint, or the part of it that has a format."""
    scheme = EXISTING_SCHEMES.get(weight_format, "")
    if weight_format == "fp8_w8a8":
        scheme = "W8A8-FP8" if "fp8_w8a8" in instance.formats else "W8A16-FP8"
    return Quantization(
        method=profile.quantization,
        scheme=scheme,
        bits={"W4A16": 4, "NVFP4": 4, "NVFP4A16": 4, "MXFP4": 4}.get(scheme, 8 if scheme else 0),
        group_size=profile.group_size,
        checkpoint_format=profile.quantization,
        existing=True,
        options=tuple((name, "") for name in profile.quantization_options),
    )


def _same_format(asked: str, profile: ModelProfile) -> bool:
    """Whether a checkpoint by another writer is what the method would give."""
    return profile.quantization == "compressed-tensors" and any(
        profile.weight_format == scheme.needs for scheme in METHODS.get(asked, ())
    )


def _refused(code: str, message: str, hint: str) -> QuantizationChoice:
    return QuantizationChoice(None, (Finding("error", code, message, hint),))
