from __future__ import annotations

from dataclasses import replace

import pytest

from packager.architectures.profile import make_profile
from packager.catalog.instances import find_instance
from packager.core.shape import Shape
from packager.core.techniques import Draft
from packager.core.units import GIB
from packager.sizing.memory import MemoryInputs, make_budget
from tests.support.case_tables import cases_of
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, LOCAL_CPU, TINY, awq_model_of, model_of

cases = cases_of(__file__)

VLLM = MemoryInputs(engine="vllm", engine_version="0.19.0")
SHAPE = Shape(max_batch=8, max_input_tokens=7168, max_total_tokens=8192)


def test_weights_and_cache_are_shared_by_the_devices() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    g5 = find_instance("g5.12xlarge")

    one, four = (make_budget(profile, g5, SHAPE, tp) for tp in (1, 4))

    assert one.weights_bytes == 16_060_522_496
    assert four.weights_bytes == 4_015_130_624
    assert (one.kv_bytes_per_token, four.kv_bytes_per_token) == (131_072, 32_768)
    assert one.usable_bytes == int(0.9 * 22487 * 1024**2)  # of 22,888 MiB CUDA shows less


def test_a_cache_head_is_copied_where_devices_outnumber_heads() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    p4d = find_instance("p4d.24xlarge")

    assert make_budget(profile, p4d, SHAPE, 8).kv_bytes_per_token == 16_384
    few = replace(profile, kv_heads=2, kv_bytes_per_token=32_768)
    assert make_budget(few, p4d, SHAPE, 8).kv_bytes_per_token == 16_384


def test_communication_costs_memory_only_between_devices() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    g5 = find_instance("g5.12xlarge")

    assert make_budget(profile, g5, SHAPE, 1).overhead_bytes == GIB // 2
    assert make_budget(profile, g5, SHAPE, 2).overhead_bytes == int(0.9 * GIB)


def test_a_cache_takes_whole_blocks_and_one_more() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    shape = Shape(max_batch=2, max_input_tokens=10, max_total_tokens=17)

    budget = make_budget(profile, find_instance("g5.xlarge"), shape, 1)

    assert budget.kv_bytes == (2 * 2 + 1) * 16 * 131_072


def test_a_cpu_reserves_whole_gigabytes_for_the_cache() -> None:
    tiny, _ = make_profile(model_of(TINY))
    llama, _ = make_profile(model_of(LLAMA_3_8B))
    shape = Shape(max_batch=8, max_input_tokens=3072, max_total_tokens=4096)

    assert make_budget(tiny, LOCAL_CPU, shape, 1).kv_bytes == 1 * GIB
    assert make_budget(llama, LOCAL_CPU, shape, 1).kv_bytes == 5 * GIB  # 4, and the engine's block


def test_32_bit_weights_are_cast_on_loading() -> None:
    profile, _ = make_profile(model_of(TINY, dtype="F32"))

    budget = make_budget(profile, LOCAL_CPU, SHAPE, 1)

    assert profile.weight_bytes == 16_786_432
    assert budget.weights_bytes == 8_393_216


def test_four_bit_70b_leaves_the_room_on_four_a10g_that_others_computed() -> None:
    """37.0 of 80.5 GiB are weights; about 122,000 tokens remain at 1.5 GiB of overheads."""
    profile, _ = make_profile(awq_model_of(LLAMA_3_70B))

    budget = make_budget(profile, find_instance("g5.12xlarge"), SHAPE, 4)

    assert round(4 * budget.weights_bytes / GIB, 1) == 37.0
    assert 110_000 < budget.kv_tokens_left < 125_000


@cases("a_draft_with_fewer_cache_heads_than_devices_keeps_copies_of_them")
def test_a_draft_with_fewer_cache_heads_than_devices_keeps_copies_of_them(
    kv_heads: int, tp_degree: int, kv_element_bytes: int, kept: int
) -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    draft = Draft(
        kind="draft_model", speculative_tokens=5, kv_bytes_per_token=8192, kv_heads=kv_heads
    )
    demand = MemoryInputs(draft=draft, kv_element_bytes=kv_element_bytes)

    budget = make_budget(profile, find_instance("p4d.24xlarge"), SHAPE, tp_degree, demand)

    assert budget.draft_kv_bytes_per_token == kept
    assert budget.draft_kv_bytes == (8 * 8192 + 16) * kept


def test_layers_with_a_sliding_window_keep_the_window_and_one_step() -> None:
    """Half of the layers keep 65 blocks of each of 8 sequences, and 2048 tokens being read."""
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    windowed = replace(profile, window_layers=16, window_tokens=1024)
    g5 = find_instance("g5.12xlarge")

    freed = make_budget(windowed, g5, SHAPE, 1, VLLM)
    kept = make_budget(windowed, g5, SHAPE, 1, replace(VLLM, engine="tgi"))

    assert kept.kv_bytes == 65_552 * 131_072
    assert freed.kv_bytes == (65_552 + 8 * 1040 + 2048 + 16) * 65_536


def test_a_window_wider_than_the_sequence_frees_nothing() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    windowed = replace(profile, window_layers=16, window_tokens=8192)

    budget = make_budget(windowed, find_instance("g5.12xlarge"), SHAPE, 1, VLLM)

    assert budget.kv_bytes == 65_552 * 131_072


def test_a_paged_cache_that_reserves_nothing_needs_one_full_sequence() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    g5 = find_instance("g5.xlarge")
    many = replace(SHAPE, max_batch=256)

    budget = make_budget(profile, g5, many, 1, MemoryInputs(reserve=False))

    assert budget.kv_bytes == (8192 + 16) * 131_072


def test_more_short_requests_than_long_ones_fit_in_the_same_pool() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    budget = make_budget(profile, find_instance("g5.xlarge"), SHAPE, 1, MemoryInputs(reserve=False))

    assert budget.request_bytes(8192) == 8192 * 131_072
    assert budget.request_bytes(870) == 880 * 131_072  # 55 blocks of 16
    assert budget.count_requests(870) == budget.kv_pool_bytes // (880 * 131_072)
    assert budget.count_requests(8192) == budget.kv_tokens_left // 8192


def test_a_request_beyond_a_window_takes_less_than_its_tokens() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    mixed = replace(profile, window_layers=16, window_tokens=1024)

    budget = make_budget(mixed, find_instance("g5.xlarge"), SHAPE, 1, replace(VLLM, reserve=False))

    assert budget.request_bytes(8192) == (8192 + 1040) * 65_536
    assert budget.request_bytes(512) == 512 * 131_072


@pytest.mark.parametrize(("version", "states"), [("0.17.0", 24), ("0.27.1", 48)])
def test_blocks_grow_until_a_state_fits_into_one(version: str, states: int) -> None:
    """A state of 1 MiB is as large as 256 tokens of a layer; later versions keep two of them."""
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    hybrid = replace(
        profile, cached_layers=8, kv_bytes_per_token=8 * 4096, state_bytes=24 * 1024**2
    )

    budget = make_budget(
        hybrid,
        find_instance("g5.xlarge"),
        SHAPE,
        1,
        replace(VLLM, engine_version=version, reserve=False),
    )

    assert budget.kv_block_tokens == 256
    assert budget.request_bytes(8100) == (32 * 8 + states) * 1024**2


def test_the_share_of_the_device_that_the_engine_may_take_is_asked_for() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))

    budget = make_budget(
        profile, find_instance("g5.xlarge"), SHAPE, 1, MemoryInputs(usable_share=0.95)
    )

    assert budget.usable_bytes == int(0.95 * 22487 * 1024**2)
