"""Blocks of weights against how engines cut and join matrices, by vLLM's own rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from packager.core.errors import PlanRejected
from packager.core.findings import Finding, errors_in
from packager.core.model import ModelFiles
from packager.engines.vllm.family import VllmFamily
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import TINY, facts_of, model_of, plan_of, tensor
from tests.support.layouts import Headers
from tests.support.quantized import BY_ID, arriving

cases = cases_of(__file__)

# TINY: keys and values of two heads of 64, so that two devices get half a block each.
# A class that no table lists is built as most are.
MLA = model_of(TINY | {"architectures": ["NobodyKnowsForCausalLM"]})
FIRST_OF_TWO, LAST = "q_a_proj", "kv_a_proj_with_mqa"


def refused(model: ModelFiles, **asked: Any) -> list[Finding]:
    services = PlannerServices(family=VllmFamily(), quantizer=LlmCompressorQuantizer())
    try:
        make_plan(facts_of(model, "ml.g6e.12xlarge", **asked), services)
    except PlanRejected as rejected:
        found = errors_in(rejected.findings)
        return [one for one in found if one.code != "calibration-missing"]
    return []


def changed(**numbers: int) -> ModelFiles:
    return model_of(TINY | numbers)


@cases("a_degree_is_refused_where_a_device_would_get_a_part_of_a_block")
def test_a_degree_is_refused_where_a_device_would_get_a_part_of_a_block(
    numbers: dict[str, int], quantize: str, degree: int, said: str
) -> None:
    errors = refused(changed(**numbers), quantize=quantize, tp_degree=degree)

    assert [(one.code, said in one.message) for one in errors] == (
        [("tp-not-allowed", True)] if said else []
    )


@cases("so_is_a_checkpoint_that_arrives")
def test_so_is_a_checkpoint_that_arrives(form: str, more: dict[str, Any], said: str) -> None:
    config = TINY | {"intermediate_size": 1152, "num_key_value_heads": 4} | more

    errors = refused(arriving(form, config), tp_degree=2)

    cut = [one.message for one in errors if one.code == "tp-not-allowed"]
    assert [said in message for message in cut] == ([True] if said else [])


def test_a_degree_that_would_cut_blocks_is_passed_over() -> None:
    plan = plan_of(model_of(TINY), "ml.g6e.12xlarge", quantize="fp8,block", goal="latency")

    assert plan.tp_degree == 1
    assert {one.what for one in plan.rejected} >= {"tp 2", "tp 4"}


def test_keys_that_stay_whole_forbid_no_degree() -> None:
    left = (r"re:.*\.[qkv]_proj$",)

    assert refused(model_of(TINY), quantize="fp8,block", quantize_ignore=left, tp_degree=2) == []


@pytest.mark.parametrize(("sizes", "codes"), [((1536, 576), []), ((1472, 576), ["quantize-group"])])
def test_a_block_does_not_reach_into_the_next_matrix(
    sizes: tuple[int, int], codes: list[str]
) -> None:
    """Engines put the latents of queries behind those of keys: only the last may end in a block."""
    names = (f"model.layers.0.self_attn.{part}.weight" for part in (FIRST_OF_TWO, LAST))
    latents = [tensor(name, "BF16", (size, 256)) for name, size in zip(names, sizes, strict=True)]
    model = replace(MLA, tensors=(*MLA.tensors, *latents))

    errors = refused(model, quantize="fp8,block", tp_degree=1)

    assert [one.code for one in errors] == codes
    assert all("1472 outputs of model.layers.0.self_attn.q_a_proj" in one.message for one in errors)


def test_experts_are_cut_along_both_sides_or_spread_whole() -> None:
    """Mixtral's experts of 14336: over 8 devices 1792 each, 14 blocks."""
    assert refused(zoo.mixtral(), quantize="fp8,block", tp_degree=4) == []
    narrow = zoo.qwen3_moe()  # experts of 768: 192 over 4 devices
    (error,) = refused(narrow, quantize="fp8,block", tp_degree=4, ep=False)

    assert "the experts' 768 / 4 is not a multiple" in error.message
    assert refused(narrow, quantize="fp8,block", tp_degree=4, ep=True) == []


@cases(
    "mixer",
    quantize="",
    arrives="",
    groups=1,
    key="mamba_n_groups",
    degree=1,
    states=64,
    state=(),
    kv_heads=2,
    code="",
)
def test_the_parts_of_a_mamba_2_mixer_are_loaded_one_by_one(
    quantize: str,
    arrives: str,
    heads: int,
    groups: int,
    key: str,
    degree: int,
    states: int,
    state: Sequence[int],
    kv_heads: int,
    code: str,
    said: str,
) -> None:
    inner, mixed = 256, 256 + 2 * states
    config = TINY | {key: groups, "num_key_value_heads": kv_heads}
    model = arriving(arrives, config) if arrives else model_of(config)
    place = "model.layers.0.mamba."
    in_proj: Headers = {f"{place}in_proj.weight": ("BF16", (inner + mixed + heads, 256))}
    if arrives:
        in_proj = BY_ID[arrives].pack(f"{place}in_proj", inner + mixed + heads, 256)
    mixer = {
        f"{place}A_log": ("F32", tuple(state or (heads,))),
        f"{place}conv1d.weight": ("BF16", (mixed, 1, 4)),
    }
    added = [tensor(name, kind, shape) for name, (kind, shape) in {**mixer, **in_proj}.items()]
    model = replace(model, tensors=(*model.tensors, *added))
    asked = {"quantize": quantize} if quantize else {}

    errors = refused(model, tp_degree=degree, **asked)

    assert [one.code for one in errors] == ([code] if code else [])
    assert all(said in one.message for one in errors)
