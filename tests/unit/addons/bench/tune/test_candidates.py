"""What a tune measures: combinations, without doubles, refusals and hopeless ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from packager.addons.bench.tune.candidates import (
    CandidatePrediction,
    Field,
    identity_of,
    make_field,
)
from packager.addons.bench.tune.space import (
    Axis,
    Variation,
    base_of,
    merged_axes,
    request_with,
    variations,
)
from packager.catalog.instances import find_instance
from packager.core.errors import PlanRejected, UsageError
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.optimize.steps.dry_run import DryRunExecutor
from packager.pipeline import pipeline
from tests.support.cases import Case, cases
from tests.support.headers import LLAMA_3_8B, LOCAL_CPU, TINY, model_of, plan_of
from tests.support.pages import services_with
from tests.support.predictions import point

ASKED = BuildRequest(model="org/tiny", instance="local", goal="throughput")
FOUND = services_with(model_of(TINY, name="org/tiny"))
SERVICES = replace(
    FOUND,
    executor=DryRunExecutor(FOUND.executor.find_tool),  # whose machine is not looked at
    this_machine=lambda: LOCAL_CPU,
)


def names_of(request: BuildRequest = ASKED, **more: Any) -> list[str]:
    how = {"quantized": False, "brings_draft": False, **more}
    base = base_of(request, request.goal or "cost")
    machine = LOCAL_CPU if request.instance == "local" else find_instance(request.instance)
    return [one.name for one in variations(base, machine, request.goal or "cost", **how)]


def plan(request: BuildRequest) -> Plan:
    return pipeline.plan(request, SERVICES).plan


def predicted(tokens_s: float, band: float) -> CandidatePrediction:
    return CandidatePrediction(point=point(8, output_tokens_s=tokens_s), band=band)


def field_of(
    *varied: Mapping[str, Any], told: Mapping[str, CandidatePrediction] | None = None
) -> Field:
    """Plan variations, with predictions by the name of their quantization."""
    found = told or {}
    return make_field(
        base_of(ASKED, "throughput"),
        [Variation(changes=changes) for changes in varied],
        plan,
        lambda planned: found.get(planned.precision),
        "throughput",
    )


@cases("names")
def test_what_is_tried(case: Case) -> None:
    request = ASKED.model_copy(update=case["asked"])
    axes = merged_axes(case.get("varied", ()))

    assert names_of(request, varied=axes, **case.get("checkpoint", {})) == case["names"]


@cases("fields")
def test_what_is_measured_of_combinations(case: Case) -> None:
    told = {name: predicted(*figures) for name, figures in case.get("told", {}).items()}

    found = field_of(*case["varied"], told=told)

    assert [one.name for one in found.candidates] == case["kept"]
    for one, (name, kind, why) in zip(found.dropped, case["dropped"], strict=True):
        assert (one.name, one.kind) == (name, kind)
        assert one.why.startswith(why)


def test_more_combinations_than_anybody_waits_for_are_refused() -> None:
    axis = Axis("max_batch", tuple(range(1, 200)))

    with pytest.raises(UsageError) as refused:
        names_of(varied=(axis,))

    assert refused.value.message == "1,791 combinations are too many to plan"


def test_settings_of_the_engine_add_to_those_of_the_request() -> None:
    asked = ASKED.model_copy(update={"engine_options": {"a": "1", "b": "2"}})

    changed = request_with(asked, {"engine_options": {"b": "3"}})

    assert changed.engine_options == {"a": "1", "b": "3"}


def test_quality_is_demanded_of_what_is_quantized_only() -> None:
    asked = ASKED.model_copy(update={"max_kld": 0.1, "evaluate": "default"})

    assert request_with(asked, {}).evaluation is None
    assert request_with(asked, {"quantize": "awq"}).max_kld == 0.1


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


@cases("hopeless")
def test_only_what_both_bands_exclude_is_hopeless(
    low: float, high: float, band: float, *, kept: bool
) -> None:
    told = {
        "w4a16": predicted(high, band),
        "w8a8": predicted(low, band),
        "bf16": predicted(50, 0.1),
    }

    found = field_of({}, AWQ, INT8, told=told)

    assert ("--quantize smoothquant" in [one.name for one in found.candidates]) is kept
    assert found.candidates[0].name == "as requested"  # however hopeless


def test_a_hopeless_candidate_that_the_user_named_is_measured() -> None:
    told = {"w4a16": predicted(400.0, 0.1), "w8a8": predicted(1.0, 0.1)}
    varied = [Variation(), Variation(changes=AWQ), Variation(changes=INT8, is_asked=True)]

    found = make_field(
        base_of(ASKED, "throughput"),
        varied,
        plan,
        lambda planned: told.get(planned.precision),
        "throughput",
    )

    assert "--quantize smoothquant" in [one.name for one in found.candidates]


def test_a_candidate_has_the_same_id_on_machines_of_the_kind_and_another_by_its_build() -> None:
    one = plan_of(model_of(LLAMA_3_8B, name="org/llama"), "ml.g5.12xlarge")

    assert identity_of(one, ASKED) == identity_of(replace(one, findings=()), ASKED)
    assert identity_of(one, ASKED) != identity_of(replace(one, kv_dtype="fp8"), ASKED)
    assert identity_of(one, ASKED) != identity_of(replace(one, tp_degree=4), ASKED)
