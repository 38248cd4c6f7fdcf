"""Requirements of an already quantized checkpoint on an engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequirements:
    """Demands read from config.json and the headers. Engines compare them with what they load."""

    method: str  # `quant_method`, lower case: `awq`, `compressed-tensors`
    loader: str  # what engines select by: `modelopt_fp4` of a `modelopt` checkpoint in NVFP4
    features: tuple[str, ...] = ()  # rows of `engines/data/engines/quantization.toml`: `mxfp8`
    keys: frozenset[str] = frozenset()  # of compressed-tensors' quantization arguments
    writer: str = ""  # version of compressed-tensors that wrote it; "" when it is not stated
    head: str = ""  # a tensor that only a quantized lm_head has; "" when the head is plain
    head_declared: bool = True  # False: config.json does not state it for the engine
