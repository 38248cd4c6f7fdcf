"""What older readers of compressed-tensors refuse in quantization_config.

Readers before 0.13, which vLLM has up to 0.13, forbid keys that they do not know. Later
writers add two to every group: those are left out where they say nothing.  That is so of null,
and of zero points in the type that every reader gives them (`QuantizationArgs.pytorch_dtype`).
"""

from __future__ import annotations

from typing import Any

NEWER = ("scale_dtype", "zp_dtype")
SMALL_BITS = 8
ARGUMENTS = ("weights", "input_activations", "output_activations")


def without_empty_keys(quantization: dict[str, Any]) -> dict[str, Any]:
    """Return the same quantization_config for readers of every version."""
    groups = {
        name: {key: _cleared(key, value) for key, value in group.items()}
        for name, group in quantization["config_groups"].items()
    }
    cache = _cleared("weights", quantization.get("kv_cache_scheme"))
    found = {**quantization, "config_groups": groups}
    return {**found, "kv_cache_scheme": cache} if "kv_cache_scheme" in quantization else found


def _cleared(key: str, value: Any) -> Any:
    if key not in ARGUMENTS or not isinstance(value, dict):
        return value
    usual = (None, _type_of_integers(value))
    return {one: own for one, own in value.items() if one not in NEWER or own not in usual}


def _type_of_integers(arguments: dict[str, Any]) -> str | None:
    """Return the type of zero points that a reader assumes, where it is sure: of 8 bits or less."""
    bits = arguments.get("num_bits")
    small = arguments.get("type") == "int" and isinstance(bits, int) and bits <= SMALL_BITS
    return "torch.int8" if small else None
