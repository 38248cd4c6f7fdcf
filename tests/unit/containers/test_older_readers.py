"""What the quantizing worker leaves out for older readers of its configuration."""

from __future__ import annotations

from typing import Any

from tests.support.cases import cases_of
from tests.support.workers import ROOT, load

cases = cases_of(__file__)


readers: Any = load(ROOT / "containers" / "tools" / "llmcompressor" / "readers.py")


def test_keys_that_older_readers_forbid_are_left_out_where_they_are_null() -> None:
    weights = {"num_bits": 4, "type": "int", "scale_dtype": None, "zp_dtype": None}
    inputs = {"num_bits": 8, "observer": None, "scale_dtype": None, "zp_dtype": None}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    cache = {"num_bits": 8, "scale_dtype": None}
    written = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {**group, "output_activations": None, "format": None}},
        "kv_cache_scheme": cache,
    }

    assert readers.without_empty_keys(written) == {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int"},
                "input_activations": {"num_bits": 8, "observer": None},
                "output_activations": None,
                "format": None,
            }
        },
        "kv_cache_scheme": {"num_bits": 8},
    }


def test_the_type_that_older_readers_give_to_zero_points_is_left_out() -> None:
    """vLLM before 0.14: 'validation error for VllmConfig: zp_dtype Extra inputs not permitted'."""
    weights = {"num_bits": 4, "type": "int", "symmetric": False, "zp_dtype": "torch.int8"}
    written = {"config_groups": {"group_0": {"weights": weights}}}

    kept = readers.without_empty_keys(written)["config_groups"]["group_0"]["weights"]

    assert kept == {"num_bits": 4, "type": "int", "symmetric": False}


@cases("other_types_of_zero_points_stay")
def test_other_types_of_zero_points_stay(weights: dict[str, Any]) -> None:
    written = {"config_groups": {"group_0": {"weights": weights}}}

    assert readers.without_empty_keys(written) == written


def test_keys_that_say_something_stay() -> None:
    weights = {"num_bits": 4, "type": "float", "scale_dtype": "torch.uint8", "zp_dtype": None}
    written = {"config_groups": {"group_0": {"weights": weights}}}

    kept = readers.without_empty_keys(written)["config_groups"]["group_0"]["weights"]

    assert kept == {"num_bits": 4, "type": "float", "scale_dtype": "torch.uint8"}
    assert "kv_cache_scheme" not in readers.without_empty_keys(written)
