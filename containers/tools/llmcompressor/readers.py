"""What older readers of compressed-tensors refuse in quantization_config.

Readers before 0.13, which vLLM has up to 0.13, forbid keys that they do not know. Later
writers add two to every group, null where they say nothing: those are left out.
"""

from __future__ import annotations

from typing import Any

NEWER = ("scale_dtype", "zp_dtype")
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
    return {one: own for one, own in value.items() if one not in NEWER or own is not None}
