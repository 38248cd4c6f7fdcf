"""Benchmark results of every form that `plan --measured` reads, and what it refuses."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import NotFound, UsageError
from packager.core.measurement import MeasuredLoad
from packager.estimate.performance.measurements import load_measurements
from tests.support.cases import as_type, cases_of, read_tables
from tests.support.report_values import speculation_report
from tests.unit.pipeline.test_records import record

cases = cases_of(__file__)
TABLES = read_tables(__file__)
DOCUMENTS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "corpus/measurements.json").read_bytes()
)
AIPERF, VLLM, DRAFT = DOCUMENTS["aiperf"], DOCUMENTS["vllm"], DOCUMENTS["draft"]


def written(directory: Path, document: object) -> Path:
    path = directory / "results.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_points_by_hand_say_what_they_were_measured_on(tmp_path: Path) -> None:
    points = [
        {"concurrency": 1, "tpot_ms": 20},
        {"concurrency": 8, "tpot_ms": 42.7, "ttft_ms": 300, "note": "kept"},
    ]
    setup = {"instance": "ml.g5.12xlarge", "tp_degree": 4}
    run = load_measurements(written(tmp_path, {"points": points, "setup": setup}))

    assert run.loads == as_type(TABLES["loads"], tuple[MeasuredLoad, ...])
    assert (run.setup.instance, run.setup.tp_degree, run.setup.model) == ("ml.g5.12xlarge", 4, "")


@cases("aiperf")
def test_a_summary_of_aiperf_is_one_load(tmp_path: Path, config: dict[str, Any]) -> None:
    run = load_measurements(written(tmp_path, {**AIPERF, "input_config": config}))

    assert run.loads == as_type(TABLES["loads_of_aiperf"], tuple[MeasuredLoad, ...])
    assert run.setup.model == "meta-llama/Llama-3.1-8B-Instruct"


def test_the_concurrency_of_a_sweep_of_aiperf_is_in_its_variation(tmp_path: Path) -> None:
    swept = {**AIPERF, "run_info": {"variation_values": {"phases.profiling.concurrency": 40}}}
    del swept["input_config"]

    assert load_measurements(written(tmp_path, swept)).loads[0].concurrency == 40


@cases("units")
def test_units_of_aiperf_are_read(tmp_path: Path, unit: str, value: float, seconds: float) -> None:
    document = {**AIPERF, "inter_token_latency": {"unit": unit, "avg": value}}

    assert load_measurements(written(tmp_path, document)).loads[0].tpot_s == pytest.approx(seconds)


def test_what_vllm_bench_serve_saved_is_one_load(tmp_path: Path) -> None:
    run = load_measurements(written(tmp_path, VLLM))

    [found] = run.loads
    assert found.tpot_s == pytest.approx(0.0131)
    assert replace(found, tpot_s=0.0131) == as_type(TABLES["load_of_vllm"], MeasuredLoad)
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
    run = load_measurements(written(tmp_path, {**DOCUMENTS["record"], "speculation": DRAFT}))

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
    assert (run.setup.model, run.setup.tp_degree) == ("tiny", 1)


@cases("texts")
def test_texts_without_measurements_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    refuse(written(tmp_path, text), reason)


@cases("documents")
def test_documents_that_hold_no_measurements_are_refused(
    tmp_path: Path, of: str, changes: dict[str, Any] | None, null: str | None, reason: str
) -> None:
    document = {**DOCUMENTS[of], **(changes or {}), **({null: None} if null else {})}

    refuse(written(tmp_path, document), reason)


def test_a_file_that_is_nested_deeply_is_refused(tmp_path: Path) -> None:
    refuse(written(tmp_path, "[" * 100_000), "nested too deeply")


def refuse(results: Path, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_measurements(results)

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


@cases("told")
def test_one_point_may_be_told_in_a_text(text: str, told: list[Any]) -> None:
    run = load_measurements(Path(text))

    (load,) = run.loads
    lengths = (load.input_tokens or 0, load.output_tokens or 0)
    degree = run.setup.tp_degree or 0
    assert [load.tpot_s, load.concurrency, run.setup.instance, degree, *lengths] == told
    assert run.source == text


@cases("mistold")
def test_a_text_of_another_form_says_what_is_expected(text: str, words: str) -> None:
    with pytest.raises(UsageError, match="is no measured point") as refused:
        load_measurements(Path(text))

    assert words in refused.value.message
    assert "write TPOT 17.9 ms at 16" in (refused.value.hint or "")


def test_a_benchmark_of_sglang_has_a_line_for_each_run(tmp_path: Path) -> None:
    line = {name: value for name, value in VLLM.items() if name != "model_id"}
    line |= {"server_info": {"model_path": "org/m"}, "request_rate": math.inf}
    lines = [line | {"max_concurrency": 1, "accept_length": 2.0}, line | {"max_concurrency": 16}]

    run = load_measurements(written(tmp_path, "\n".join(map(json.dumps, lines))))

    assert [load.concurrency for load in run.loads] == [1, 16]
    assert (run.setup.model, run.acceptance_length) == ("org/m", 2.0)
