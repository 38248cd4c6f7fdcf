"""Reports of `packager bench` as measurements: which server of a file a plan is fitted to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.core.bench import BenchLoad, BenchReport, BenchVariant, BenchWorkload
from packager.core.bench_setup import BenchSetup
from packager.core.errors import UsageError
from packager.core.measurement import MeasuredLoad, MeasuredRun, MeasuredSetup
from packager.core.plan import Plan
from packager.core.techniques import Draft
from packager.core.workload import WORKLOADS
from packager.estimate.performance.measured import MeasuredElsewhere, measured_acceptance, run_of
from packager.estimate.performance.measurements import load_measurements
from packager.pipeline.rank import predict_plan
from tests.support.bench_reports import acceptance, metric, whole
from tests.support.cases import read_tables
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.known import known

TABLES = read_tables(__file__)

SETUP = BenchSetup(**TABLES["setup"])
# Llama-3-8B in 16 bits on four A10G, as one server once gave them: slower than the formula.
MEASURED = {1: (14.1, 118.0), 4: (15.6, 240.0), 8: (18.9, 395.0), 16: (24.8, 690.0)}


def load_at(concurrency: int, tpot_ms: float, ttft_ms: float, length: float = 1.0) -> BenchLoad:
    rate = concurrency / (ttft_ms + 249 * tpot_ms) * 1e3
    return BenchLoad(
        concurrency=concurrency,
        requests=64,
        answered=64,
        seconds=64 / rate,
        metrics={
            "inter_token_latency": metric("ms", tpot_ms, 0.0),
            "time_to_first_token": metric("ms", ttft_ms, 0.0),
            "output_token_throughput": whole("tokens/sec", 250 * rate),
            "input_sequence_length": metric("tokens", 622, 0.0),
            "output_sequence_length": metric("tokens", 250, 0.0),
        },
        acceptance=acceptance(length) if length > 1 else None,
    )


def report(*variants: BenchVariant) -> BenchReport:
    return BenchReport(
        packager_version="0.2",
        measured="2026-11-22T10:00:00Z",
        workload=BenchWorkload(name="questions"),
        variants=variants,
    )


PLAIN = BenchVariant(
    name="llama:plain",
    setup=SETUP,
    loads=tuple(load_at(number, *times) for number, times in MEASURED.items()),
)


def drafted_by(kind: str, length: float) -> BenchVariant:
    """Return a variant with a draft that yielded so many tokens a step."""
    setup = SETUP.model_copy(update={"draft": kind})
    return BenchVariant(name=f"llama:{kind}", setup=setup, loads=(load_at(4, 7.5, 260.0, length),))


DRAFTED = drafted_by("eagle3", 2.6)


def measured(directory: Path, *variants: BenchVariant) -> MeasuredRun:
    """Read a report of these variants from a file."""
    path = directory / "bench.json"
    path.write_text(report(*variants).model_dump_json(exclude_none=True))
    return load_measurements(path)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(model_of(LLAMA_3_8B), "ml.g5.12xlarge", family="vllm", tp_degree=4)


@pytest.fixture(scope="module")
def drafted(plan: Plan) -> Plan:
    return replace(plan, draft=Draft(kind="eagle3", speculative_tokens=3))


def test_a_report_has_a_run_for_every_server(tmp_path: Path) -> None:
    run = measured(tmp_path, PLAIN, DRAFTED)

    assert run.setup == MeasuredSetup(**TABLES["setup"])
    assert run.loads[1] == MeasuredLoad(
        concurrency=4,
        tpot_s=0.0156,
        ttft_s=0.24,
        output_tokens_s=pytest.approx(242.467, abs=0.01),
        input_tokens=622,
        output_tokens=250,
    )
    (drafted,) = run.others
    assert (drafted.setup.draft, drafted.acceptance_length) == ("eagle3", 2.6)


def test_the_plans_server_is_found_in_a_report(tmp_path: Path, plan: Plan, drafted: Plan) -> None:
    run = measured(tmp_path, DRAFTED, PLAIN)

    assert run_of(plan, run, ["llama-3-8b"]).setup.draft == "none"
    assert run_of(drafted, run, ["llama-3-8b"]).setup.draft == "eagle3"
    assert measured_acceptance(drafted, [run]) == 2.6
    assert measured_acceptance(plan, [run]) is None


def test_what_another_draft_yielded_is_not_the_plans(tmp_path: Path, drafted: Plan) -> None:
    heads = drafted_by("medusa", 3.9)
    run = measured(tmp_path, DRAFTED, heads)

    assert measured_acceptance(drafted, [run]) == 2.6


def test_a_report_of_other_servers_alone_is_refused_with_the_first_ones_difference(
    tmp_path: Path, plan: Plan
) -> None:
    run = measured(tmp_path, DRAFTED)

    with pytest.raises(MeasuredElsewhere) as refused:
        run_of(plan, run, ["llama-3-8b"])

    assert "was measured with the draft 'eagle3', and the plan has 'none'" in refused.value.message


def test_after_a_benchmark_each_load_is_within_its_new_band(tmp_path: Path, plan: Plan) -> None:
    run = measured(tmp_path, PLAIN)
    asked = (plan, accelerator_of(plan.instance), WORKLOADS["questions"])

    general = known(predict_plan(*asked))
    fitted = known(predict_plan(*asked, [run], known_as=("llama-3-8b",)))

    assert known(fitted.fit).points == 4
    assert fitted.band_at(8) < general.band
    told = {point.concurrency: point for point in fitted.points}
    for concurrency, (tpot_ms, _) in MEASURED.items():
        point = told[concurrency]
        assert abs(tpot_ms / (1e3 * point.tpot_s) - 1) <= fitted.band_at(concurrency), concurrency


def test_loads_at_a_rate_and_loads_without_a_time_per_token_say_nothing(tmp_path: Path) -> None:
    at_a_rate = load_at(4, 15.0, 200.0).model_copy(update={"rate": 2.0})
    timeless = load_at(8, 15.0, 200.0).model_copy(update={"metrics": {}})
    found = PLAIN.model_copy(update={"loads": (at_a_rate, timeless)})

    with pytest.raises(UsageError) as refused:
        measured(tmp_path, found)

    assert "no load with a concurrency was answered" in refused.value.message


def test_figures_in_a_record_are_of_what_the_record_says(tmp_path: Path) -> None:
    record = {**TABLES["record"], "bench": report(PLAIN).model_dump(mode="json")}
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))

    run = load_measurements(path)

    assert run.setup == MeasuredSetup(**TABLES["setup_of_record"])
    assert [load.concurrency for load in run.loads] == [1, 4, 8, 16]
