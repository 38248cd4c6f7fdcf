"""Cold starts in reports of loads: of records, of their own files, beside benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

from packager.addons.bench.merge import Named, merge, report_of_record, report_of_starts
from packager.addons.bench.reading import read_benchmark
from packager.addons.bench.startup_session import StartResults
from packager.core.record import BuildRecord
from packager.core.startup import StartupReport
from packager.estimate.performance.measured import measured_starts
from packager.estimate.performance.measurements import load_measurements
from packager.estimate.performance.startup import image_of_plan, predict_startup
from tests.support.bench_reports import even
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.report_values import bench_html, bench_lines
from tests.unit.addons.bench.test_startup import report_of, start_of, whole_report
from tests.unit.pipeline.test_records import record as a_record

PLAN = plan_of(model_of(LLAMA_3_8B, name="llama-3-8b"), "ml.g5.12xlarge", tp_degree=4)


def starts_of_one(name: str = "one:1") -> StartupReport:
    results = StartResults(rounds=3, starts={name: [start_of(n, 1 + n / 50) for n in range(3)]})
    predicted = a_record(startup=predict_startup(image_of_plan(PLAN)))
    return report_of(results, name, record=predicted)


def a_started_record() -> BuildRecord:
    return a_record(starts=starts_of_one())


def text_of(record: BuildRecord) -> str:
    return "\n".join(bench_lines(report_of_record(record)))


def test_a_record_shows_each_phase_beside_what_was_predicted() -> None:
    rows = {" ".join(line.split()) for line in text_of(a_started_record()).splitlines()}

    assert "phase measured interval predicted" in rows
    assert "unpack – – ~45 s to 12 min" in rows
    assert "weights 2.0 s 1.9 s to 2.1 s ~8.0 s to 2.0 min" in rows
    assert "in all 51 s 49 s to 53 s 4.1 min to 18 min" in rows


def test_what_to_change_next_and_what_is_guessed_stand_below() -> None:
    text = text_of(a_started_record())

    assert "next: compile ahead of time: --compile auto (compile takes 31 s, 60 %" in text
    assert "~ is guessed" in text


def test_a_page_has_the_phases_and_a_link_to_them() -> None:
    page = bench_html(report_of_record(a_started_record()))

    assert '<li><a href="#starts">Cold start</a></li>' in page
    assert "<td>~45 s to 12 min</td>" in page
    assert "No load was measured" in page


def test_a_record_without_starts_shows_no_phases() -> None:
    assert "Cold start" not in text_of(a_record())
    assert "Cold start" not in bench_html(report_of_record(a_record()))


def test_starts_are_of_the_server_that_is_the_record_s_image() -> None:
    first, second = even().variants
    setup = second.setup.model_copy(update={"digest": a_record().digest})
    variants = (first, second.model_copy(update={"setup": setup}))
    loads = even().model_copy(update={"variants": variants})
    found = report_of_record(a_record(bench=loads, starts=starts_of_one())).variants

    assert [one.name for one in found] == [first.name, second.name]
    assert [one.started is not None for one in found] == [False, True]


def test_starts_beside_loads_of_other_servers_have_a_row_of_their_own() -> None:
    found = report_of_record(a_record(bench=even(), starts=starts_of_one())).variants

    assert [one.name for one in found] == [*(one.name for one in even().variants), "one:1"]
    assert found[-1].loads == ()


def test_starts_of_another_machine_than_the_loads_are_said() -> None:
    loads = even().model_copy(update={"machine": "local: 2 CPUs"})
    starts = starts_of_one().model_copy(update={"machine": "local: 64 CPUs"})

    notes = report_of_record(a_record(bench=loads, starts=starts)).notes

    assert "cold starts were measured elsewhere: local: 64 CPUs" in notes


def test_the_file_of_cold_starts_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "startup.json").write_text(whole_report().model_dump_json(exclude_none=True))

    found = read_benchmark(tmp_path / "startup.json").report

    assert [one.name for one in found.variants] == ["one:1", "two:1"]
    assert read_benchmark(tmp_path).report == found


def test_json_of_a_report_with_starts_is_read_again_by_reports_and_plans(tmp_path: Path) -> None:
    started = Named(name="record", report=report_of_record(a_started_record()))
    both = merge([started, Named(name="two", report=report_of_starts(whole_report()))])
    place = tmp_path / "both.json"
    place.write_text(json.dumps(both.model_dump(mode="json", exclude_none=True)))

    assert read_benchmark(place).report == both
    own = report_of_starts(whole_report()).model_dump_json(exclude_none=True)
    place.write_text(own)
    [started] = measured_starts(PLAN, [load_measurements(place)])
    assert started == whole_report().startups[0]
