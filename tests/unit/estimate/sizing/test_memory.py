from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.instances import find_instance
from packager.core.shape import Shape
from packager.core.techniques import Draft
from packager.estimate.sizing.memory import MemoryInputs, make_budget
from packager.models.architectures.profile import make_profile
from tests.support.cases import cases_of, fields_of
from tests.support.headers import LLAMA_3_8B, LOCAL_CPU, TINY, model_of

cases = cases_of(__file__)

SHAPE = Shape(max_batch=8, max_input_tokens=7168, max_total_tokens=8192)


MODELS = {
    "tiny": model_of(TINY),
    "tiny in 32 bits": model_of(TINY, dtype="F32"),
    "llama-3-8b": model_of(LLAMA_3_8B),
}


DEFAULTS = {"model": "llama-3-8b", "changed": {}, "on": "g5.xlarge", "shape": {}, "tp": 1}


@cases("budgets", **DEFAULTS, inputs={}, requests=())
def test_a_budget_has(case: dict[str, Any]) -> None:
    profile = replace(make_profile(MODELS[case["model"]])[0], **case["changed"])
    machine = LOCAL_CPU if case["on"] == "local" else find_instance(case["on"])
    shape, inputs = replace(SHAPE, **case["shape"]), MemoryInputs(**case["inputs"])

    budget = make_budget(profile, machine, shape, case["tp"], inputs)

    assert fields_of(budget, case["expect"]) == case["expect"]
    for tokens, size in case["requests"]:
        assert budget.request_bytes(tokens) == size


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


def test_more_short_requests_than_long_ones_fit_in_the_same_pool() -> None:
    profile, _ = make_profile(model_of(LLAMA_3_8B))
    budget = make_budget(profile, find_instance("g5.xlarge"), SHAPE, 1, MemoryInputs(reserve=False))

    assert budget.request_bytes(8192) == 8192 * 131_072
    assert budget.request_bytes(870) == 880 * 131_072  # 55 blocks of 16
    assert budget.count_requests(870) == budget.kv_pool_bytes // (880 * 131_072)
    assert budget.count_requests(8192) == budget.tokens_left(8192) // 8192
