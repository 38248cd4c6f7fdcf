"""What engines take of a GPU beside weights and cache, read from the table."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from packager.catalog.instances import find_instance
from packager.core.artifact import Artifacts
from packager.core.model import ModelProfile
from packager.core.shape import Shape
from packager.core.split import Split
from packager.core.techniques import Draft
from packager.core.units import GIB
from packager.engines.sglang.family import SglangFamily
from packager.estimate.sizing.engine_memory import (
    TABLE,
    EngineMemory,
    engine_memory,
    graph_sizes,
    visible_bytes,
)
from packager.estimate.sizing.memory import MemoryInputs, make_budget
from packager.models.architectures.profile import make_profile
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, facts_of, model_of, plan_of
from tests.support.startup_models import startup_model

cases = cases_of(__file__)

P5, G5 = find_instance("p5.48xlarge"), find_instance("g5.12xlarge")
SHAPE = Shape(max_batch=32, max_input_tokens=7168, max_total_tokens=8192)


def found(
    version: str, split: Split | None = None, *, engine: str = "vllm", weights: str = ""
) -> EngineMemory:
    return engine_memory(engine, version, weights, P5, split or Split())


def test_every_row_states_its_source_and_date() -> None:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))

    assert all(row["source"] and row["date"] for rows in table.values() for row in rows)


@cases("the_last_row_that_a_version_has_reached_holds")
def test_the_last_row_that_a_version_has_reached_holds(version: str, bytes_: float) -> None:
    assert found(version).sampler_bytes == bytes_


def test_an_engine_without_rows_of_its_own_keeps_a_guessed_reserve() -> None:
    tgi, vllm = found("3.3.6", engine="tgi"), found("0.27.1")

    assert (tgi.least_reserve_bytes, vllm.least_reserve_bytes) == (3 * GIB // 2, 0)
    assert tgi.non_torch_bytes == GIB // 2
    assert not tgi.hybrid_cache


@cases("only_devices_that_share_layers_need_buffers_for_it")
def test_only_devices_that_share_layers_need_buffers_for_it(split: Split, gib: float) -> None:
    assert found("0.19.0", split).non_torch_bytes / GIB == pytest.approx(gib)


def test_a_format_that_is_changed_on_loading_leaves_memory_loose() -> None:
    assert 1024 * found("0.19.0", weights="mxfp4").loose_sequence_bytes / GIB == pytest.approx(2.3)
    assert found("0.19.0", weights="fp8_w8a8").loose_sequence_bytes == 0


def test_gpt_oss_20b_fits_a_card_of_24_gb_for_a_few_requests() -> None:
    plan = plan_of(startup_model("gpt-oss-20b"), "ml.g5.xlarge")

    assert plan.budget.lacking_bytes == 0
    assert plan.budget.tokens_left(8192) > 50_000


@cases("graphs_are_captured_for_as_many_sizes_as_vllm_logs")
def test_graphs_are_captured_for_as_many_sizes_as_vllm_logs(sequences: int, sizes: int) -> None:
    """51 of 512 tokens and 35 of 256 in logs of vLLM 0.19."""
    assert graph_sizes(sequences) == sizes


def test_cuda_shows_less_of_a_card_than_the_catalog() -> None:
    assert visible_bytes(P5) / GIB == pytest.approx(79.19, abs=0.01)
    assert visible_bytes(replace(P5, device_name="another")) == int(P5.device_bytes * 0.985)
    assert visible_bytes(replace(P5, device_bytes=20 * GIB)) == 20 * GIB  # a part of one


def test_a_share_that_leaves_no_room_for_context_does_not_fit() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    demand = MemoryInputs(engine="vllm", engine_version="0.19.0", usable_share=0.99)

    lacking = make_budget(profile, G5, SHAPE, 1, demand)
    enough = make_budget(profile, G5, SHAPE, 1, replace(demand, usable_share=0.93, reserve=False))

    assert lacking.lacking_bytes > 0
    assert not lacking.fits
    assert enough.fits


def test_padded_experts_take_more_of_each_device_than_the_checkpoint() -> None:
    """GPT-OSS: 2880 columns become 3072, at TP 2 1440 become 1536, at TP 8 360 become 512."""
    profile, _ = make_profile(startup_model("gpt-oss-20b"))
    plain = profile.weight_bytes - profile.expert_bytes

    for tp_degree, ratio in ((1, 3072 / 2880), (2, 1536 / 1440), (8, 512 / 360)):
        budget = make_budget(profile, P5, SHAPE, tp_degree)
        expected = (plain + profile.expert_bytes * ratio) / tp_degree
        assert budget.weights_bytes == pytest.approx(expected, rel=1e-6)


def test_experts_that_are_given_out_whole_are_padded_whole() -> None:
    profile, _ = make_profile(startup_model("gpt-oss-20b"))

    cut = make_budget(profile, P5, SHAPE, 8, expert_degree=8)
    whole = make_budget(profile, P5, SHAPE, 8, expert_degree=8, expert_parallel=True)

    assert whole.weights_bytes < cut.weights_bytes


def test_experts_spread_over_copies_of_attention_take_less_of_each() -> None:
    profile, _ = make_profile(startup_model("qwen3-235b-a22b-fp8"))
    dense = profile.weight_bytes - profile.expert_bytes

    budget = make_budget(profile, P5, SHAPE, 1, expert_degree=8, expert_parallel=True)

    assert budget.weights_bytes == pytest.approx(dense + profile.expert_bytes / 8, rel=1e-6)


def test_a_static_share_is_of_weights_and_cache_alone() -> None:
    """SGLang at 0.93 of what its buffers leave: 16.46 GiB of cache on four H100 in its log."""
    profile, _ = make_profile(startup_model("qwen3-235b-a22b-fp8"))
    demand = MemoryInputs(
        engine="sglang", engine_version="0.5.17", usable_share=0.93, reserve=False
    )

    budget = make_budget(profile, P5, SHAPE, 4, demand)
    static = budget.weights_bytes + budget.kv_pool_bytes

    assert static == pytest.approx(0.93 * (visible_bytes(P5) - 2.1 * GIB), rel=1e-6)
    assert budget.kv_pool_bytes / GIB == pytest.approx(16.46, abs=0.3)


def hybrid_27b() -> ModelProfile:
    """Return what decides the cache of Qwen3.5-27B and 3.6-27B: 16 of 64 layers have attention."""
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    return replace(
        profile,
        layers=64,
        cached_layers=16,
        kv_heads=4,
        kv_bytes_per_token=16 * 4096,
        state_bytes=48 * 3_207_168,
        kv_groups=(),
    )


def test_blocks_of_a_hybrid_have_the_1568_tokens_that_vllm_logs() -> None:
    """Qwen3.5-27B with its cache in FP8: a state of 3,207,168 bytes, 2,048 bytes a token."""
    demand = MemoryInputs(engine="vllm", engine_version="0.27.1", kv_element_bytes=1, reserve=False)

    budget = make_budget(hybrid_27b(), P5, SHAPE, 1, demand)

    assert budget.kv_block_tokens == 1568
    assert budget.request_bytes(1568) == (16 + 2 * 48) * 1568 * 2048


@pytest.mark.parametrize("instance", ["p5.48xlarge", "g6e.12xlarge", "g5.12xlarge"])
@pytest.mark.parametrize("share", [0.7, 0.85, 0.93])
def test_a_static_share_that_is_asked_for_is_given_to_sglang(share: float, instance: str) -> None:
    facts = facts_of(model_of(LLAMA_3_8B), instance, family="sglang", gpu_memory_utilization=share)

    plan = make_plan(facts, PlannerServices(family=SglangFamily()))
    rendered = SglangFamily().render(plan, Artifacts(model=()))

    assert rendered.env["SM_SGLANG_MEM_FRACTION_STATIC"] == f"{share:.2f}"


def test_a_draft_keeps_a_state_for_each_of_its_tokens() -> None:
    """Qwen3.6-27B with its MTP head on two cards: 2.38 requests of 262,144 tokens in 11.08 GiB."""
    draft = Draft(kind="mtp", speculative_tokens=3, kv_bytes_per_token=4096, kv_heads=4)
    demand = MemoryInputs(
        engine="vllm",
        engine_version="0.20.2",
        kv_element_bytes=1,
        draft=draft,
        prefix_caching=True,
        reserve=False,
    )

    budget = make_budget(hybrid_27b(), P5, SHAPE, 2, demand)

    assert 11.08 * GIB / budget.request_bytes(262_144) == pytest.approx(2.38, abs=0.02)
