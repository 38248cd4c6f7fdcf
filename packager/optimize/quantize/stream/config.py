"""`quantization_config` of a checkpoint that is quantized in the stream: as the library writes it.

Fields and their order are those of compressed-tensors 0.19 as the worker stores them
(`containers/tools/llmcompressor/readers.py`); `tests/live/test_stream.py` compares whole files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from packager.core.model import TensorInfo
from packager.core.techniques import Quantization
from packager.optimize.quantize.stream.formats import BLOCK, Format

EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_(?:tokens|in|positions)|w[tp]e|(?:\w+_)?embeddings?|pos_embed)\.weight$"
)
HEAD = "lm_head"
_VERSION = "0.19.0"  # of compressed-tensors, whose format it is
_SCALES = {"nvfp4": "torch.float8_e4m3fn", "mxfp4": "torch.uint8", "mxfp8": "torch.uint8"}
_FORMATS = {
    "fp8": "float-quantized",
    "int8": "int-quantized",
    "nvfp4": "nvfp4-pack-quantized",
    "mxfp4": "mxfp4-pack-quantized",
    "mxfp8": "mxfp8-quantized",
}
_PACKED = "pack-quantized"  # integers in words of 32 bits, whatever their own size
_FOUR_BITS = ("int4", "mxfp4", "nvfp4")
_INTEGERS = ("int4", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedGroup:
    """Modules in one format, and what names them to readers."""

    chosen: Quantization
    form: Format
    targets: tuple[str, ...]  # sorted


def quantization_config(groups: Iterable[StreamedGroup], ignore: list[str]) -> dict[str, Any]:
    """Return the document for a model, whose groups stand in the order of their targets."""
    ordered = sorted(groups, key=lambda group: group.targets)
    formats = {_written(group.form) for group in ordered}
    return {
        "config_groups": {
            f"group_{number}": {
                "format": _written(group.form),
                "input_activations": _activations(group.chosen, group.form),
                "output_activations": None,
                "targets": list(group.targets),
                "weights": _weights(group.form),
            }
            for number, group in enumerate(ordered)
        },
        "format": formats.pop() if len(formats) == 1 else "mixed-precision",
        "global_compression_ratio": None,
        "ignore": ignore,
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "sparsity_config": {},
        "transform_config": {},
        "version": _VERSION,
    }


def kept_matrices(tensors: Iterable[TensorInfo], quantized: Collection[str]) -> list[str]:
    """Return the modules that stay as they are, in the order of their names.

    Readers quantize no embeddings; they would quantize a head that is the embedding, or that has
    another name in the checkpoint.
    """
    found = {
        tensor.name.removesuffix(".weight")
        for tensor in tensors
        if tensor.name.endswith(".weight")
        and len(tensor.shape) == 2
        and tensor.name not in quantized
        and not EMBEDDING.search(tensor.name)
    }
    if not any(f".{name}".endswith(f".{HEAD}.weight") for name in quantized) and not any(
        name.endswith(f".{HEAD}") for name in found
    ):
        found.add(HEAD)
    return sorted(found)


def _written(form: Format) -> str:
    return _PACKED if form.packed else _FORMATS[form.kind]


def _weights(form: Format) -> dict[str, Any]:
    strategy = "channel"
    if form.blocks:
        strategy = "block"
    elif form.kind == "nvfp4":
        strategy = "tensor_group"
    elif form.group_size:
        strategy = "group"
    return _arguments(
        form,
        dynamic=False,
        group_size=form.group_size or None,
        block_structure=[BLOCK, BLOCK] if form.blocks else None,
        bits=4 if form.kind in _FOUR_BITS else 8,
        kind="int" if form.kind in _INTEGERS else "float",
        observer="memoryless_minmax",
        strategy=strategy,
        symmetric=form.symmetric,
    )


def _activations(chosen: Quantization, form: Format) -> dict[str, Any] | None:
    """Return how readers round activations; None where they leave them."""
    if chosen.method in ("rtn", "nvfp4") or chosen.scheme in ("MXFP4A16", "MXFP8A16"):
        return None
    group = BLOCK if form.blocks else form.group_size if form.kind in _SCALES else None
    return _arguments(
        form,
        dynamic=True,
        group_size=group,
        block_structure=None,
        bits=4 if form.kind == "mxfp4" else 8,
        kind="int" if form.kind == "int8" else "float",
        observer=None,
        strategy="group" if group else "token",
        symmetric=True,
    )


def _arguments(
    form: Format,
    *,
    dynamic: bool,
    group_size: int | None,
    block_structure: list[int] | None,
    bits: int,
    kind: str,
    observer: str | None,
    strategy: str,
    symmetric: bool,
) -> dict[str, Any]:
    scales = {"scale_dtype": _SCALES[form.kind]} if form.kind in _SCALES else {}
    return {
        "actorder": None,
        "block_structure": block_structure,
        "dynamic": dynamic,
        "group_size": group_size,
        "num_bits": bits,
        "observer": observer,
        "observer_kwargs": {},
        **scales,
        "strategy": strategy,
        "symmetric": symmetric,
        "type": kind,
    }
