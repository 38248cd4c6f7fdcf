"""Layouts of caches: pages, groups and blocks as vLLM makes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.estimate.sizing.kv_cache import KvLayout, Paging, make_layout
from packager.models.architectures.profile import make_profile
from tests.support.cases import cases_of
from tests.support.shapes import plain

cases = cases_of(__file__)

PAGING = Paging(
    block_tokens=16,
    latent_block_tokens=128,
    group_ratio=1.5,
    state_pages=2,
    packing="groups",
    shares_index=True,
)


def layout_of(name: str, paging: Paging = PAGING) -> KvLayout:
    profile, _ = make_profile(plain(name))
    return make_layout(profile, "nvidia", 1, 1, paging, element_bytes=2)


@cases("vllm_requests")
def test_a_request_takes_what_vllm_counts(name: str, bytes: int) -> None:
    assert layout_of(name).request_bytes(131_072, 2048) == pytest.approx(bytes, rel=0.001)


def test_older_versions_give_every_size_of_page_a_place_in_each_block() -> None:
    """DeepSeek-V4-Flash: 1,039,680 bytes in vLLM 0.25.0's own grouping, 1,002,240 in 0.33.0's."""
    older = layout_of("deepseek-ai/DeepSeek-V4-Flash", replace(PAGING, packing="repeats"))
    newer = layout_of("deepseek-ai/DeepSeek-V4-Flash")

    assert older.shares[0].block_bytes == 1_039_680
    assert newer.shares[0].block_bytes == 1_002_240


def test_a_state_for_every_block_grows_with_the_request() -> None:
    """Nemotron-3-Nano in vLLM 0.27: blocks of whole chunks, and four groups of states beside."""
    kept = layout_of(
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", replace(PAGING, state_every_block=True)
    )

    assert kept.block_tokens % 128 == 0
    assert kept.bytes_per_token == 5 * 6144
    assert kept.sequence_bytes == 0


@cases("engines_keep_sparse_latents_in_their_own_ways")
def test_engines_keep_sparse_latents_in_their_own_ways(
    packs: bool, shares: bool, bytes: int
) -> None:
    """GLM-5.2 with a cache of 8 bits: SGLang logs 464,768 tokens in 23.91 GiB."""
    profile, _ = make_profile(plain("zai-org/GLM-5.2"))
    paging = replace(PAGING, packs_sparse=packs, shares_index=shares)

    assert make_layout(profile, "nvidia", 8, 1, paging, element_bytes=1).bytes_per_token == bytes
