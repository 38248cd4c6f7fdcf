"""What llm-compressor is told: modifiers for a method and its settings.

| method | settings | modifiers |
|---|---|---|
| awq | symmetric, group_size | AWQ scaling, then rounding |
| gptq | symmetric, group_size | GPTQ |
| autoround | symmetric, group_size, iterations | AutoRound |
| fp8 | activations: dynamic, static or block; kv_cache | rounding |
| smoothquant | smoothing_strength, gptq | SmoothQuant, then rounding or GPTQ, 8 bits both |
| nvfp4 | scheme: `NVFP4` for activations, too | rounding to NVFP4 |
| kv | kv_cache | none: scales of the KV cache are measured |
| mxfp4, mxfp8 | scheme: of compressed-tensors | rounding to an MX format |
| w4afp8 | group_size | rounding to 4 bits, FP8 activations |
| int8 | | rounding to 8 bits both, without data |
| rtn | symmetric, group_size, bits: 8 for others than 4 | rounding without data |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from compressed_tensors.config import CompressionFormat
from compressed_tensors.quantization import QuantizationScheme, preset_name_to_scheme
from folding import Proof, make_awq, make_smoothquant
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from mixing import NONE, Group, is_quantized
from packager_worker import Rejected
from smoothing import Rounding

TARGETS = ["Linear"]
FP8 = {"dynamic": "FP8_DYNAMIC", "static": "FP8", "block": "FP8_BLOCK"}
ROUNDED = ("int8", "rtn", "mxfp4", "mxfp8", "w4afp8")
DATA_FREE = ("FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16")
# The library stores INT4 beside quantized activations a byte each, which no engine loads.
FORMATS = {"W4AFP8": CompressionFormat.pack_quantized}
KV_FP8 = {
    "num_bits": 8,
    "type": "float",
    "strategy": "tensor",
    "dynamic": False,
    "symmetric": True,
}


def make_recipe(asked: Mapping[str, Any], proof: Proof, note: Callable[[str], None]) -> list[Any]:
    """Return the modifiers in order; those that move scales prove it with `proof`."""
    if asked["method"] == "kv":
        return [QuantizationModifier(targets=[], kv_cache_scheme=KV_FP8)]
    common = _common(asked)
    match asked["method"]:
        case "awq":
            return [make_awq(proof, duo_scaling="both"), QuantizationModifier(**common)]
        case "gptq":
            return [GPTQModifier(**common)]
        case "autoround":
            return [_autoround(asked["iterations"], common)]
        case "smoothquant":
            last = GPTQModifier if asked.get("gptq") else QuantizationModifier
            strength = asked["smoothing_strength"]
            scheme = preset_name_to_scheme(preset_of(asked), TARGETS)
            rounding = Rounding(scheme.weights, scheme.input_activations, note)
            smoothing = make_smoothquant(proof, rounding, smoothing_strength=strength)
            return [smoothing, last(**common)]
        case "fp8" | "int8" | "nvfp4" | "rtn" | "mxfp4" | "mxfp8" | "w4afp8":
            return [QuantizationModifier(**common)]
    raise Rejected(f"this worker does not know method {asked['method']!r}")


def make_mixed(
    asked: Mapping[str, Any], groups: list[Group], targets: list[list[str]]
) -> list[Any]:
    """Return the modifier that rounds each group of modules in its own way."""
    schemes = {}
    for number, (group, own) in enumerate(zip(groups, targets, strict=True)):
        if group.modules and is_quantized(group):
            scheme = _scheme(group.settings)
            scheme.targets = own
            schemes[f"group_{number}"] = scheme.model_dump()
    left = [one for group in groups if not is_quantized(group) for one in group.modules]
    settings = {"kv_cache_scheme": KV_FP8} if asked.get("kv_cache") else {}
    ignore = [*asked["ignore"], *left]
    return [QuantizationModifier(config_groups=schemes, ignore=ignore, **settings)]


def needs_data(asked: Mapping[str, Any]) -> bool:
    """Whether a method looks at activations."""
    return bool(asked.get("kv_cache")) or any(
        one["method"] not in (NONE, *ROUNDED) and preset_of(one) not in DATA_FREE
        for one in (asked, *asked.get("layers", ()))
    )


def preset_of(asked: Mapping[str, Any]) -> str:
    """Name the format among the presets of compressed-tensors."""
    match asked["method"]:
        case "awq" | "gptq" | "rtn" | "autoround":
            return "W4A16" if asked["symmetric"] else "W4A16_ASYM"
        case "fp8":
            return FP8[asked["activations"]]
        case "smoothquant" | "int8":
            return "W8A8"
        case "nvfp4":
            return str(asked.get("scheme", "NVFP4A16"))
        case "mxfp4" | "mxfp8":
            return str(asked["scheme"])
        case "w4afp8":
            return "W4AFP8"
    raise Rejected(f"this worker does not know method {asked['method']!r}")


def _autoround(iterations: int, common: dict[str, Any]) -> Any:
    """Make the modifier without torch.compile, whose code depends on the machine."""
    from llmcompressor.modifiers.autoround import AutoRoundModifier

    return AutoRoundModifier(iters=iterations, enable_torch_compile=False, **common)


def _common(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The format and what stays out of it. A preset by name, unless its groups differ."""
    settings: dict[str, Any] = {"ignore": list(asked["ignore"])}
    preset = preset_of(asked)
    if asked.get("kv_cache"):
        settings["kv_cache_scheme"] = KV_FP8
    scheme = _scheme(asked)
    if scheme == preset_name_to_scheme(preset, TARGETS):
        return {**settings, "scheme": preset, "targets": TARGETS}
    return {**settings, "config_groups": {"group_0": scheme.model_dump()}}


def _scheme(asked: Mapping[str, Any]) -> QuantizationScheme:
    """Return a method's preset, with the size of groups and the format that were asked for."""
    preset, group = preset_of(asked), asked.get("group_size")
    scheme = preset_name_to_scheme(preset, TARGETS)
    if group and scheme.weights is not None and scheme.weights.group_size is not None:
        scheme.weights.group_size = group
        scheme.weights.num_bits = asked.get("bits", scheme.weights.num_bits)
    scheme.format = FORMATS.get(preset)
    return scheme
