"""Summaries of AIPerf as reports, and what is not one."""

from __future__ import annotations

from typing import Any

import pytest

from packager.bench.aiperf_reports import is_aiperf, report_of_aiperf
from packager.bench.export import profile
from packager.bench.metrics import load_figures
from packager.bench.report import bench_lines
from packager.core.bench import BenchLoad, BenchReport, Limits
from packager.core.documents import NotStrict
from tests.support.bench_reports import quantized
from tests.unit.bench.loads import answer, failure, load

AIPERF: dict[str, Any] = {
    "schema_version": "1.4",
    "aiperf_version": "0.13.0",
    "request_count": {"unit": "requests", "avg": 60.0},
    "error_request_count": {"unit": "requests", "avg": 4.0},
    "benchmark_duration": {"unit": "sec", "avg": 12.5},
    "request_throughput": {"unit": "requests/sec", "avg": 4.8},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 610.0},
    "time_to_first_token": {"unit": "ms", "avg": 120.0, "p50": 110.0, "p95": 200.0, "count": 60},
    "inter_token_latency": {"unit": "ms", "avg": 12.5, "p50": 12.0},
    "request_latency": {"unit": "ms", "avg": 1100.0, "p50": 1000.0},
    "telemetry": {"unit": "watts"},
    "input_config": {
        "endpoint": {"model_names": ["org/model"]},
        "loadgen": {"concurrency": 8},
        "input": {"prompt": {"input_tokens": {"mean": 550}, "output_tokens": {"mean": 150}}},
    },
    "was_cancelled": False,
    "start_time": "2026-11-20T10:00:00Z",
}


def measured_load() -> BenchLoad:
    """Return the figures of a load of two answers and a failure."""
    good = answer(at=(0.5, 0.75, 1.0), input_tokens=10, output_tokens=3)
    return load_figures([load(good, failure("cut"), good)])


def test_a_summary_of_aiperf_is_a_report_with_one_load() -> None:
    assert is_aiperf(AIPERF)
    report = report_of_aiperf(AIPERF, "export.json")

    (variant,) = report.variants
    (only,) = variant.loads
    assert (variant.name, variant.setup.model) == ("export.json", "org/model")
    assert report.workload.name == "550 tokens in, 150 out"
    assert (only.concurrency, only.rate) == (8, None)
    assert (only.requests, only.answered, only.seconds) == (64, 60, 12.5)
    assert only.metrics["time_to_first_token"].p95 == 200.0
    assert "telemetry" not in only.metrics
    assert any("610" in line for line in bench_lines(report))


def test_what_packager_exported_is_read_again() -> None:
    made = measured_load()
    variant = quantized().variants[0].model_copy(update={"loads": (made,)})
    whole = quantized().model_copy(update={"variants": (variant,)})

    found = report_of_aiperf(profile(whole, variant, made), "other")

    (again,) = found.variants
    (read,) = again.loads
    assert (again.name, again.setup) == (variant.name, variant.setup)
    assert (read.concurrency, read.requests, read.answered) == (made.concurrency, 3, 2)
    assert {tag: read.metrics[tag] for tag in made.metrics} == made.metrics
    assert found.limits == whole.limits


@pytest.mark.parametrize(
    ("config", "level"),
    [
        pytest.param({"loadgen": {"request_rate": 2.5}}, (None, 2.5), id="rate"),
        pytest.param({"loadgen": {"request_rate": 2, "concurrency": 4}}, (4, 2.0), id="both"),
        pytest.param(
            {
                "phases": [
                    {"type": "concurrency", "concurrency": 2, "exclude_from_results": True},
                    {"type": "concurrency", "concurrency": 16},
                ]
            },
            (16, None),
            id="the phase that is reported",
        ),
    ],
)
def test_a_load_is_so_many_at_a_time_or_a_second(
    config: dict[str, Any], level: tuple[int | None, float | None]
) -> None:
    (found,) = report_of_aiperf({**AIPERF, "input_config": config}, "a").variants[0].loads

    assert (found.concurrency, found.rate) == level


def test_limits_are_those_of_the_export() -> None:
    slos = {"time_to_first_token": 500.0, "inter_token_latency": 20}
    config = {**AIPERF["input_config"], "slos": slos}

    report = report_of_aiperf({**AIPERF, "input_config": config}, "a")

    assert report.limits == Limits(ttft_ms=500.0, tpot_ms=20.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"request_count": None}, "request_count is missing", id="no count"),
        pytest.param(
            {"request_count": {"unit": "requests", "avg": 1.5}}, "expected a count", id="part"
        ),
        pytest.param(
            {"time_to_first_token": {"unit": "s", "avg": 1}},
            "the unit of time_to_first_token is 's', expected 'ms'",
            id="unit",
        ),
        pytest.param(
            {"request_latency": {"unit": "ms", "avg": "1"}},
            "the metric 'request_latency'",
            id="text",
        ),
        pytest.param({"input_config": {}}, "neither how many requests ran at a time", id="no load"),
        pytest.param(
            {"input_config": {"loadgen": {"concurrency": 0}}}, "expected 1 to 1024", id="none"
        ),
        pytest.param({"packager": {"setup": {"colour": "red"}}}, "colour", id="setup"),
        pytest.param({"packager": {"setup": [1]}}, "setup|valid", id="a list"),
    ],
)
def test_what_is_no_whole_summary_is_refused(changes: dict[str, Any], reason: str) -> None:
    document = {**AIPERF, **changes}

    with pytest.raises(NotStrict, match=reason):
        report_of_aiperf(document, "a")


def test_a_report_is_no_summary() -> None:
    report: BenchReport = quantized()

    assert not is_aiperf(report.model_dump(mode="json"))
