"""Which measurements are of a plan: others are refused with what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.core.errors import UsageError
from packager.core.measurement import MeasuredLoad, MeasuredRun, MeasuredSetup
from packager.core.plan import Plan
from packager.core.techniques import Draft, Quantization
from packager.core.workload import WORKLOADS
from packager.estimate.performance.calibration import Measured, check_units
from packager.estimate.performance.measured import (
    MeasuredElsewhere,
    measured_acceptance,
    measured_points,
)
from packager.estimate.performance.predict import predict_point, setup_of
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.refusals import raises_code

cases = cases_of(__file__)

QUESTIONS = WORKLOADS["questions"]
LOAD = MeasuredLoad(concurrency=4, tpot_s=0.025)
FASTER = MeasuredLoad(concurrency=4, tpot_s=0.012)


@pytest.fixture(scope="module")
def plain() -> Plan:
    return plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge", family="vllm", tp_degree=4)


@pytest.fixture(scope="module")
def drafted(plain: Plan) -> Plan:
    return replace(plain, draft=Draft(kind="eagle3", speculative_tokens=3))


@pytest.fixture(scope="module")
def packed(plain: Plan) -> Plan:
    return replace(
        plain, precision="w4a16", quantization=Quantization(method="awq", scheme="W4A16", bits=4)
    )


def run(*, plain_loads: tuple[MeasuredLoad, ...] = (), **stated: object) -> MeasuredRun:
    return MeasuredRun(
        source="results.json",
        setup=MeasuredSetup(**stated),  # type: ignore[arg-type]
        loads=(LOAD,),
        plain_loads=plain_loads,
        acceptance_length=2.6,
    )


def points(plan: Plan, *runs: MeasuredRun, known_as: tuple[str, ...] = ()) -> tuple[Measured, ...]:
    setup = setup_of(plan, accelerator_of(plan.instance))
    return measured_points(plan, setup, QUESTIONS, runs, known_as=known_as)


@cases("taken")
def test_measurements_of_the_plan_are_taken(plain: Plan, stated: dict[str, object]) -> None:
    (point,) = points(plain, run(**stated), known_as=("/models/llama-3-8b",))

    assert (point.concurrency, point.tpot_s, point.workload) == (4, 0.025, QUESTIONS)


@cases("refused")
def test_measurements_of_another_set_up_are_refused_with_the_difference(
    plain: Plan, stated: dict[str, object], words: str
) -> None:
    with pytest.raises(MeasuredElsewhere) as refused:
        points(plain, run(**stated))

    assert words in refused.value.message
    assert "results.json" in refused.value.message
    assert refused.value.hint


@cases("elsewhere")
def test_points_of_the_model_elsewhere_are_predicted_as_they_were_measured(
    plain: Plan, stated: dict[str, object], degree: int, device: str, copies: int
) -> None:
    (point,) = points(plain, run(**stated))

    found = point.setup
    assert (found.tp_degree, found.accelerator.name, found.replicas) == (degree, device, copies)


@pytest.mark.parametrize("spelling", ["awq", "W4A16", "w4a16"])
def test_quantized_weights_go_by_method_scheme_or_precision(packed: Plan, spelling: str) -> None:
    assert len(points(packed, run(quantization=spelling))) == 1


def test_unquantized_measurements_are_not_of_a_quantized_plan(packed: Plan) -> None:
    with pytest.raises(MeasuredElsewhere, match="weights 'none', and the plan has 'w4a16'"):
        points(packed, run(quantization="none"))


def test_a_plan_without_a_draft_takes_the_loads_without_one(plain: Plan) -> None:
    measured = run(plain_loads=(replace(FASTER, tpot_s=0.03),), draft="eagle3")

    assert [point.tpot_s for point in points(plain, measured)] == [0.03]
    assert measured_acceptance(plain, [measured]) is None
    assert measured_acceptance(plain, [run()]) is None  # which does not say with what


def test_a_plan_with_a_draft_takes_its_loads_and_its_acceptance(drafted: Plan) -> None:
    measured = run(plain_loads=(FASTER,), draft="eagle3")

    assert [point.tpot_s for point in points(drafted, measured)] == [0.025]
    assert measured_acceptance(drafted, [measured]) == 2.6


def test_measurements_without_a_draft_are_not_of_a_plan_with_one(drafted: Plan) -> None:
    with pytest.raises(MeasuredElsewhere, match="the draft 'none', and the plan has 'eagle3'"):
        points(drafted, run(draft="none"))


def test_a_report_with_plain_loads_alone_is_not_of_a_plan_with_a_draft(drafted: Plan) -> None:
    alone = replace(run(), loads=(), plain_loads=(LOAD,))

    with pytest.raises(UsageError, match="no load with a draft"):
        points(drafted, alone)


def test_measured_lengths_of_requests_are_kept(plain: Plan) -> None:
    measured = replace(run(), loads=(replace(LOAD, input_tokens=3000.4, output_tokens=99.6),))

    (point,) = points(plain, measured)

    assert (point.workload.input_tokens, point.workload.output_tokens) == (3000, 100)


@cases("units")
def test_another_unit_is_refused_and_guessed(plain: Plan, factor: float, words: str) -> None:
    setup = setup_of(plain, accelerator_of(plain.instance))
    right = predict_point(setup, QUESTIONS, 4).tpot_s
    wrong = Measured(setup=setup, workload=QUESTIONS, concurrency=4, tpot_s=right * factor)

    with raises_code("ImplausibleTime") as refused:
        check_units([wrong])

    assert words in refused.value.message
    check_units([replace(wrong, tpot_s=right * 8), replace(wrong, tpot_s=right / 8)])
