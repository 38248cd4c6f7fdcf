"""Quantization of a checkpoint, as its config describes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packager.core.findings import Finding
from packager.core.model import TensorInfo
from packager.models.architectures.demands import arguments_of, config_groups, stated_quantization

# method → format, for methods that have one only; packed integers also need their bits
ONE_FORMAT = {
    "fp8": ("fp8_w8a8", 8),
    "fbgemm_fp8": ("fp8_w8a8", 8),
    "mxfp4": ("mxfp4", 4),  # GPT-OSS
}
PACKED_METHODS = {"awq", "gptq", "auto-round"}
COMPRESSED_FORMATS = {
    "float-quantized": "fp8_w8a8",
    "int-quantized": "int8_w8a8",
    "nvfp4-pack-quantized": "nvfp4_w4a4",
    "mxfp4-pack-quantized": "mxfp4",
    "mxfp8-quantized": "mxfp8",
}
MODELOPT_FORMATS = {"FP8": ("fp8_w8a8", 8), "NVFP4": ("nvfp4_w4a4", 4)}

# Names of tensors that hold several weights in one word, and of those that hold none.
PACKED = (".qweight", ".weight_packed", "_blocks")
NO_WEIGHTS = (
    ".qzeros",
    ".scales",
    "_scales",
    ".g_idx",
    ".weight_scale",
    ".weight_scale_2",
    ".weight_scale_inv",
    ".weight_global_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
    ".input_scale",
    ".input_scale_ub",
    ".input_global_scale",
    ".input_zero_point",
    ".k_scale",
    ".v_scale",
    ".SCB",
    ".weight_format",
    ".absmax",
    ".quant_map",
    ".nested_absmax",
    ".nested_quant_map",
    ".bitsandbytes__nf4",
    ".bitsandbytes__fp4",
)

WORD_BITS = {"I32": 32, "U8": 8, "I8": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """How the weights of a checkpoint were quantized. All empty for unquantized ones."""

    method: str = ""
    weight_format: str = ""
    bits: int = 0
    group_size: int = 0
    others: tuple[str, ...] = ()  # further formats, of models whose parts have several
    options: tuple[str, ...] = ()  # as `--quantize` calls them: `static`, `block`, `kv`


def read_quantization(config: Mapping[str, Any]) -> tuple[Quantized, list[Finding]]:
    """Read `quantization_config`, at the top of config.json or in the part that it nests."""
    stated = config.get("quantization_config")
    if stated is None:
        stated = stated_quantization(config)
        if not stated:
            return Quantized(), []
    method = stated.get("quant_method") if isinstance(stated, Mapping) else None
    if not isinstance(stated, Mapping) or not isinstance(method, str) or not method:
        message = "config.json has a quantization_config that names no quant_method"
        hint = "use the config.json that the quantizer wrote"
        return Quantized(), [Finding("error", "quantization-unreadable", message, hint)]
    if method in ONE_FORMAT:
        weight_format, bits = ONE_FORMAT[method]
        return _blocked(method, weight_format, bits, stated), []
    if method in PACKED_METHODS:
        return _packed(method, stated), []
    if method == "compressed-tensors":
        return _compressed(stated), []
    if method == "bitsandbytes":
        return Quantized(method=method, bits=4 if stated.get("load_in_4bit") is True else 8), []
    algorithm = stated.get("quant_algo")
    if method == "modelopt" and isinstance(algorithm, str) and algorithm in MODELOPT_FORMATS:
        weight_format, bits = MODELOPT_FORMATS[algorithm]
        return Quantized(method=method, weight_format=weight_format, bits=bits), []
    message = (
        f"packager has no row for quantization method {method[:40]!r}: whether the device has "
        "kernels for it is not checked"
    )
    hint = "try the image before you rely on it, or use awq, gptq, fp8 or compressed-tensors"
    return Quantized(method=method), [Finding("warning", "quantization-unknown", message, hint)]


def parameters_in(tensor: TensorInfo, quantization: Quantized) -> int | None:
    """Count the weights in a tensor; None if packed words hold an unknown number."""
    elements = math.prod(tensor.shape)
    if not quantization.method:
        return elements
    if tensor.name.endswith(NO_WEIGHTS):
        return 0
    if tensor.name.endswith(PACKED) or tensor.dtype == "U8":
        if tensor.dtype == "U8" and tensor.name.endswith(".weight_packed"):
            return 2 * elements  # FP4
        if tensor.dtype not in WORD_BITS or not quantization.bits:
            return None
        # 3 bits do not fill a word evenly: multiply before dividing.
        return elements * WORD_BITS[tensor.dtype] // quantization.bits
    return elements


def holds_no_weights(name: str) -> bool:
    """Whether a tensor holds scales or the like."""
    return name.endswith(NO_WEIGHTS)


def _blocked(method: str, weight_format: str, bits: int, stated: Mapping[str, Any]) -> Quantized:
    """Read the block size that shares a scale, as in DeepSeek-V3: 128 by 128, never split."""
    block = stated.get("weight_block_size")
    inputs = block[1] if isinstance(block, list) and len(block) == 2 else 0
    scheme = stated.get("activation_scheme")
    return Quantized(
        method=method,
        weight_format=weight_format,
        bits=bits,
        group_size=_count(inputs),
        options=("block",) if block else ("static",) if scheme == "static" else (),
    )


def _packed(method: str, stated: Mapping[str, Any]) -> Quantized:
    bits = _count(stated.get("bits"))
    return Quantized(
        method=method,
        weight_format="w4a16" if bits == 4 else "",
        bits=bits,
        group_size=_count(stated.get("group_size")),
    )


def _compressed(stated: Mapping[str, Any]) -> Quantized:
    groups = tuple(config_groups(stated)) or ({},)
    weights = [arguments_of(group, "weights") for group in groups]
    sizes = [size for one in weights if (size := _count(one.get("group_size")))]
    formats = dict.fromkeys(
        _compressed_format(
            group.get("format") or stated.get("format"), _count(one.get("num_bits")), group
        )
        for group, one in zip(groups, weights, strict=True)
    )
    words = [one for group, one in zip(groups, weights, strict=True) if _in_words(stated, group)]
    packed = next(iter((*words, *weights)), {})
    return Quantized(
        method="compressed-tensors",
        weight_format=next(iter(formats), ""),
        bits=_count(packed.get("num_bits")),
        group_size=min(math.lcm(*sizes), 2**16) if sizes else 0,
        others=tuple(formats)[1:],
        options=tuple(_compressed_options(stated, weights[0], groups[0])),
    )


def _in_words(stated: Mapping[str, Any], group: Mapping[str, Any]) -> bool:
    """Whether words of a group hold several integers; FP4's have a type of their own."""
    return (group.get("format") or stated.get("format")) == "pack-quantized"


def _compressed_format(layout: object, bits: int, group: object) -> str:
    """Return the kernels that a group needs; "" if they do not depend on the instance."""
    inputs = group.get("input_activations") if isinstance(group, Mapping) else None
    if layout == "pack-quantized":
        return "w4a16" if bits == 4 and not inputs else ""
    if layout == "nvfp4-pack-quantized" and not inputs:
        return "nvfp4_w4a16"
    if layout == "int-quantized" and bits not in (0, 8):
        return ""  # INT4, a byte each
    return COMPRESSED_FORMATS.get(layout, "") if isinstance(layout, str) else ""


def _compressed_options(
    stated: Mapping[str, Any], weights: Mapping[str, Any], first: object
) -> Iterator[str]:
    """Yield the properties that make engines choose another kernel, or none."""
    activations = first.get("input_activations") if isinstance(first, Mapping) else None
    if weights.get("strategy") == "block":
        yield "block"
    elif isinstance(activations, Mapping) and activations.get("dynamic") is False:
        yield "static"
    if stated.get("kv_cache_scheme"):
        yield "kv"


def _count(value: object) -> int:
    """Return a positive integer; anything else, such as -1 for "whole channels", is 0."""
    return value if type(value) is int and 0 < value <= 2**16 else 0
