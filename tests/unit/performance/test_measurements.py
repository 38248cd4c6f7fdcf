"""Benchmark results of every form that `plan --measured` reads, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packager.core.measurement import MeasuredLoad
from packager.errors import NotFound, UsageError
from packager.performance.measurements import load_measurements
from tests.support.report_values import speculation_report
from tests.unit.build.test_records import record

AIPERF: dict[str, Any] = {
    "schema_version": "1.4",
    "aiperf_version": "0.13.0",
    "time_to_first_token": {"unit": "ms", "avg": 120.0, "p50": 110.0, "count": 64},
    "inter_token_latency": {"unit": "ms", "avg": 12.5, "p50": 12.0, "count": 64},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 610.0},
    "input_sequence_length": {"unit": "tokens", "avg": 622.0, "p50": 600.0},
    "output_sequence_length": {"unit": "tokens", "avg": 250.0, "p50": 250.0},
    "input_config": {
        "endpoint": {"model_names": ["meta-llama/Llama-3.1-8B-Instruct"]},
        "loadgen": {"concurrency": 8},
    },
    "was_cancelled": False,
    "error_summary": [],
}
VLLM: dict[str, Any] = {
    "date": "20261120-101112",
    "backend": "openai",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 100,
    "request_rate": "inf",
    "max_concurrency": 16,
    "duration": 41.5,
    "completed": 100,
    "failed": 0,
    "total_input_tokens": 62_200,
    "total_output_tokens": 25_000,
    "output_throughput": 1204.0,
    "mean_ttft_ms": 130.0,
    "median_ttft_ms": 125.0,
    "mean_tpot_ms": 13.1,
    "median_tpot_ms": 12.9,
    "mean_itl_ms": 13.0,
}


def load_of(tpot_s: float, requests: int = 16, failed: int = 0) -> dict[str, Any]:
    return {
        "requests": requests,
        "failed": failed,
        "output_tokens": 128 * (requests - failed),
        "seconds": 10.0,
        "tokens_per_second": 204.8,
        "ttft_p50_s": 0.2,
        "tpot_p50_s": tpot_s,
        "tpot_p95_s": 2 * tpot_s,
    }


DRAFT: dict[str, Any] = {
    "server": "llama:eagle",
    "plain": "llama:eagle without its draft",
    "measured": "2026-11-22T10:00:00Z",
    "samples": 16,
    "acceptance": {"source": "vllm", "length": 2.6, "rate": 0.5},
    "speeds": [
        {"concurrency": 1, "speculative": load_of(0.010), "plain": load_of(0.022), "speedup": 2.1},
        {
            "concurrency": 4,
            "speculative": load_of(0.014, failed=8),
            "plain": None,
            "speedup": None,
        },
    ],
}
RECORD: dict[str, Any] = {
    "schema_version": 1,
    "request": {"model": "/models/llama", "instance": "ml.g5.12xlarge", "quantize": "awq"},
    "model": {"source": "local", "name": "model", "revision": ""},
    "draft": {"kind": "eagle3", "speculative_tokens": 3},
    "tp_degree": 4,
    "speculation": DRAFT,
}


def written(directory: Path, document: object) -> Path:
    path = directory / "results.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def without(document: dict[str, Any], *names: str, **changed: object) -> dict[str, Any]:
    return {key: value for key, value in {**document, **changed}.items() if key not in names}


def test_points_by_hand_say_what_they_were_measured_on(tmp_path: Path) -> None:
    run = load_measurements(
        written(
            tmp_path,
            {
                "points": [
                    {"concurrency": 1, "tpot_ms": 20},
                    {"concurrency": 8, "tpot_ms": 42.7, "ttft_ms": 300, "note": "kept"},
                ],
                "setup": {"instance": "ml.g5.12xlarge", "tp_degree": 4},
            },
        )
    )

    assert run.loads == (
        MeasuredLoad(concurrency=1, tpot_s=0.020),
        MeasuredLoad(concurrency=8, tpot_s=0.0427, ttft_s=0.3),
    )
    assert (run.setup.instance, run.setup.tp_degree, run.setup.model) == ("ml.g5.12xlarge", 4, "")


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(AIPERF["input_config"], id="loadgen"),
        pytest.param(
            {
                "models": {"items": [{"name": "meta-llama/Llama-3.1-8B-Instruct"}]},
                "endpoint": {"urls": ["http://localhost:8000"], "type": "chat"},
                "phases": [
                    {"type": "concurrency", "concurrency": 2, "exclude_from_results": True},
                    {"name": "profiling", "type": "concurrency", "concurrency": 8},
                ],
            },
            id="phases",
        ),
    ],
)
def test_a_summary_of_aiperf_is_one_load(tmp_path: Path, config: dict[str, Any]) -> None:
    run = load_measurements(written(tmp_path, {**AIPERF, "input_config": config}))

    assert run.loads == (
        MeasuredLoad(
            concurrency=8,
            tpot_s=0.0125,
            ttft_s=0.12,
            output_tokens_s=610.0,
            input_tokens=622.0,
            output_tokens=250.0,
        ),
    )
    assert run.setup.model == "meta-llama/Llama-3.1-8B-Instruct"


def test_the_concurrency_of_a_sweep_of_aiperf_is_in_its_variation(tmp_path: Path) -> None:
    swept = without(AIPERF, "input_config")
    swept["run_info"] = {"variation_values": {"phases.profiling.concurrency": 40}}

    assert load_measurements(written(tmp_path, swept)).loads[0].concurrency == 40


@pytest.mark.parametrize(
    ("unit", "value", "seconds"),
    [("ms", 12.5, 0.0125), ("sec", 0.0125, 0.0125), ("us", 12_500, 0.0125)],
)
def test_units_of_aiperf_are_read(tmp_path: Path, unit: str, value: float, seconds: float) -> None:
    document = {**AIPERF, "inter_token_latency": {"unit": unit, "avg": value}}

    assert load_measurements(written(tmp_path, document)).loads[0].tpot_s == pytest.approx(seconds)


def test_what_vllm_bench_serve_saved_is_one_load(tmp_path: Path) -> None:
    run = load_measurements(written(tmp_path, VLLM))

    assert run.loads == (
        MeasuredLoad(
            concurrency=16,
            tpot_s=pytest.approx(0.0131),  # type: ignore[arg-type]
            ttft_s=0.13,
            output_tokens_s=1204.0,
            input_tokens=622.0,
            output_tokens=250.0,
        ),
    )
    assert run.setup.model == "meta-llama/Llama-3.1-8B-Instruct"


def test_lists_of_every_request_in_a_result_of_vllm_do_no_harm(tmp_path: Path) -> None:
    detailed = {**VLLM, "ttfts": [0.1] * 20_000, "generated_texts": ["a"] * 20_000}

    assert load_measurements(written(tmp_path, detailed)).loads[0].concurrency == 16


def test_a_report_of_draft_measure_has_loads_with_and_without_the_draft(tmp_path: Path) -> None:
    run = load_measurements(written(tmp_path, {**DRAFT, "record": None}))

    assert [(load.concurrency, load.tpot_s) for load in run.loads] == [(1, 0.010), (4, 0.014)]
    assert [(load.concurrency, load.tpot_s) for load in run.plain_loads] == [(1, 0.022)]
    assert [load.output_tokens for load in run.loads] == [128.0, 128.0]
    assert run.acceptance_length == 2.6


def test_a_build_record_says_what_its_figures_were_measured_on(tmp_path: Path) -> None:
    run = load_measurements(written(tmp_path, RECORD))

    assert run.setup.instance == "ml.g5.12xlarge"
    assert (run.setup.tp_degree, run.setup.quantization, run.setup.draft) == (4, "awq", "eagle3")
    assert run.setup.model == "/models/llama"
    assert len(run.loads) == 2


def test_what_draft_measure_really_writes_is_read(tmp_path: Path) -> None:
    report = speculation_report()

    run = load_measurements(
        written(tmp_path, {**report.model_dump(mode="json"), "record": "/state/record.json"})
    )

    assert [load.tpot_s for load in run.loads] == [0.005, 0.01]
    assert [load.output_tokens_s for load in run.plain_loads] == [100.0, 300.0]
    assert run.acceptance_length == 2.345


def test_the_record_of_a_build_with_such_figures_is_read(tmp_path: Path) -> None:
    measured = record().model_copy(update={"speculation": speculation_report()})

    run = load_measurements(written(tmp_path, measured.model_dump_json()))

    assert len(run.loads) == 2
    assert run.setup.instance == measured.request.instance
    assert (run.setup.model, run.setup.tp_degree) == ("model", 1)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        pytest.param("", "not JSON", id="empty"),
        pytest.param("[]", "not a JSON object", id="list"),
        pytest.param("{}", "none of the keys", id="no-keys"),
        pytest.param('{"points": []}', "points", id="no-points"),
        pytest.param('{"points": 3}', "points", id="points-of-another-type"),
        pytest.param('{"points": [{"concurrency": 1}]}', "tpot_ms", id="no-time"),
        pytest.param(
            '{"points": [{"concurrency": 0, "tpot_ms": 5}]}', "concurrency", id="no-requests"
        ),
        pytest.param('{"points": [{"concurrency": 1, "tpot_ms": NaN}]}', "tpot_ms", id="nan"),
        pytest.param(
            '{"points": [{"concurrency": 1, "tpot_ms": Infinity}]}', "tpot_ms", id="infinity"
        ),
        pytest.param('{"points": [{"concurrency": 1, "tpot_ms": -5}]}', "tpot_ms", id="negative"),
        pytest.param(
            '{"points": [{"concurrency": 1, "tpot_ms": 5, "tpot_ms": 6}]}', "twice", id="twice"
        ),
        pytest.param("[" * 100_000, "nested too deeply", id="deep"),
        pytest.param(
            '{"points": [{"concurrency": 1e300, "tpot_ms": 5}]}', "concurrency", id="1e300"
        ),
        pytest.param({**AIPERF, "was_cancelled": True}, "cancelled", id="aiperf-cancelled"),
        pytest.param(
            {**AIPERF, "inter_token_latency": {"unit": "ticks", "avg": 3}},
            "unit 'ticks'",
            id="aiperf-odd-unit",
        ),
        pytest.param(
            {**AIPERF, "inter_token_latency": {"avg": 3}}, "unit is missing", id="aiperf-no-unit"
        ),
        pytest.param(
            {**AIPERF, "output_token_throughput": {"unit": "requests/sec", "avg": 3}},
            "requests/sec",
            id="aiperf-throughput-of-requests",
        ),
        pytest.param(
            {**AIPERF, "input_config": {"loadgen": {"request_rate": 4}}},
            "requests at once",
            id="aiperf-rate",
        ),
        pytest.param(
            {**AIPERF, "input_config": {"loadgen": {"request_rate": 4, "concurrency": 64}}},
            "requests at once",
            id="aiperf-rate-with-a-limit",
        ),
        pytest.param(
            {**AIPERF, "input_config": {"phases": [{"type": "poisson", "concurrency": 64}]}},
            "requests at once",
            id="aiperf-phase-at-a-rate",
        ),
        pytest.param({**AIPERF, "inter_token_latency": 3}, "inter_token_latency", id="aiperf-flat"),
        pytest.param({**VLLM, "request_rate": 4.0}, "request_rate", id="vllm-rate"),
        pytest.param({**VLLM, "max_concurrency": None}, "--max-concurrency", id="vllm-unbounded"),
        pytest.param({**VLLM, "completed": 0}, "no request was completed", id="vllm-nothing"),
        pytest.param({**VLLM, "mean_tpot_ms": 0.0}, "mean_tpot_ms", id="vllm-no-time"),
        pytest.param({**VLLM, "mean_tpot_ms": "12"}, "mean_tpot_ms", id="vllm-text"),
        pytest.param({**VLLM, "completed": True}, "completed", id="vllm-true"),
        pytest.param({"speeds": []}, "no load in it was answered", id="draft-no-loads"),
        pytest.param(
            {"speeds": [{"concurrency": 1, "speculative": {"tpot_p50_s": 0.1}}]},
            "requests is missing",
            id="draft-half",
        ),
        pytest.param(
            without(RECORD, "speculation"), "put no figures in it", id="record-unmeasured"
        ),
    ],
)
def test_files_that_hold_no_measurements_are_refused(
    tmp_path: Path, document: object, reason: str
) -> None:
    with pytest.raises(UsageError) as refused:
        load_measurements(written(tmp_path, document))

    assert reason in refused.value.message
    assert "results.json" in refused.value.message
    assert refused.value.hint


def test_a_million_points_are_refused_by_their_number(tmp_path: Path) -> None:
    points = '{"points":[' + ",".join(['{"concurrency":1,"tpot_ms":5}'] * 500_000) + "]}"

    with pytest.raises(UsageError, match="values"):
        load_measurements(written(tmp_path, points))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.json"):
        load_measurements(tmp_path / "none.json")
