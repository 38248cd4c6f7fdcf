"""What stays whole when the rest is quantized: by names, patterns, and config.json's own list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.estimate.sizing.left_out import find_left_out, leaves_experts_whole
from packager.estimate.sizing.schemes import quantized_weight_bytes
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, TINY, model_of, plan_of

cases = cases_of(__file__)

WHOLE_EXPERTS = r"re:.*\.experts\..*"


@cases("matrices_are_left_out_by_their_names", ignore=None)
def test_matrices_are_left_out_by_their_names(
    ignore: tuple[str, ...] | None, parameters: int, experts: bool
) -> None:
    assert find_left_out(zoo.mixtral(), ignore) == (parameters, experts)


def test_a_dense_model_leaves_no_experts_out() -> None:
    assert not find_left_out(model_of(TINY), (WHOLE_EXPERTS,))[1]
    assert not leaves_experts_whole(model_of(TINY), {"ignore": [WHOLE_EXPERTS]})


@cases("whole_experts", patterns=[], layers=0)
def test_a_checkpoint_says_whether_its_experts_are_whole(
    patterns: list[str], layers: int, whole: bool
) -> None:
    ignore = [*patterns, *(f"model.layers.{one}.block_sparse_moe" for one in range(layers))]
    assert leaves_experts_whole(zoo.mixtral(), {"ignore": ignore}) is whole


def test_what_is_left_out_weighs_what_it_weighed() -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "ml.g6e.12xlarge", quantize="fp8")
    assert plan.quantization is not None
    some = replace(plan.quantization, parameters_left_out=1_000_000_000)

    def weight(quantization: object) -> int:
        return quantized_weight_bytes(plan.profile, quantization)  # type: ignore[arg-type]

    assert weight(some) - weight(plan.quantization) == pytest.approx(1_000_000_000, rel=0.001)
