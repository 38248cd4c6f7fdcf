"""`packager bench` of vectors and scores: what arrives, and the figures of known timings."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from packager.core.bench import BenchReport
from tests.support.cases import cases_of
from tests.support.commandline import Packager
from tests.support.llm_double import Behaviour, LlmDouble, Record

cases = cases_of(__file__)

LOAD = ("--requests", "12", "--warm-up", "1", "--concurrency", "2", "--usd-per-hour", "3.6")
OFF = 0.05  # of a time that the server knows


def measured(packager: Packager, double: LlmDouble, *words: str) -> Any:
    done = packager(
        *("bench", double.url, "--workload", "embed:40x3", *LOAD, *words, "--format", "json"),
        *("--output", "results/"),
        status=0,
    )
    return BenchReport.model_validate_json(done.out).variants[0].loads[0]


def asked(double: LlmDouble) -> list[Record]:
    return [one for one in double.records() if one.path != "/tokenize"][1:]


@cases("endpoints", tei=False)
def test_texts_of_the_asked_length_are_timed_and_priced(
    packager: Packager,
    tmp_path: Path,
    endpoint: str,
    path: str,
    fields: list[str],
    aiperf: str,
    tei: bool,
) -> None:
    with LlmDouble(Behaviour(ttft_s=0.3, tei=tei), process=True) as double:
        load = measured(packager, double, "--endpoint", endpoint)
        records = asked(double)

    assert (load.requests, load.answered, load.empty, load.errors) == (12, 12, 0, ())
    assert {one.path for one in records} == {path}
    assert {tuple(one.body) for one in records} == {(*fields, "model")}
    assert {len(one.body.get("input") or one.body[fields[1]]) for one in records} == {3}
    assert len({json.dumps(one.body) for one in records}) == 12
    metrics = load.metrics
    assert metrics["total_text_count"].avg == 36
    assert metrics["total_isl"].avg == sum(one.prompt_tokens for one in records) == 12 * 120
    known_ms = median(1e3 * (one.ended_s - one.came_s) for one in records)
    assert known_ms >= 300
    assert metrics["request_latency"].p50 == pytest.approx(known_ms, rel=OFF)
    took = max(one.ended_s for one in records) - min(one.came_s for one in records)
    assert metrics["request_throughput"].avg == pytest.approx(12 / took, rel=OFF)
    assert metrics["text_throughput"].avg == pytest.approx(36 / took, rel=OFF)
    assert load.prices.input == pytest.approx(1000 / (1440 / took), rel=OFF)
    assert load.prices.output is None
    (summary,) = tmp_path.glob("results/*/*/profile_export_aiperf.json")
    config = json.loads(summary.read_text())["input_config"]
    assert config["endpoint"]["type"] == aiperf
    assert config["datasets"][0]["prompts"] == {"isl": {"mean": 40.0}, "batch_size": 3}
