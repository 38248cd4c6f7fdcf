"""Cold starts of several images: their order, their figures, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.commands.bench_startup import check_startup, parse_places
from packager.addons.bench.load.spec import RequestSpec
from packager.addons.bench.options import BenchOptions
from packager.addons.bench.startup_report import make_startup_report, spread
from packager.addons.bench.startup_session import StartResults, measure_starts
from packager.addons.bench.startup_text import start_report
from packager.addons.bench.targets import BenchTarget
from packager.cli.serving.opening import MeasuredServer
from packager.core.bench_setup import BenchSetup
from packager.core.errors import SmokeFailed, UsageError
from packager.core.reports.page import report_html
from packager.core.reports.text import report_lines
from packager.core.startup import OneStart, PhaseName, StartupReport
from packager.estimate.performance.measured import MeasuredElsewhere, measured_starts
from packager.estimate.performance.measurements import load_measurements
from packager.estimate.performance.startup import image_of_plan, predict_startup
from packager.pipeline.records import load_record, put_starts, save_record
from tests.support.cases import Case, cases, read_tables
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.known import known
from tests.unit.pipeline.test_records import place_of
from tests.unit.pipeline.test_records import record as a_record

PHASES: Mapping[PhaseName, float] = read_tables(__file__)["phases"]
SETUP = BenchSetup(**read_tables(__file__)["setup"])


def target(name: str, **changes: Any) -> BenchTarget:
    server = MeasuredServer(name=name, env={})
    return BenchTarget(**({"name": name, "server": server, "setup": SETUP} | changes))


def start_of(number: int, slower: float = 1.0, **changes: Any) -> OneStart:
    phases = {name: seconds * slower for name, seconds in PHASES.items()}
    given: dict[str, Any] = {
        "round": number,
        "phases": phases,
        "seconds": sum(phases.values()),
        "ready_s": sum(phases.values()) - phases["first_token"],
        "cpu_seconds": 40.0 * slower,
        "peak_memory_bytes": 2**30,
    }
    return OneStart(**(given | changes))


def report_of(results: StartResults, *names: str, **changes: Any) -> StartupReport:
    targets = [target(name, **changes) for name in names]
    return make_startup_report(
        targets, results, measured="2026-11-28T00:00:00Z", machine="", command="packager bench m"
    )


def whole_report() -> StartupReport:
    slower = [1 + number / 50 for number in range(3)]
    starts = {
        "one:1": [start_of(number, factor) for number, factor in enumerate(slower)],
        "two:1": [start_of(number, factor / 2) for number, factor in enumerate(slower)],
    }
    return report_of(StartResults(rounds=3, starts=starts), "one:1", "two:1")


def report_of_one(**changes: Any) -> StartupReport:
    """Return the report of one start, which differs so."""
    return report_of(StartResults(rounds=1, starts={"one:1": [start_of(0, **changes)]}), "one:1")


def test_images_take_turns_and_none_is_always_the_first() -> None:
    asked: list[tuple[str, int]] = []

    def start(server: MeasuredServer, number: int) -> OneStart:
        asked.append((server.name, number))
        return start_of(number)

    results = measure_starts([target("a"), target("b")], 2, start)

    assert asked == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert {name: len(found) for name, found in results.starts.items()} == {"a": 2, "b": 2}


def test_an_image_that_does_not_start_is_a_result_and_not_started_again() -> None:
    asked: list[str] = []

    def start(server: MeasuredServer, number: int) -> OneStart:
        asked.append(server.name)
        if server.name == "bad":
            raise SmokeFailed("the container ended with status 1", hint="its log is above")
        return start_of(number)

    report = report_of(measure_starts([target("bad"), target("good")], 3, start), "bad", "good")

    assert asked.count("bad") == 1
    assert asked.count("good") == 3
    assert report.startups[0].failure == "the container ended with status 1"
    assert report.startups[0].starts == ()
    assert report.compared == ()
    assert "failed     the container ended with status 1" in "\n".join(
        report_lines(start_report(report))
    )


def test_what_was_measured_before_an_interrupt_is_kept() -> None:
    def start(server: MeasuredServer, number: int) -> OneStart:
        if number:
            raise KeyboardInterrupt
        return start_of(number)

    results = measure_starts([target("a")], 3, start)

    assert results.is_interrupted
    assert report_of(results, "a").incomplete == "interrupted"
    with pytest.raises(KeyboardInterrupt):
        measure_starts([target("a")], 3, lambda server, number: start(server, 1))


def test_a_spread_has_an_interval_from_three_rounds_on() -> None:
    assert spread([]) is None
    two, three = spread([1.0, 3.0]), spread([1.0, 2.0, 3.0])
    assert two is not None and (two.median, two.low) == (2.0, None)
    assert three is not None and three.median == 2.0
    assert three.low == 0.0  # no time is negative
    assert three.high == pytest.approx(2 + 4.303 / 3**0.5, abs=0.001)


def test_variants_are_compared_round_by_round() -> None:
    compared = {one.phase: one for one in whole_report().compared}

    assert compared["seconds"].ratio == 0.5
    assert compared["cpu_seconds"].ratio == 0.5
    assert compared["import"].is_noise is False  # half in every round
    assert {one.variant for one in compared.values()} == {"two:1"}


def test_the_longest_phase_and_its_remedy_are_named() -> None:
    found = known(whole_report().startups[0].next)

    assert (found.phase, found.change) == ("compile", "compile ahead of time: --compile auto")


def test_measured_stands_beside_predicted() -> None:
    plan = plan_of(model_of(LLAMA_3_8B, name="llama-3-8b"), "ml.g5.12xlarge")
    predicted = predict_startup(image_of_plan(plan))
    built = a_record(startup=predicted)
    results = StartResults(rounds=1, starts={"one:1": [start_of(0, untold_s=3.0)]})

    report = report_of(results, "one:1", record=built)
    lines = [" ".join(line.split()) for line in report_lines(start_report(report))]

    assert "import 14 s – ~25 s" in lines
    assert "weights 2.0 s – ~8.0 s to 2.0 min" in lines
    assert "not told 3.0 s – –" in lines
    assert "pull – – ~84 s" in lines  # it was in the engine
    assert "40 s of processor time, up to 1.0 GiB of memory" in "\n".join(lines)


def test_layers_that_another_image_has_are_told() -> None:
    found = report_of_one(pulled_bytes=4_000_000_000, known_layers=1)

    text = "\n".join(report_lines(start_report(found)))

    assert "4.0 GB were pulled; other images in the engine have 1 layer of it" in text


def test_a_page_has_every_figure_and_escapes_what_strangers_wrote() -> None:
    page = report_html(start_report(report_of_one(compiled="<script>alert(1)</script>")))

    assert page.startswith("<!doctype html>")
    assert "<td>14 s</td>" in page
    assert "<script>alert(1)" not in page
    assert "packager bench m" in page


def test_a_log_that_does_not_tell_is_said() -> None:
    notes = report_of_one(phases={"container": 1.0, "first_token": 0.5}).notes

    assert "one:1: its log does not tell import, weights, compile, ready" in notes


def test_a_plan_takes_the_figures_of_its_own_image(tmp_path: Path) -> None:
    place = tmp_path / "startup.json"
    place.write_text(whole_report().model_dump_json())
    plan = plan_of(model_of(LLAMA_3_8B, name="llama-3-8b"), "ml.g5.12xlarge", tp_degree=4)
    other = plan_of(model_of(LLAMA_3_8B, name="llama-3-8b"), "ml.g5.48xlarge", tp_degree=4)

    run = load_measurements(place)

    assert not run.has_loads
    [found] = measured_starts(plan, [run])
    assert found.phases["import"].median == pytest.approx(14.28)
    with pytest.raises(MeasuredElsewhere, match="the instance"):
        measured_starts(other, [run])


def test_a_record_keeps_measured_starts_and_so_does_a_later_build(tmp_path: Path) -> None:
    save_record(a_record(), state_dir=tmp_path, copy_to=None)
    put_starts(place_of(tmp_path), whole_report())
    save_record(a_record(), state_dir=tmp_path, copy_to=None)

    assert load_record(place_of(tmp_path)).starts == whole_report()
    assert load_measurements(place_of(tmp_path)).started is not None


@cases("of_loads")
def test_options_of_loads_are_refused(case: Case) -> None:
    asked, spec = BenchOptions(**case.get("asked", {})), RequestSpec(**case.get("spec", {}))

    with pytest.raises(UsageError, match=f"{case['flag']} is of loads"):
        check_startup(asked, spec, case.get("others", {}))


def test_rounds_are_of_starts_as_well() -> None:
    check_startup(BenchOptions(rounds=5), RequestSpec(), {"--usd-per-hour": None})
    with pytest.raises(UsageError, match="holds a load"):
        parse_places(["x/output.tar.gz"])
