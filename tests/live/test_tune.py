"""A tune with real servers: it finds a variant, says how, and its request builds it again.

Which variant is the best is up to the machine and to what else it does: `benchmarks/tune.py`
holds that against an exhaustive run, and `PACKAGER_SERVE=all` runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packager.core.bench import BenchReport
from tests.live.processors import cap_words, need_true_flags
from tests.live.servers import small_model_words
from tests.support.commandline import TINY, packager_in
from tests.support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(9000)]

everything = pytest.mark.skipif(
    os.environ.get("PACKAGER_SERVE") != "all", reason="PACKAGER_SERVE=all starts this too"
)


@pytest.mark.capability("tune")
def test_a_tune_measures_real_servers_and_its_request_builds_the_best_again(
    engine: str, serving_base: str, tmp_path: Path
) -> None:
    need_true_flags()  # `packager tune` mounts no files into its servers
    packager = packager_in(tmp_path, timeout_s=6000)  # which only ends a hang
    options = [
        *("tune", "--model", str(TINY), "--instance", "local", "--goal", "throughput"),
        *("--base", serving_base, "--only", "--try", "--draft ngram", "--workload", "32:16"),
        *("--concurrency", "2", "--requests", "8", "--rounds", "2", "--timeout", "2700"),
        *("--journal", "tune.jsonl", "--request-out", "best.json", "--figures", "figures.json"),
        *(*small_model_words(), *cap_words(), "--quiet", "--format", "json"),
    ]

    done = packager(*options, status=0)

    report: dict[str, Any] = json.loads(done.out)
    by_name = {one["name"]: one for one in report["candidates"]}
    assert set(by_name) == {"as requested", "--draft ngram"}
    assert [one["reason"] for one in report["candidates"]] == [None, None]
    assert [one["rounds"] for one in report["candidates"]] == [2, 2]
    assert by_name[report["best"]]["state"] == "best"
    figures = BenchReport.model_validate_json((tmp_path / "figures.json").read_bytes())
    drafts = {one.name: one.setup.draft for one in figures.variants}
    assert drafts == {"as requested": "none", "--draft ngram": "ngram"}
    assert all(load.answered == 8 for one in figures.variants for load in one.loads)

    (image,) = report["images"]
    built = packager(
        *("build", "--request", "best.json", "--output", "docker:packager-test:tuned"),
        *("--format", "json", "--quiet"),
        status=0,
    )
    assert image.endswith(json.loads(built.out)["digest"])

    again = packager(*options, status=0)
    assert json.loads(again.out)["candidates"] == report["candidates"]


@everything
def test_it_finds_what_measuring_everything_finds_though_killed_twice(engine: str) -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/tune.py", "--docker", engine],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )

    found = json.loads(done.stdout.splitlines()[-1])
    assert found["within_noise"], found
    assert found["share"] <= 0.6, found
    assert found["repeated"] == 0, found
