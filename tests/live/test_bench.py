"""`packager bench` of an image that packager built, served by a real vLLM on processors.

The plan of the same pair then predicts each load within its new band.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.processors import cap_words
from tests.live.servers import small_model_words
from tests.support.commandline import TINY, Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

NAME = "packager-test:bench"
LOCAL = ("--model", str(TINY), "--instance", "local")


def test_an_image_is_measured_and_its_plan_predicts_the_loads_within_the_new_band(
    packager: Packager, engine: str, serving_base: str, tmp_path: Path
) -> None:
    packager(
        *("build", *LOCAL, "--base", serving_base, "-q", "--output", f"docker:{NAME}"), status=0
    )

    packager(
        *("bench", f"docker:{NAME}", "--concurrency", "1,2,4", "--requests", "8"),
        *("--workload", "64:24", "--usd-per-hour", "0.2", "--output", "bench.json"),
        *("--timeout", "900", *small_model_words(), *cap_words()),
        status=0,
    )

    (variant,) = json.loads((tmp_path / "bench.json").read_text())["variants"]
    setup = variant["setup"]
    assert (setup["instance"], setup["draft"], setup["tp_degree"]) == ("local", "none", 1)
    assert setup["engine"].startswith("vllm ")
    assert variant["start_s"] > 0
    for load in variant["loads"]:
        assert (load["requests"], load["answered"], load["empty"]) == (8, 8, 0)
        assert load["metrics"]["output_sequence_length"]["avg"] == 24  # the end is ignored
        assert load["metrics"]["input_sequence_length"]["avg"] == pytest.approx(64, abs=3)
        assert load["use"]["peak_memory_bytes"] > 2**28
        assert load["prices"]["output"] > 0
    inspected = packager("inspect", f"docker:{NAME}")
    assert "measured   " in inspected.out

    planned = packager(
        *("plan", *LOCAL, "--workload", "64:24", "--measured", "bench.json", "--format", "json"),
        status=0,
    )

    told = json.loads(planned.out)["predicted"]
    by_load = {point["concurrency"]: point for point in told["points"]}
    for load in variant["loads"]:
        tpot_s = load["metrics"]["inter_token_latency"]["avg"] / 1e3
        point = by_load[load["concurrency"]]
        assert abs(tpot_s / point["tpot_s"] - 1) <= told["error_band"]

    packager(
        *("bench", f"docker:{NAME}", "--startup", "--rounds", "1", "--output", "startup.json"),
        *("--timeout", "900", *small_model_words(), *cap_words()),
        status=0,
    )

    (cold,) = json.loads((tmp_path / "startup.json").read_text())["startups"]
    (start,) = cold["starts"]
    assert [*start["phases"]] == [
        *("container", "import", "weights", "compile", "ready", "first_token")
    ]
    assert start["untold_s"] < 0.5
    assert sum(start["phases"].values()) == pytest.approx(start["seconds"], abs=1.0)
    assert cold["predicted"]["is_base_guessed"] is False  # of its record, with the base's layers
    planned = packager("plan", *LOCAL, "--measured", "startup.json", "--format", "json", status=0)
    nodes = json.loads(planned.out)["startup"]["nodes"]
    assert nodes[-1]["node"] == "as measured"
    assert {phase["name"]: phase for phase in nodes[0]["phases"]}["import"]["basis"] == "measured"
