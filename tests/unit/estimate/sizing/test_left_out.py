"""What stays whole when the rest is quantized: by names, patterns, and config.json's own list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.core.traits import EngineTraits
from packager.estimate.sizing.left_out import (
    entries_left_out,
    find_left_out,
    leaves_experts_whole,
    quantized_modules,
)
from packager.estimate.sizing.schemes import quantized_weight_bytes
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, TINY, model_of, plan_of, tensor

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


@cases("choosing", experts=0)
def test_what_chooses_experts_or_tokens_stays_whole(
    matrices: dict[str, list[int]], whole: list[str], experts: int
) -> None:
    held = (f"mlp.experts.{number}.up_proj" for number in range(experts))
    named = {**{name: [64, 64] for name in held}, **matrices}
    tensors = (
        tensor(f"model.layers.1.{name}.weight", "BF16", tuple(named[name])) for name in named
    )
    model = model_of(TINY | {"num_hidden_layers": 2})
    model = replace(model, tensors=(*model.tensors, *tensors))

    left = {f"model.layers.1.{name}" for name in named}
    left -= {module for module, _ in quantized_modules(model, None)}

    assert left == {f"model.layers.1.{name}" for name in whole}


def test_what_the_engine_builds_plain_is_counted_as_it_is_served() -> None:
    """As Jamba's mixers: the worker is told the same entries."""
    traits = EngineTraits(plain_modules=frozenset({("LlamaForCausalLM", "mlp.down_proj")}))
    model = model_of(LLAMA_3_8B)

    entries = entries_left_out(model, ("lm_head",), traits)

    assert find_left_out(model, entries) == (32 * 4096 * 14336, False)


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
