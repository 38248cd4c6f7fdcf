"""TensorRT-LLM's limits as its builder stores them: an engine with others is thrown away."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from packager.addons.contrib.tensorrt_llm.compiler import build_arguments, expected_config
from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.core.shape import Shape
from packager.engines.lmi.family import LmiFamily
from packager.engines.trtllm import batched_tokens
from tests.support.cases import cases
from tests.support.engine_plans import plan_for

_NOTHING = Artifacts(model=())
ENGINE = plan_for("lmi-trt", compiler="tensorrt_llm")


def plan_of(batch: int, prompt: int, total: int, step: int | None = None, **options: str) -> Plan:
    return replace(
        ENGINE,
        shape=Shape(max_batch=batch, max_input_tokens=prompt, max_total_tokens=total),
        max_prefill_tokens=step,
        engine_options=tuple(options.items()),
    )


def stored(words: list[str], *, block: int, fused: bool) -> int:
    """Return what `check_max_num_tokens` of TensorRT-LLM 0.21 to 1.2 makes of a command line."""
    told = dict(zip(words[::2], words[1::2], strict=True))
    full = int(told["--max_seq_len"]) * int(told["--max_batch_size"])
    tokens = int(told["--max_num_tokens"])
    if tokens > full:
        tokens = full
    if tokens < int(told["--max_input_len"]) and not fused:
        tokens = int(told["--max_input_len"])
    elif tokens < block and fused:
        tokens = block
    return tokens


@cases("tokens")
def test_a_step_has_the_tokens_that_the_builder_stores(
    sizes: tuple[int, ...], attention: str | None, block: str | None, tokens: int
) -> None:
    options = {"context_fmha": attention, "tokens_per_block": block}
    plan = plan_of(*sizes, **{name: value for name, value in options.items() if value})

    assert batched_tokens(plan) == tokens
    assert expected_config(plan)["build_config.max_num_tokens"] == tokens


@pytest.mark.parametrize("options", [{}, {"context_fmha": "disable"}, {"tokens_per_block": "64"}])
def test_no_engine_of_the_grid_is_thrown_away_for_clipped_tokens(options: dict[str, str]) -> None:
    fused = options.get("context_fmha") != "disable"
    block = int(options.get("tokens_per_block", "32"))
    steps = (None, 1, 256, 8192, 1_000_000)
    for batch, total, step in product((1, 2, 16, 256), (2, 31, 512, 4096, 131072), steps):
        for prompt in {1, total // 2, total - 1}:
            plan = plan_of(batch, prompt, total, step, **options)
            expected = expected_config(plan)["build_config.max_num_tokens"]
            assert stored(build_arguments(plan), block=block, fused=fused) == expected
            assert LmiFamily().render(plan, _NOTHING).env["OPTION_MAX_NUM_TOKENS"] == str(expected)


def test_without_an_engine_a_step_is_clipped_to_full_slots_alone() -> None:
    assert batched_tokens(replace(plan_of(1, 12, 16), compiler="")) == 16


def test_an_optimum_above_the_limit_is_refused_rather_than_lowered_in_silence() -> None:
    found = [
        one
        for one in LmiFamily().check(plan_of(1, 3072, 4096, opt_num_tokens="8192"))
        if one.code == "value-refused"
    ]

    assert [(one.severity, one.message) for one in found] == [
        ("error", "trtllm-build takes less: opt_num_tokens 8192 is lowered to max_num_tokens 4096")
    ]
    assert not [
        one
        for one in LmiFamily().check(plan_of(1, 3072, 4096, opt_num_tokens="4096"))
        if one.code == "value-refused"
    ]
