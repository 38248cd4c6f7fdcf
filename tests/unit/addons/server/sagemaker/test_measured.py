"""What a job measures at its end, in which files, and what they say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.outputs import report_bytes
from packager.addons.bench.reading import read_benchmark
from packager.addons.server.sagemaker.gates import gate_text, judge, parse_gates
from packager.addons.server.sagemaker.measured import (
    loads_within,
    outcome_of,
    recorded,
    request_before,
    result_files,
    state_parts,
    state_table,
    states,
    summary_lines,
)
from packager.addons.server.sagemaker.optimization import make_job
from packager.addons.server.sagemaker.settings import JobSettings
from packager.core.bench import BenchReport, BenchVariant, Compared
from packager.core.errors import UsageError
from packager.core.reports.report import Words
from tests.support.bench_reports import report, unanswered, variant
from tests.support.cases import cases
from tests.support.known import known
from tests.support.report_values import quality_report
from tests.support.sagemaker_bodies import AWQ, EAGLE_OWN_HEAD, MODELS


def state(name: str, *levels: int) -> BenchVariant:
    return variant(name, levels=levels, ttft_ms=50.0, tpot_ms=10.0)


@cases("loads")
def test_loads_are_begun_with_the_shortest_and_end_where_the_next_would_outlast_the_step(
    seconds: float, took: dict[str, float], following: int
) -> None:
    found = loads_within(seconds, {int(load): one for load, one in took.items()})

    assert (found or 0) == following


def compared(loads: list[list[float]], metric: str = "output_token_throughput") -> BenchReport:
    """Return a report of two servers whose ratios have these intervals, load by load."""
    found = tuple(
        Compared(
            variant="b", concurrency=number, metric=metric,
            ratio=math.sqrt(low * high), low=low, high=high, is_noise=low <= 1 <= high,
        )
        for number, (low, high) in enumerate(loads, 1)
    )  # fmt: skip
    both = report((state("a", 1), state("b", 1)))
    return both.model_copy(update={"compared": found, "rounds": 3})


@cases("verdicts")
def test_most_loads_must_say_the_same(loads: list[list[float]], says: str) -> None:
    assert outcome_of(compared(loads), None).verdict == says


@cases("gates")
def test_a_gate_fails_where_the_whole_interval_is_beyond_what_it_allows(
    gate: str, fails: list[str], metric: str, loads: list[list[float]], quality: dict[str, float]
) -> None:
    found = compared(loads, metric) if loads else None
    told = quality_report(**quality) if quality else None

    judged = [judge(one, found, told) for one in parse_gates(gate)]

    assert [one.gate.name for one in judged if one.fails] == fails
    assert parse_gates(gate_text(parse_gates(gate))) == parse_gates(gate)


@pytest.mark.parametrize(
    "text", ["speed", "throughput=2", "kld=-1", "first-token=nan", "throughput=", "kld=5%", ""]
)
def test_a_gate_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--gate"):
        parse_gates(text)


def test_the_states_stand_in_the_table_of_the_announcement() -> None:
    both = (state("no_eagle", 4, 1), unanswered("base_eagle"), state("trained_eagle", 1, 4))
    found = known(recorded(report(both), None))
    assert found.report is not None

    table = state_table(found.report)

    assert [row.cells[:2] for row in table.rows] == [
        ("No EAGLE", "1"), ("No EAGLE", "4"), ("Trained EAGLE", "1"), ("Trained EAGLE", "4"),
    ]  # fmt: skip
    assert tuple(column.name for column in table.columns[2:8]) == (
        *("TTFT, ms", "TPOT, ms", "ITL, ms"),
        *("requests/s", "output tokens/s", "tokens/s of a request"),
    )
    assert state_parts(found)[-1] == Words("Base EAGLE was not measured: no load", is_soft=False)
    first = both[0].loads[1].metrics
    assert float(table.rows[0].cells[2]) == pytest.approx(first["time_to_first_token"].avg, rel=0.1)
    assert recorded(report((state("my-server", 1),)), None) is None


def test_what_quantizing_cost_stands_beside_the_loads(tmp_path: Path) -> None:
    both = report((state("original", 1), state("optimized", 1)))
    found = outcome_of(both, quality_report(), reasons={})

    files = result_files(found, "<html>")

    (tmp_path / "bench.json").write_bytes(report_bytes(found.report or both))
    kept = read_benchmark(tmp_path / "bench.json").report.variants
    assert (
        json.loads(files["quality.json"])["quality"]["kld_mean"] == kept[1].quality.quality.kld_mean
    )
    assert kept[0].quality is None
    assert any(line.startswith("quality: PPL") for line in summary_lines(found))


def test_each_state_and_load_has_a_file_with_the_fields_of_vllm_that_is_read_again(
    tmp_path: Path,
) -> None:
    whole = report((state("no_eagle", 1, 16), state("trained_eagle", 1, 16)))
    files = result_files(outcome_of(whole, None), "<html>")
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
    found = outcome_of(report((state("original", 1), unanswered("optimized"))), None)
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
    job = make_job(
        body,
        JobSettings(measures=True, measured_data="s3://d/own", gate="throughput,kld=0.05"),
        find_model=MODELS.get,
    )
    stage = next(one for one in job.stages if one.name == "measure")
    request = json.loads(job.files["request.json"])

    assert [one.name for one in job.stages].index("measure") > 0
    assert " ".join(words) in " ".join(stage.arguments)
    assert stage.arguments[-4:] == ("--data", "s3://d/own", "--gate", "throughput,kld=0.05")
    drafted = "--draft" in stage.arguments
    assert states(is_drafted=drafted, has_base_head="--base-draft" in stage.arguments) == measured
    assert "quantize" not in request_before(request)
