"""`packager plan --measured`: predictions fitted to what a user measured."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commandline import TINY, Packager

PLAN = ("plan", "--model", str(TINY), "--instance", "ml.g5.xlarge", "--format", "json")


def tpot_by_concurrency(text: str) -> dict[int, float]:
    points = json.loads(text)["predicted"]["points"]
    return {point["concurrency"]: point["tpot_s"] for point in points}


def test_measured_times_move_the_prediction_towards_them(
    packager: Packager, tmp_path: Path
) -> None:
    before = tpot_by_concurrency(packager(*PLAN).out)
    slower = {"points": [{"concurrency": 1, "tpot_ms": before[1] * 1.05e3}]}
    (tmp_path / "results.json").write_text(json.dumps(slower))

    done = packager(*PLAN, "--measured", "results.json")

    assert done.status == 0, done.err
    assert "fitted to 1 measured points" in done.out
    assert before[1] < tpot_by_concurrency(done.out)[1] <= before[1] * 1.06


def test_results_of_another_form_are_refused(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"points": []}')

    done = packager(*PLAN, "--measured", "results.json")

    assert done.status == 2
    assert "points" in done.err


def test_results_of_one_plan_do_not_rank_instances(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"points": [{"concurrency": 1, "tpot_ms": 5}]}')

    done = packager(
        *("plan", "--model", str(TINY), "--instance", "all", "--measured", "results.json")
    )

    assert done.status == 2
    assert "hint: " in done.err
