"""What the rooms below the planner are told of a request."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from packager.core.request import BuildRequest
from packager.core.workload import Workload
from packager.pipeline.planning import requested
from packager.pipeline.planning.requested import layers_of, quantizing_of, split_of, target_of


def request_with(**given: Any) -> BuildRequest:
    return BuildRequest(model="m", instance="i", **given)


@pytest.mark.parametrize(
    ("convert", "given"),
    [
        (
            requested.shape_of,
            {
                "max_batch": 3,
                "max_input_tokens": 5,
                "max_total_tokens": 7,
                "max_prefill_tokens": 11,
            },
        ),
        (split_of, {"tp_degree": 2, "pp_degree": 3, "dp_degree": 5, "ep": True, "nodes": 4}),
    ],
)
def test_each_number_arrives_under_its_own_name(convert: Any, given: dict[str, Any]) -> None:
    found, nothing = convert(request_with(**given)), convert(request_with())

    assert {name: getattr(found, name) for name in given} == given
    assert {getattr(nothing, name) for name in given} == {None}
    assert {field.name for field in fields(found)} - given.keys() <= {"latency"}


def test_the_goal_latency_turns_the_order_of_degrees_around() -> None:
    assert split_of(request_with(goal="latency")).latency
    assert not split_of(request_with(goal="cost")).latency


def test_limits_in_milliseconds_arrive_in_seconds() -> None:
    request = request_with(goal="cost", tpot_limit_ms=50, ttft_limit_ms=300)

    target = target_of(request, Workload())

    assert (target.goal, target.tpot_limit_s, target.ttft_limit_s) == ("cost", 0.05, 0.3)


def test_without_limits_each_token_must_come_within_a_tenth_of_a_second() -> None:
    target = target_of(request_with(), Workload())

    assert (target.tpot_limit_s, target.ttft_limit_s) == (0.1, None)


def test_layers_are_plain_and_above_the_base_unless_requested_otherwise() -> None:
    plain = layers_of(request_with())
    asked = layers_of(
        request_with(
            layer_order="weights-first",
            compression="zstd",
            layer_format="erofs",
            max_layer_size=2**22,
            base_files="skip",
        )
    )

    assert (plain.order, plain.compression, plain.format) == ("base-first", "none", "plain")
    assert (plain.max_size, plain.reads_base) == (None, True)
    assert (asked.order, asked.compression, asked.format) == ("weights-first", "zstd", "erofs")
    assert (asked.max_size, asked.reads_base) == (2**22, False)


def test_a_quantizer_gets_its_texts_settings_and_the_method_as_written() -> None:
    found = quantizing_of(
        request_with(
            quantize="awq,group=64",
            quantize_ignore=("lm_head",),
            quantize_layer=("Linear=fp8",),
            calibration_tokens=9,
            calibration_seed=4,
        )
    )

    assert (found.method, found.ignored, found.layers) == (
        "awq,group=64",
        ("lm_head",),
        ("Linear=fp8",),
    )
    assert (found.tokens, found.seed) == (9, 4)
    assert quantizing_of(request_with()).tokens == 2048
