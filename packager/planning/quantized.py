"""What an already quantized checkpoint says about itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.core.findings import Finding
from packager.core.model import TensorInfo

# method → format, for methods that have one only; packed integers also need their bits
FP8_METHODS = {"fp8": "fp8_w8a8", "fbgemm_fp8": "fp8_w8a8"}
PACKED_METHODS = {"awq", "gptq"}
COMPRESSED_FORMATS = {
    "float-quantized": "fp8_w8a8",
    "int-quantized": "int8_w8a8",
    "nvfp4-pack-quantized": "nvfp4_w4a4",
}

# Names of tensors that hold several weights in one 32-bit word, and of those that hold none.
PACKED = (".qweight", ".weight_packed")
NO_WEIGHTS = (
    ".qzeros",
    ".scales",
    ".g_idx",
    ".weight_scale",
    ".weight_scale_inv",
    ".weight_global_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
    ".input_scale",
    ".input_global_scale",
    ".input_zero_point",
    ".k_scale",
    ".v_scale",
)

WORD_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How the weights were quantized. All empty when they were not."""

    method: str = ""
    weight_format: str = ""
    bits: int = 0
    group_size: int = 0


def read_quantization(config: Mapping[str, Any]) -> tuple[Quantization, list[Finding]]:
    """Read `quantization_config`, as every quantizer writes it into config.json."""
    stated = config.get("quantization_config")
    if stated is None:
        return Quantization(), []
    method = stated.get("quant_method") if isinstance(stated, Mapping) else None
    if not isinstance(stated, Mapping) or not isinstance(method, str) or not method:
        message = "config.json has a quantization_config that names no quant_method"
        hint = "use the config.json that the quantizer wrote"
        return Quantization(), [Finding("error", "quantization-unreadable", message, hint)]
    if method in FP8_METHODS:
        return Quantization(method=method, weight_format=FP8_METHODS[method], bits=8), []
    if method in PACKED_METHODS:
        return _packed(method, stated), []
    if method == "compressed-tensors":
        return _compressed(stated), []
    message = f"quantization method {method[:40]!r} is not known here; the engine must know it"
    hint = "try the image before you rely on it, or use awq, gptq, fp8 or compressed-tensors"
    return Quantization(method=method), [Finding("warning", "quantization-unknown", message, hint)]


def count_parameters(tensors: tuple[TensorInfo, ...], quantization: Quantization) -> int:
    """Count weights; 0 when packed words do not tell how many they hold."""
    total = 0
    for tensor in tensors:
        if quantization.method and tensor.name.endswith(NO_WEIGHTS):
            continue
        elements = math.prod(tensor.shape)
        if tensor.name.endswith(PACKED):
            if tensor.dtype != "I32" or not quantization.bits:
                return 0
            # 3 bits do not fill a word evenly: multiply before dividing.
            elements = elements * WORD_BITS // quantization.bits
        elif quantization.method and tensor.dtype == "U8":
            return 0  # bitsandbytes and NVFP4: two weights in a byte, or none
        total += elements
    return total


def _packed(method: str, stated: Mapping[str, Any]) -> Quantization:
    bits = _count(stated.get("bits"))
    return Quantization(
        method=method,
        weight_format="w4a16" if bits == 4 else "",
        bits=bits,
        group_size=_count(stated.get("group_size")),
    )


def _compressed(stated: Mapping[str, Any]) -> Quantization:
    groups = stated.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    weights = weights if isinstance(weights, Mapping) else {}
    bits = _count(weights.get("num_bits"))
    layout = stated.get("format")
    known = COMPRESSED_FORMATS.get(layout, "") if isinstance(layout, str) else ""
    return Quantization(
        method="compressed-tensors",
        weight_format="w4a16" if layout == "pack-quantized" and bits == 4 else known,
        bits=bits,
        group_size=_count(weights.get("group_size")),
    )


def _count(value: object) -> int:
    """Take a positive whole number; anything else, such as -1 for "whole channels", is 0."""
    return value if type(value) is int and 0 < value <= 2**16 else 0
