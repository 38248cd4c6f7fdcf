"""`packager plan --measured`: predictions fitted to what a user measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.commandline import TINY, Packager
from tests.unit.addons.bench.test_startup import whole_report

PLAN = ("plan", "--model", str(TINY), "--instance", "ml.g5.xlarge", "--format", "json")


def tpot_by_concurrency(text: str) -> dict[int, float]:
    points = json.loads(text)["predicted"]["points"]
    return {point["concurrency"]: point["tpot_s"] for point in points}


def test_measured_times_move_the_prediction(packager: Packager, tmp_path: Path) -> None:
    before = tpot_by_concurrency(packager(*PLAN).out)
    slower = [{"concurrency": n, "tpot_ms": before[n] * 3e3} for n in (1, 2)]
    (tmp_path / "two.json").write_text(json.dumps({"points": slower}))
    (tmp_path / "one.json").write_text(json.dumps({"points": slower[:1]}))

    fitted = packager(*PLAN, "--measured", "two.json", status=0)
    held = json.loads(packager(*PLAN, "--measured", "one.json").out)["predicted"]

    assert "fitted to 2 measured points at 1-2 requests" in fitted.out
    assert before[1] * 2.8 < tpot_by_concurrency(fitted.out)[1] <= before[1] * 3
    assert held["points"][0]["tpot_s"] == pytest.approx(3 * before[1], rel=0.05)
    assert held["fit"]["band"] < 0.4 == held["error_band"]  # the point contradicts the prediction
    assert held["points"][-1]["tpot_band"] == held["error_band"]
    assert "fitted to 1 measured point at 1 request (one.json)" in held["assumptions"][0]


def test_results_of_one_plan_do_not_rank_instances(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"points": [{"concurrency": 1, "tpot_ms": 5}]}')

    done = packager(
        *("plan", "--model", str(TINY), "--instance", "all", "--measured", "results.json"), status=2
    )

    assert "hint: " in done.err


def test_runs_of_several_benchmarks_are_taken_together(packager: Packager, tmp_path: Path) -> None:
    for concurrency in (1, 2, 4):
        times = {"max_concurrency": concurrency, "mean_tpot_ms": 1.0 + 0.1 * concurrency}
        run = read_tables(__file__)["run"] | times
        (tmp_path / f"at-{concurrency}.json").write_text(json.dumps(run))
    files = [word for n in (1, 2, 4) for word in ("--measured", f"at-{n}.json")]

    found = json.loads(packager(*PLAN, *files).out)["predicted"]

    assert (found["fit"]["points"], found["fit"]["lowest"], found["fit"]["highest"]) == (3, 1, 4)
    assert found["fit"]["band"] < 0.4 <= found["error_band"]
    assert found["assumptions"][0].startswith(
        "fitted to 3 measured points at 1-4 requests (at-1.json, at-2.json, at-4.json): ±"
    )


def test_unusable_measurements_change_nothing(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(
        '{"points": [{"concurrency": 1, "tpot_ms": 5, "input_tokens": 9}]}'
    )

    done = packager(
        *("plan", "--model", str(TINY), "--instance", "local", "--measured", "results.json"),
        status=0,
    )

    assert "--measured changes nothing" in done.err


def test_a_build_records_starts_as_they_were_measured(packager: Packager, tmp_path: Path) -> None:
    document = whole_report().model_dump(mode="json", exclude_none=True)
    document["startups"] = [{**document["startups"][0], "setup": {}}]
    (tmp_path / "startup.json").write_text(json.dumps(document))
    build = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch")
    outputs = ("--output", "oci:out", "--format", "json")

    def phases(*more: str) -> dict[str, str]:
        startup = json.loads(packager(*build, *outputs, *more).out)["startup"]
        return {phase["name"]: phase["words"] for phase in startup["nodes"][0]["phases"]}

    plain, measured = phases(), phases("--measured", "startup.json")

    assert plain.keys() == measured.keys()
    assert plain != measured


@pytest.mark.parametrize("command", ["build", "tune"])
def test_measurements_of_another_model_are_refused_before_any_work(
    packager: Packager, tmp_path: Path, command: str
) -> None:
    document = whole_report().model_dump(mode="json", exclude_none=True)
    (tmp_path / "startup.json").write_text(json.dumps(document))
    other = {"setup": {"model": "org/other"}, "points": [{"concurrency": 1, "tpot_ms": 5}]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    asked = {
        "build": ("--output", "oci:out", "--measured", "startup.json"),
        "tune": ("--goal", "cost", "--dry-run", "--measured", "other.json"),
    }[command]

    done = packager(command, "--model", str(TINY), "--instance", "ml.g5.xlarge", *asked, status=2)

    assert "was measured with the model" in done.err
    assert not (tmp_path / "out").exists()


def test_candidates_of_a_tune_are_predicted_as_they_were_measured(packager: Packager) -> None:
    tune = (
        *("tune", "--model", str(TINY), "--instance", "ml.g5.xlarge", "--goal", "latency"),
        *("--dry-run", "--concurrency", "1", "--format", "json"),
        *("--vary", "quantize=none", "--vary", "draft=none"),
    )

    def first(*more: str) -> dict[str, float]:
        found: dict[str, float] = json.loads(packager(*tune, *more).out)["candidates"][0]
        return found

    before, after = first(), first("--measured", "TPOT 40 ms at 1, ml.g5.xlarge")

    assert after["predicted"] < before["predicted"] / 2
    assert after["band"] < before["band"]
