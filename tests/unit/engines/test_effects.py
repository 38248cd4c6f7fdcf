"""Engine options in a plan's figures: every one is classed, and the counted are counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from packager.core.plan import MemoryBudget
from packager.engines.effects import _table, count_options, effect_of
from packager.engines.schema import find_schema, shipped_versions
from packager.errors import PlanRejected
from tests.support.headers import LLAMA_3_8B, model_of, plan_of

ENGINES = ("vllm", "sglang", "tgi")
ROOMY: dict[str, Any] = {"family": "vllm", "container_version": "0.27.1", "max_batch": 8}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_of_every_version_has_one_class(engine: str) -> None:
    lists = {key: rows for key, rows in _table()[engine].items() if key != "cache"}
    classed = Counter(name for names in lists.values() for name in names)
    known = {
        name
        for version in shipped_versions(engine)
        for name in find_schema(engine, version).options
    }
    assert known - classed.keys() == set()
    assert [name for name, times in classed.items() if times > 1] == []
    assert classed.keys() - known == set()


def test_an_option_that_nobody_classed_has_no_effect_that_is_known() -> None:
    assert effect_of("vllm", "an-option-of-tomorrow") is None
    assert count_options("vllm", {"cpu-offload-gb": "inf", "block-size": "x"}).offloaded_bytes == 0


def budget_of(**asked: Any) -> MemoryBudget:
    return plan_of(model_of(LLAMA_3_8B), "g6e.xlarge", **ROOMY, **asked).budget


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"kv-cache-dtype": "fp8"}, {"kv_dtype": "fp8"}),
        ({"kv_cache_dtype": "fp8_e5m2"}, {"kv_dtype": "fp8"}),
        ({"max-num-batched-tokens": "4096"}, {"max_prefill_tokens": 4096}),
    ],
)
def test_an_option_plans_as_the_request_of_the_same_meaning(
    options: dict[str, str], asked: dict[str, Any]
) -> None:
    assert budget_of(engine_options=options) == budget_of(**asked)


@pytest.mark.parametrize(
    ("options", "part", "change"),
    [
        ({"cpu-offload-gb": "4"}, "weights_bytes", -(4 << 30)),
        # 32 layers × 16 × (4·4096 + 2·(32+8)·128 + 3·(4096+14336)) entries of 2 bytes
        ({"enable-lora": "true"}, "weights_bytes", 32 * 16 * 81920 * 2),
        ({"enable-lora": "true", "max-loras": "4"}, "weights_bytes", 4 * 32 * 16 * 81920 * 2),
        ({"block-size": "64"}, "kv_block_tokens", 48),
    ],
)
def test_an_option_that_changes_memory_is_counted(
    options: dict[str, str], part: str, change: int
) -> None:
    changed, plain = budget_of(engine_options=options), budget_of()
    assert getattr(changed, part) - getattr(plain, part) == change


def test_graphs_take_nothing_where_they_are_off() -> None:
    eager = budget_of(engine_options={"enforce-eager": "true"})
    assert eager.overhead_bytes < budget_of().overhead_bytes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"quantization": "fp8"}, ["warning"]),
        ({"attention-backend": "FLASHINFER"}, ["note"]),
        ({"cpu-offload-gb": "4"}, ["note"]),
        ({"kv-cache-dtype": "fp8"}, []),
        ({"enable-prefix-caching": "true"}, []),
        ({"seed": "1"}, []),
    ],
)
def test_what_is_not_counted_is_said(options: dict[str, str], said: list[str]) -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "g6e.xlarge", **ROOMY, engine_options=options)
    assert [one.severity for one in plan.findings if one.code == "option-not-counted"] == said


@pytest.mark.parametrize(
    ("name", "value", "owner"),
    [
        ("gpu-memory-utilization", "0.8", "--gpu-memory-utilization"),
        ("max-model-len", "9", "--max-total-tokens"),
        ("tensor-parallel-size", "4", "--tp-degree"),
        ("max-num-seqs", "4", "--max-batch"),
        ("dtype", "float16", "--dtype"),
    ],
)
def test_what_the_plan_decides_is_refused_with_its_own_option(
    name: str, value: str, owner: str
) -> None:
    with pytest.raises(PlanRejected) as refused:
        budget_of(engine_options={name: value})
    assert [(one.code, one.hint) for one in refused.value.findings if one.severity == "error"] == [
        ("options-conflict", f"use {owner}")
    ]
