"""From compressed-tensors to AutoAWQ's "gemm" format, without loss.

Both hold the same integers, scales and zero points in another order.  AWQ
writes input-major, eight outputs to a word, interleaved; compressed-tensors
writes output-major, eight inputs to a word.  Formats: AutoAWQ 0.2.9
`awq/modules/linear/gemm.py`, compressed-tensors 0.19.0 `pack_quantized`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from packager_worker import Rejected

BITS, IN_WORD = 4, 8
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # nibble i of a word holds output 8j + ORDER[i]
MIDDLE = 8  # symmetric weights are stored unsigned, around this


def check_convertible(quantization: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments of the weights, or say why gemm cannot hold them."""
    groups = quantization["config_groups"]
    weights = next(iter(groups.values()))["weights"]
    if len(groups) != 1 or quantization["format"] != "pack-quantized":
        raise Rejected("AWQ's format holds one packed scheme only")
    if weights["num_bits"] != BITS or weights["strategy"] != "group" or weights.get("actorder"):
        raise Rejected("AWQ's format holds 4 bits in groups, in the order of the inputs")
    return weights


def gemm_config(quantization: dict[str, Any], branches: Iterable[str] = ()) -> dict[str, Any]:
    """Write `quantization_config` as AutoAWQ does; nothing in `branches` is quantized."""
    weights = check_convertible(quantization)
    kept = [name for name in quantization["ignore"] if not name.startswith("re:")]
    kept += [f"{branch}." for branch in branches]
    return {
        "quant_method": "awq",
        "version": "gemm",
        "bits": BITS,
        "group_size": weights["group_size"],
        "zero_point": True,
        "modules_to_not_convert": kept or None,
    }


def to_gemm(name: str, get: Callable[[str], torch.Tensor], *, symmetric: bool) -> dict[str, Any]:
    """Turn the tensors of the module that `name` belongs to; others pass through."""
    module, _, part = name.rpartition(".")
    if part in ("weight_scale", "weight_shape", "weight_zero_point"):
        return {}  # taken with the packed weight
    if part != "weight_packed":
        return {name: get(name)}
    outputs, inputs = get(f"{module}.weight_shape").tolist()
    scales = get(f"{module}.weight_scale")
    weights = _unpack(get(name), inputs)
    if symmetric:
        zeros = torch.full(scales.shape, MIDDLE, dtype=torch.int32)
    else:
        zeros = _unpack(get(f"{module}.weight_zero_point").T.contiguous(), outputs).T
    return {
        f"{module}.qweight": _pack(weights.T),
        f"{module}.qzeros": _pack(zeros.T),
        f"{module}.scales": scales.T.contiguous().to(torch.float16),
    }


def _unpack(words: torch.Tensor, columns: int) -> torch.Tensor:
    """`[r, c/8]` words to `[r, c]` of 0..15: nibble i holds column 8j + i."""
    nibbles = torch.stack([(words >> (BITS * place)) & 15 for place in range(IN_WORD)], -1)
    return nibbles.reshape(words.shape[0], -1)[:, :columns]


def _pack(values: torch.Tensor) -> torch.Tensor:
    """`[r, c]` of 0..15 to `[r, c/8]` words, interleaved."""
    groups = values.reshape(values.shape[0], -1, IN_WORD)[..., list(ORDER)].to(torch.int64)
    words = sum(groups[..., place] << (BITS * place) for place in range(IN_WORD))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32).contiguous()
