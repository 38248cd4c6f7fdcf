"""What a job measures at its end, in which files, and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packager.bench.reading import read_benchmark
from packager.core.bench import BenchVariant, Compared
from packager.sagemaker.measured import (
    loads_within,
    request_before,
    result_files,
    states,
    summary_lines,
    verdict,
)
from packager.sagemaker.optimization import make_job
from packager.sagemaker.settings import JobSettings
from tests.support.bench_reports import report, unanswered, variant
from tests.support.cases import cases_of
from tests.support.sagemaker_bodies import AWQ, EAGLE_OWN_HEAD, MODELS

cases = cases_of(__file__)


def state(name: str, *levels: int) -> BenchVariant:
    return variant(name, levels=levels, ttft_ms=50.0, tpot_ms=10.0)


@cases("loads")
def test_loads_are_begun_with_the_shortest_and_end_where_the_next_would_outlast_the_step(
    seconds: float, took: dict[str, float], following: int
) -> None:
    found = loads_within(seconds, {int(load): one for load, one in took.items()})

    assert (found or 0) == following


@cases("verdicts")
def test_most_loads_must_say_the_same(loads: list[list[float]], says: str) -> None:
    compared = tuple(
        Compared(
            variant="b", concurrency=number, metric="output_token_throughput",
            ratio=(low + high) / 2, low=low, high=high, is_noise=low <= 1 <= high,
        )
        for number, (low, high) in enumerate(loads, 1)
    )  # fmt: skip
    found = report((state("a", 1), state("b", 1))).model_copy(update={"compared": compared})

    assert verdict(found) == says


def test_each_state_and_load_has_a_file_with_the_fields_of_vllm_that_is_read_again(
    tmp_path: Path,
) -> None:
    whole = report((state("no_eagle", 1, 16), state("trained_eagle", 1, 16)))
    files = result_files(whole, "<html>")
    (tmp_path / "one.json").write_bytes(files["benchmark_trained_eagle_conc16.json"])

    again = read_benchmark(tmp_path / "one.json").report
    document = json.loads((tmp_path / "one.json").read_text())
    before, (after,) = whole.variants[1].loads[1], again.variants[0].loads

    assert {*files} == {
        *(f"benchmark_{s}_conc{n}.json" for s in ("no_eagle", "trained_eagle") for n in (1, 16)),
        "benchmark_report.html",
    }
    assert document["max_concurrency"] == 16
    assert document["mean_ttft_ms"] == before.metrics["time_to_first_token"].avg
    assert (after.concurrency, after.answered, after.rounds) == (16, before.answered, before.rounds)
    for tag in ("time_to_first_token", "inter_token_latency", "output_token_throughput"):
        assert after.metrics[tag].avg == before.metrics[tag].avg
    assert again.workload == whole.workload


def test_a_state_that_did_not_start_is_said_in_a_file_and_in_the_log() -> None:
    found = report((state("original", 1), unanswered("optimized")))
    told = json.loads(result_files(found, "")["not_measured.json"])

    assert told == {"not_measured": {"optimized": "no load"}}
    assert summary_lines(found) == ["optimized was not measured: no load"]


@pytest.mark.parametrize(
    ("body", "measured", "words"),
    [
        (AWQ, ("original", "optimized"), ()),
        (
            EAGLE_OWN_HEAD,
            ("no_eagle", "base_eagle", "trained_eagle"),
            ("--draft", "eagle3:{job}/head", "--base-draft", "eagle3:s3://models/qwen3-eagle/"),
        ),
    ],
)
def test_a_job_ends_with_the_stage_that_measures(
    body: dict[str, Any], measured: tuple[str, ...], words: tuple[str, ...]
) -> None:
    job = make_job(body, JobSettings(measures=True, gate=True), find_model=MODELS.get)
    stage = next(one for one in job.stages if one.name == "measure")
    request = json.loads(job.files["request.json"])

    assert [one.name for one in job.stages].index("measure") > 0
    assert " ".join(words) in " ".join(stage.arguments)
    assert stage.arguments[-1] == "--gate"
    drafted = "--draft" in stage.arguments
    assert states(is_drafted=drafted, has_base_head="--base-draft" in stage.arguments) == measured
    assert "quantize" not in request_before(request)
