"""A benchmark as text."""

from __future__ import annotations

import pytest

from packager.addons.bench.report import brief_lines
from tests.support import bench_reports as reports
from tests.support.cases import cases
from tests.support.report_values import bench_lines


@pytest.mark.parametrize("name", reports.REPORTS)
def test_every_report_has_text(name: str) -> None:
    report = reports.REPORTS[name]()

    lines = list(bench_lines(report))

    assert lines[0].startswith("requests   ")
    assert all("\n" not in line and "None" not in line.replace("None of", "") for line in lines)
    assert lines.count("Latency") == any(variant.loads for variant in report.variants)


def test_of_one_server_the_tables_need_no_names() -> None:
    lines = list(bench_lines(reports.tiny()))

    assert lines[lines.index("Latency") + 1].split()[0] == "concurrency"


@cases("texts")
def test_a_report_says(report: str, parts: tuple[str, ...]) -> None:
    text = "\n".join(bench_lines(reports.REPORTS[report]()))

    assert [part for part in parts if part not in text] == []


def test_a_server_that_failed_and_an_early_end_are_said() -> None:
    base = reports.tiny()
    broken = base.variants[0].model_copy(update={"failure": "it ended with status 137"})
    report = base.model_copy(update={"variants": (broken,), "incomplete": "interrupted"})

    lines = list(bench_lines(report))

    assert f"failed     {broken.name}: it ended with status 137" in lines
    assert lines[-1] == "incomplete interrupted; loads may be missing or short"


def test_an_image_is_inspected_with_a_line_for_each_load() -> None:
    report = reports.quantized()
    one = report.model_copy(update={"variants": report.variants[:1]})

    lines = list(brief_lines(one))

    assert len(lines) == len(one.variants[0].loads)
    assert lines[0].startswith("1 request at once: ")
    assert " tokens/s, TTFT " in lines[0]
    assert lines[0].endswith(" for a million output tokens")
