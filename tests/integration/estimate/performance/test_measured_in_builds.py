"""`packager plan --measured`: predictions fitted to what a user measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.commandline import TINY, Packager

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
        *("plan", "--model", str(TINY), "--instance", "local", "--measured", "results.json")
    )

    assert done.status == 0, done.err
    assert "--measured changes nothing" in done.err
