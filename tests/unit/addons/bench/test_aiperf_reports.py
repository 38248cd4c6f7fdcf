"""Summaries of AIPerf as reports, and what is not one."""

from __future__ import annotations

from typing import Any

import pytest

from packager.addons.bench.aiperf_reports import is_aiperf, report_of_aiperf
from packager.addons.bench.export import profile
from packager.addons.bench.metrics import load_figures
from packager.core.bench import BenchLoad, BenchReport, Limits
from packager.core.documents import NotStrict
from tests.support.bench_reports import quantized
from tests.support.cases import cases, read_tables
from tests.support.report_values import bench_lines
from tests.unit.addons.bench.loads import answer, failure, load

AIPERF: dict[str, Any] = read_tables(__file__)["document"]


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


@cases("levels")
def test_a_load_is_so_many_at_a_time_or_a_second(
    config: dict[str, Any], concurrency: int | None, rate: float | None
) -> None:
    (found,) = report_of_aiperf({**AIPERF, "input_config": config}, "a").variants[0].loads

    assert (found.concurrency, found.rate) == (concurrency, rate)


def test_limits_are_those_of_the_export() -> None:
    slos = {"time_to_first_token": 500.0, "inter_token_latency": 20}
    config = {**AIPERF["input_config"], "slos": slos}

    report = report_of_aiperf({**AIPERF, "input_config": config}, "a")

    assert report.limits == Limits(ttft_ms=500.0, tpot_ms=20.0)


@cases("refused")
def test_what_is_no_whole_summary_is_refused(
    changes: dict[str, Any] | None, without: str | None, reason: str
) -> None:
    document = {**AIPERF, **(changes or {})}
    document.pop(without or "", None)

    with pytest.raises(NotStrict, match=reason):
        report_of_aiperf(document, "a")


def test_a_report_is_no_summary() -> None:
    report: BenchReport = quantized()

    assert not is_aiperf(report.model_dump(mode="json"))
