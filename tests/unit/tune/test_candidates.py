"""What a tune measures: combinations, without doubles, refusals and hopeless ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from packager.build import pipeline
from packager.catalog.instances import find_instance
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.errors import PlanRejected, UsageError
from packager.findings import Finding
from packager.performance.predict import Point
from packager.steps.dry_run import DryRunExecutor
from packager.tune.candidates import Field, Foretold, identity_of, make_field
from packager.tune.space import (
    Axis,
    Variation,
    base_of,
    merged_axes,
    request_with,
    variations,
)
from tests.support.headers import LLAMA_3_8B, LOCAL_CPU, TINY, model_of, plan_of
from tests.support.pages import services_with

ASKED = BuildRequest(model="org/tiny", instance="local", goal="throughput")
FOUND = services_with(model_of(TINY, name="org/tiny"))
SERVICES = replace(
    FOUND,
    executor=DryRunExecutor(FOUND.executor.find_tool),  # whose machine is not looked at
    this_machine=lambda: LOCAL_CPU,
)


def names(request: BuildRequest = ASKED, **more: Any) -> list[str]:
    how = {"quantized": False, "brings_draft": False, **more}
    base = base_of(request, request.goal or "cost")
    machine = LOCAL_CPU if request.instance == "local" else find_instance(request.instance)
    return [one.name for one in variations(base, machine, request.goal or "cost", **how)]


def plan(request: BuildRequest) -> Plan:
    return pipeline.plan(request, SERVICES).plan


def foretold(tokens_s: float, band: float) -> Foretold:
    point = Point(
        concurrency=8,
        prefill_s=0.1,
        tpot_s=0.01,
        step_s=0.01,
        latency_s=1.0,
        output_tokens_s=tokens_s,
        input_tokens_s=1.0,
    )
    return Foretold(point=point, band=band)


def field_of(*varied: Mapping[str, Any], told: Mapping[str, Foretold] | None = None) -> Field:
    """Plan variations, with predictions by the name of their quantization."""
    found = told or {}
    return make_field(
        base_of(ASKED, "throughput"),
        [Variation(changes=changes) for changes in varied],
        plan,
        lambda planned: found.get(planned.precision),
        "throughput",
    )


def test_quantization_and_drafts_multiply_on_a_processor() -> None:
    assert names() == [
        "as requested",
        "--draft auto",
        "--draft ngram",
        "--quantize awq",
        "--quantize awq --draft auto",
        "--quantize awq --draft ngram",
        "--quantize smoothquant",
        "--quantize smoothquant --draft auto",
        "--quantize smoothquant --draft ngram",
    ]


def test_what_the_request_asks_for_stays() -> None:
    asked = ASKED.model_copy(update={"quantize": "gptq", "draft": "none"})

    assert names(asked) == ["as requested"]


def test_auto_leaves_the_choice_to_the_tune() -> None:
    asked = ASKED.model_copy(update={"quantize": "auto", "draft": "auto"})

    assert names(asked) == names()


def test_a_quantized_checkpoint_is_not_quantized_again() -> None:
    assert names(quantized=True) == ["as requested", "--draft auto", "--draft ngram"]


def test_a_head_of_its_own_is_tried_in_place_of_a_known_draft() -> None:
    assert names(quantized=True, brings_draft=True) == [
        "as requested",
        "--draft mtp",
        "--draft ngram",
    ]


def test_gpus_are_tried_in_other_splits_and_with_settings_alone() -> None:
    asked = BuildRequest(
        model="m", instance="ml.p5.48xlarge", goal="latency", quantize="none", draft="none"
    )

    assert names(asked) == [
        "as requested",
        "--tp-degree 1",
        "--tp-degree 2",
        "--tp-degree 4",
        "--tp-degree 8",
        "--kv-dtype fp8",
        "--max-prefill-tokens 2048",
    ]


def test_values_that_are_varied_take_the_place_of_ours_and_multiply() -> None:
    axes = merged_axes(
        [
            ("quantize", "none"),
            ("quantize", "awq"),
            ("engine_options", {"max-num-seqs": "4"}),
            ("engine_options", {"max-num-seqs": "8"}),
            ("engine_options", {"enforce-eager": "true"}),
        ]
    )
    asked = ASKED.model_copy(update={"draft": "none"})

    assert names(asked, varied=axes) == [
        "as requested",
        "--quantize none --engine-option max-num-seqs=4 --engine-option enforce-eager=true",
        "--quantize none --engine-option max-num-seqs=8 --engine-option enforce-eager=true",
        "--quantize awq --engine-option max-num-seqs=4 --engine-option enforce-eager=true",
        "--quantize awq --engine-option max-num-seqs=8 --engine-option enforce-eager=true",
    ]


def test_more_combinations_than_anybody_waits_for_are_refused() -> None:
    axis = Axis("max_batch", tuple(range(1, 200)))

    with pytest.raises(UsageError) as refused:
        names(varied=(axis,))

    assert refused.value.message == "1,791 combinations are too many to plan"


def test_settings_of_the_engine_add_to_those_of_the_request() -> None:
    asked = ASKED.model_copy(update={"engine_options": {"a": "1", "b": "2"}})

    changed = request_with(asked, {"engine_options": {"b": "3"}})

    assert changed.engine_options == {"a": "1", "b": "3"}


def test_quality_is_demanded_of_what_is_quantized_only() -> None:
    asked = ASKED.model_copy(update={"max_kld": 0.1, "evaluate": "default"})

    assert request_with(asked, {}).evaluation is None
    assert request_with(asked, {"quantize": "awq"}).max_kld == 0.1


def test_combinations_that_build_the_same_are_measured_once() -> None:
    found = field_of({}, {"draft": "none"}, {"draft": "auto"}, {"draft": "ngram"})

    assert [one.name for one in found.candidates] == ["as requested", "--draft ngram"]
    assert [(one.name, one.kind, one.why) for one in found.dropped] == [
        ("--draft none", "same", "the same build as: as requested"),
        ("--draft auto", "same", "the same build as: as requested"),
    ]


def test_calibration_tells_builds_apart_only_where_something_is_quantized() -> None:
    found = field_of(
        {},
        {"calibration_samples": 8},
        {"quantize": "awq"},
        {"quantize": "awq", "calibration_samples": 8},
    )

    assert [one.name for one in found.candidates] == [
        "as requested",
        "--quantize awq",
        "--quantize awq --calibration-samples 8",
    ]


def test_what_rules_refuse_is_left_out_with_the_reason() -> None:
    found = field_of({}, {"tp_degree": 3})

    assert [one.name for one in found.candidates] == ["as requested"]
    (dropped,) = found.dropped
    assert (dropped.name, dropped.kind) == ("--tp-degree 3", "refused")
    assert dropped.why.startswith("TP 3 is asked for: ")


def test_the_first_refusal_is_raised_where_nothing_works() -> None:
    def refuse(request: BuildRequest) -> Plan:
        raise PlanRejected((Finding("error", "no-room", f"{request.quantize} does not fit"),))

    with pytest.raises(PlanRejected) as refused:
        make_field(ASKED, [Variation(), Variation(changes={"quantize": "awq"})], refuse,
                   lambda _: None, "cost")  # fmt: skip

    assert refused.value.message == "the plan is rejected: None does not fit"


def test_a_value_that_the_user_wrote_and_no_field_can_have_is_an_error() -> None:
    with pytest.raises(UsageError) as refused:
        make_field(ASKED, [Variation(), Variation(changes={"max_batch": 0}, is_asked=True)], plan,
                   lambda _: None, "cost")  # fmt: skip

    assert refused.value.message.startswith("candidate '--max-batch 0': max_batch ")


AWQ, INT8 = {"quantize": "awq"}, {"quantize": "smoothquant"}


@pytest.mark.parametrize(
    ("low", "high", "band", "kept"),
    [
        pytest.param(99.0, 400.0, 0.6, False, id="158 at best, 160 at least"),
        pytest.param(101.0, 400.0, 0.6, True, id="161 at best, 160 at least"),
        pytest.param(30.0, 1e9, 1.0, True, id="a band that excludes nothing"),
        pytest.param(80.0, 100.0, 0.1, False, id="88 at best, 90 at least"),
    ],
)
def test_only_what_both_bands_exclude_is_hopeless(
    low: float, high: float, band: float, *, kept: bool
) -> None:
    told = {"w4a16": foretold(high, band), "w8a8": foretold(low, band), "bf16": foretold(50, 0.1)}

    found = field_of({}, AWQ, INT8, told=told)

    assert ("--quantize smoothquant" in [one.name for one in found.candidates]) is kept
    assert found.candidates[0].name == "as requested"  # however hopeless


def test_a_hopeless_candidate_that_the_user_named_is_measured() -> None:
    told = {"w4a16": foretold(400.0, 0.1), "w8a8": foretold(1.0, 0.1)}
    varied = [Variation(), Variation(changes=AWQ), Variation(changes=INT8, is_asked=True)]

    found = make_field(
        base_of(ASKED, "throughput"),
        varied,
        plan,
        lambda planned: told.get(planned.precision),
        "throughput",
    )

    assert "--quantize smoothquant" in [one.name for one in found.candidates]


def test_the_most_promising_come_first_after_the_request_as_it_is() -> None:
    told = {"w4a16": foretold(90.0, 0.6), "w8a8": foretold(100.0, 0.6), "bf16": foretold(60, 0.6)}

    found = field_of({}, {"draft": "ngram"}, AWQ, INT8, told=told)

    assert [one.name for one in found.candidates] == [
        "as requested",
        "--quantize smoothquant",
        "--quantize awq",
        "--draft ngram",
    ]


def test_a_candidate_has_the_same_id_on_machines_of_the_kind_and_another_by_its_build() -> None:
    model = model_of(LLAMA_3_8B, name="org/llama")
    one = plan_of(model, "ml.g5.12xlarge")

    assert identity_of(one, ASKED) == identity_of(replace(one, findings=()), ASKED)
    assert identity_of(one, ASKED) != identity_of(replace(one, kv_dtype="fp8"), ASKED)
    assert identity_of(one, ASKED) != identity_of(replace(one, tp_degree=4), ASKED)
