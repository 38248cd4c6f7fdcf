"""Predictions from measurements alone: only between them, with what a line through them misses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.core.measurement import MeasuredLoad, MeasuredRun, MeasuredSetup
from packager.core.workload import Workload
from packager.estimate.performance.calibration import Measured
from packager.estimate.performance.interpolated import predict_between
from packager.estimate.performance.predict import Setup, setup_of
from packager.pipeline.rank import predict_plan
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.known import known

SHORT = Workload(name="short", input_tokens=64, output_tokens=33)


@pytest.fixture(scope="module")
def setup() -> Setup:
    plan = plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge", family="vllm", tp_degree=4)
    return setup_of(plan, accelerator_of(plan.instance))


def point(setup: Setup, concurrency: int, tpot_s: float, ttft_s: float | None = 0.1) -> Measured:
    return Measured(
        setup=setup, workload=SHORT, concurrency=concurrency, tpot_s=tpot_s, ttft_s=ttft_s
    )


def test_times_between_two_measurements_are_on_the_line_of_their_logarithms(setup: Setup) -> None:
    found = known(
        predict_between(SHORT, (1, 2, 4, 8), [point(setup, 1, 0.010), point(setup, 4, 0.040, 0.4)])
    )

    assert [one.concurrency for one in found.points] == [1, 2, 4]
    middle = found.points[1]
    assert middle.tpot_s == pytest.approx(0.020)
    assert middle.ttft_s == pytest.approx(0.2)
    assert middle.latency_s == pytest.approx(0.2 + 32 * 0.020)
    assert middle.output_tokens_s == pytest.approx(2 * 33 / 0.84)
    assert found.band == 0.4  # two points prove nothing of what is between them


def test_three_measurements_on_a_line_narrow_the_band_to_what_benchmarks_repeat_within(
    setup: Setup,
) -> None:
    measured = [point(setup, n, 0.010 * n) for n in (1, 2, 4)]

    assert known(predict_between(SHORT, (1, 2, 4), measured)).band == 0.1


def test_the_band_is_as_wide_as_the_error_at_a_measurement_that_is_left_out(setup: Setup) -> None:
    measured = [point(setup, 1, 0.010), point(setup, 2, 0.030), point(setup, 4, 0.040)]

    found = known(predict_between(SHORT, (1, 2, 4), measured))

    assert found.band == pytest.approx(0.5)  # 30 ms, and the line from 10 to 40 says 20


def test_throughput_that_the_times_do_not_explain_widens_its_own_band(setup: Setup) -> None:
    lost = replace(point(setup, 1, 0.010), output_tokens_s=3 * 33 / 0.42)

    found = known(
        predict_between(SHORT, (1,), [lost, *(point(setup, n, 0.010 * n) for n in (2, 4))])
    )

    assert known(found.bands).throughput.share == pytest.approx(2.0)
    assert found.band == 0.1


def test_measurements_of_other_lengths_say_nothing(setup: Setup) -> None:
    longer = replace(SHORT, input_tokens=640)

    assert predict_between(longer, (1, 2), [point(setup, 1, 0.01), point(setup, 2, 0.02)]) is None
    assert predict_between(SHORT, (1, 2), []) is None


def test_without_first_tokens_none_are_told(setup: Setup) -> None:
    bands = known(known(predict_between(SHORT, (1,), [point(setup, 1, 0.010, None)])).bands)
    assert (bands.ttft, bands.throughput.share) == (None, 0.4)


def test_a_plan_of_a_device_without_figures_is_predicted_from_its_benchmark_alone() -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge", family="vllm", tp_degree=4)
    unknown = replace(accelerator_of(plan.instance), bandwidth_bytes_s=0)
    times = {1: 0.020, 2: 0.024, 4: 0.031}
    run = MeasuredRun(
        source="bench.json",
        setup=MeasuredSetup(instance="ml.g5.12xlarge"),
        loads=tuple(
            MeasuredLoad(concurrency=n, tpot_s=t, input_tokens=64, output_tokens=33)
            for n, t in times.items()
        ),
    )

    assert predict_plan(plan, unknown, SHORT) is None
    found = known(predict_plan(plan, unknown, SHORT, [run]))

    for one in found.points:
        assert abs(times[one.concurrency] / one.tpot_s - 1) <= found.band_at(one.concurrency)
