"""Plain weights from AutoAWQ's "gemm" format.

The inverse of `containers/tools/llmcompressor/gemm.py`: input-major, eight
outputs to a word, nibble i of a word holding output 8j + ORDER[i].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from packager_worker import BadInput

BITS, IN_WORD = 4, 8
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def dequantized(
    names: Iterable[str],
    get: Callable[[str], torch.Tensor],
    quantization: Any,
    dtype: torch.dtype,
) -> dict[str, torch.Tensor]:
    """Give every tensor of a file as a plain model has it."""
    settings = quantization if isinstance(quantization, dict) else vars(quantization)
    version = str(settings.get("version", settings.get("format", "gemm")))
    bits = settings.get("bits", BITS)
    if bits != BITS or not version.lower().endswith("gemm"):
        raise BadInput(f"of AWQ's formats only 4-bit gemm is read, not {bits}-bit {version}")
    made: dict[str, torch.Tensor] = {}
    for name in names:
        module, _, part = name.rpartition(".")
        if part in ("qzeros", "scales"):
            continue  # taken with the packed weight
        if part != "qweight":
            made[name] = get(name)
            continue
        weight = dequantize(get(name), get(f"{module}.qzeros"), get(f"{module}.scales"))
        made[f"{module}.weight"] = weight.to(dtype)
    return made


def dequantize(words: torch.Tensor, zeros: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Give `[outputs, inputs]` of `(integer - zero point) * scale`, in float32."""
    integers = unpack(words)
    group = integers.shape[0] // scales.shape[0]
    steps = scales.float().repeat_interleave(group, 0)
    middle = unpack(zeros).repeat_interleave(group, 0)
    return ((integers - middle) * steps).T.contiguous()


def unpack(words: torch.Tensor) -> torch.Tensor:
    """`[r, c/8]` interleaved words to `[r, c]` of 0..15."""
    nibbles = torch.stack([(words >> (BITS * ORDER.index(at))) & 15 for at in range(IN_WORD)], -1)
    return nibbles.reshape(words.shape[0], -1)
