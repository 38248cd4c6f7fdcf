"""Budgets against the start-up logs of real servers."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.instances import find_instance
from packager.core.shape import Shape
from packager.core.units import GIB
from packager.estimate.sizing.memory import MemoryInputs, make_budget, served_weight_bytes
from packager.models.architectures.profile import make_profile
from tests.support.cases import cases_of
from tests.support.headers import plan_of
from tests.support.shapes import plain
from tests.support.startup_models import MODELS, startup_model
from tests.support.startups import (
    Startup,
    budget_of,
    cache_logs,
    error_of,
    held_in_log,
    is_compared,
    startups,
)

cases = cases_of(__file__)

STARTED = [one for one in startups() if is_compared(one)]
REFUSED = [one for one in startups() if not one.started]
WEIGHED = [one for one in startups() if one.weights_bytes and one.pp == 1]


def by_id(startup: Startup) -> str:
    return startup.id


@pytest.mark.parametrize("startup", STARTED, ids=by_id)
def test_the_cache_of_a_server_is_predicted_within_a_tenth(startup: Startup) -> None:
    assert budget_of(startup).fits
    assert abs(error_of(startup)) <= 0.10


def test_half_of_all_caches_are_predicted_within_two_percent() -> None:
    assert len(STARTED) >= 60
    assert statistics.median(abs(error_of(one)) for one in STARTED) <= 0.02


@pytest.mark.parametrize("startup", REFUSED, ids=by_id)
def test_what_did_not_start_does_not_fit(startup: Startup) -> None:
    assert not budget_of(startup).fits


@pytest.mark.parametrize("startup", WEIGHED, ids=by_id)
def test_the_weights_of_a_server_are_predicted_within_a_twentieth(startup: Startup) -> None:
    assert budget_of(startup).weights_bytes == pytest.approx(startup.weights_bytes, rel=0.05)


def test_a_checkpoint_of_16_bits_takes_its_own_bytes() -> None:
    profile, _ = make_profile(startup_model("qwen3-32b"))

    assert served_weight_bytes(profile) / GIB == pytest.approx(61.03, abs=0.02)  # vLLM 0.11


def test_more_sequences_at_once_cost_logits() -> None:
    """12.2 to 14.6 bytes of each of 128,256 entries: 1.66 GiB from 32 to 1024 sequences."""
    (many, *_) = (one for one in STARTED if one.id == "llama-3.1-8b-vllm-0.19.0-tp1-8192")
    few = replace(many, max_num_seqs=32)

    more = budget_of(many).activations_bytes - budget_of(few).activations_bytes

    assert budget_of(many).activations_bytes / GIB == pytest.approx(1.89, abs=0.02)
    assert more / GIB == pytest.approx(1.89 - 0.91, abs=0.05)  # the layers' own peak is 0.91


@cases("figures", changed={}, what="activations_bytes", unit=GIB, within=0.06)
def test_a_figure_of_the_budget_is_that_of_the_log(case: dict[str, Any]) -> None:
    (found, *_) = (one for one in STARTED if one.id == case["start"])

    figure = getattr(budget_of(replace(found, **case["changed"])), case["what"])

    assert figure / case["unit"] == pytest.approx(case["is"], abs=case["within"])


def test_graphs_come_off_the_cache_since_0_21() -> None:
    (llama, *_) = (one for one in STARTED if one.id == "llama-3.1-8b-vllm-0.19.0-tp1-8192")
    before, after = (budget_of(replace(llama, engine_version=v)) for v in ("0.20.2", "0.21.0"))

    assert (before.kv_pool_bytes - after.kv_pool_bytes) / GIB == pytest.approx(0.82, abs=0.05)


def test_requests_of_a_hybrid_fit_as_often_as_vllm_logs() -> None:
    """Qwen3.5-9B on an L40S: 18.23 requests of 65,536 tokens in 20.27 GiB, blocks of 1056."""
    (hybrid,) = (one for one in STARTED if one.model == "qwen3.5-9b")

    budget = budget_of(hybrid)

    assert budget.kv_block_tokens == 1056
    assert 20.27 * GIB / budget.request_bytes(65_536) == pytest.approx(18.23, abs=0.02)


@pytest.mark.parametrize("row", cache_logs(), ids=lambda row: f"{row['model']}-{row['tokens']}")
def test_a_cache_of_a_new_architecture_holds_what_its_log_says(row: dict[str, str]) -> None:
    """Within 3 %: requests of the longest length, in the memory that the engine found for them."""
    assert held_in_log(row) == pytest.approx(float(row["requests"]), rel=0.03)


@pytest.mark.parametrize(
    ("tp", "copies", "held"), [(8, 1, 20.43), (1, 8, 156.9)], ids=["TP 8", "DP 8"]
)
def test_a_compressed_cache_holds_what_eight_b200_log(tp: int, copies: int, held: float) -> None:
    """DeepSeek-V4-Flash of 157.6 GB at 0.95, steps of 8,192: vllm-project/vllm issue 51454."""
    plain_weights, _ = make_profile(plain("deepseek-ai/DeepSeek-V4-Flash"))
    profile = replace(plain_weights, weight_bytes=157_600_000_000, expert_bytes=147_300_000_000)
    demand = MemoryInputs(
        kv_element_bytes=1,
        max_prefill_tokens=8192,
        usable_share=0.95,
        reserve=False,
        engine="vllm",
        engine_version="0.25.0",
    )
    shape = Shape(max_batch=256, max_input_tokens=1_048_575, max_total_tokens=1_048_576)

    budget = make_budget(
        profile, find_instance("8xB200"), shape, tp, demand, expert_degree=8, expert_parallel=True
    )

    assert copies * budget.tokens_left(1_048_576) / 1_048_576 == pytest.approx(held, rel=0.05)


def test_a_plan_pads_the_experts_of_gpt_oss_as_its_server_does() -> None:
    """64.38 GiB of one H100 in vLLM 0.11; the checkpoint has 60.77."""
    budget = plan_of(startup_model("gpt-oss-120b"), "ml.p5.4xlarge").budget

    assert budget.weights_bytes / GIB == pytest.approx(64.38, abs=0.3)


def test_a_plan_gives_dense_models_the_cache_that_their_servers_log() -> None:
    """Qwen3-32B at 0.9: 4.45 GiB with 1024 sequences in vLLM 0.11, of which logits took 5.58."""
    budget = plan_of(startup_model("qwen3-32b"), "ml.p5.4xlarge", max_batch=32).budget

    assert budget.kv_pool_bytes / GIB == pytest.approx(4.45 + 5.64 - 1.48 + 0.14 - 0.72, abs=0.1)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_more_sequences_or_a_smaller_share_never_leave_more_cache(model: str) -> None:
    start = replace(STARTED[0], model=model, tp=4, max_model_len=4096, engine_version="0.27.1")

    by_sequences = [
        budget_of(replace(start, max_num_seqs=count)).kv_pool_bytes for count in (1, 32, 256, 1024)
    ]
    by_share = [
        budget_of(replace(start, gpu_memory_utilization=share)).kv_pool_bytes
        for share in (0.95, 0.9, 0.8)
    ]

    assert by_sequences == sorted(by_sequences, reverse=True)
    assert by_share == sorted(by_share, reverse=True)
    assert by_share[0] > by_share[-1]


@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_budget_and_its_counts_of_requests_agree(model: str) -> None:
    """As many requests as fit take no more than the pool, and one more does not fit."""
    start = replace(STARTED[0], model=model, tp=8, max_model_len=8192, engine_version="0.27.1")
    budget = budget_of(start)

    for tokens in (100, 872, 8192):
        count = budget.count_requests(tokens)
        assert count * budget.request_bytes(tokens) <= budget.kv_pool_bytes
        assert (count + 1) * budget.request_bytes(tokens) > budget.kv_pool_bytes
        started = budget.count_requests(tokens, reading=True)
        assert started <= count
        assert started * tokens <= budget.tokens_left(tokens) < (started + 1) * tokens
    assert budget.count_requests(100) >= budget.count_requests(872) >= budget.count_requests(8192)
