"""Results as AIPerf writes them."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.csv_export import metrics_table
from packager.addons.bench.export import (
    archive,
    aws_files,
    json_bytes,
    load_files,
    profile,
    records,
)
from packager.addons.bench.load.values import Level
from packager.addons.bench.metrics import load_figures
from packager.core.bench import (
    BenchLoad,
    BenchReport,
    BenchVariant,
    BenchWorkload,
    Limits,
    Metric,
    Prices,
)
from packager.core.bench_setup import BenchSetup
from packager.core.measurement import MeasuredSetup
from packager.estimate.performance.measurements import load_measurements
from tests.support.cases import read_tables
from tests.support.known import known
from tests.unit.addons.bench.loads import answer, failure, load

TABLES = read_tables(__file__)

LIMITS = Limits(ttft_ms=200)
RUN = load(
    answer(0, at=(0.1, 0.2, 0.3), input_tokens=10, output_tokens=3),
    answer(1, sent=1.0, at=(0.4, 0.6, 0.8), input_tokens=30, output_tokens=3),
    failure(2, "status", status=503, reason="busy", own_input_tokens=7),
    answer(3, at=()),
    failure(4, "cancelled"),
    seconds=1.8,
    level=Level(concurrency=8),
)


def report_of(*loads: BenchLoad, name: str = "http://host:8080", **fields: Any) -> BenchReport:
    variant = BenchVariant(name=name, setup=BenchSetup(model="tiny-llama"), loads=loads)
    return BenchReport(
        packager_version="0.9.0",
        measured="2026-11-23T10:00:00Z",
        workload=fields.pop("workload", BenchWorkload(name="chat", input_tokens=550, seed=7)),
        limits=LIMITS,
        variants=fields.pop("variants", (variant,)),
        **fields,
    )


def profile_of(figures: BenchLoad, **fields: Any) -> dict[str, Any]:
    report = report_of(figures, **fields)
    return profile(report, report.variants[0], figures)


def test_a_summary_is_in_the_form_of_aiperf() -> None:
    found = profile_of(load_figures([RUN], LIMITS), command="packager bench http://host:8080")

    assert {name: found[name] for name in TABLES["summary"]} == TABLES["summary"]
    assert found["time_to_first_token"]["unit"] == "ms"
    assert found["time_to_first_token"]["p50"] == pytest.approx(250)
    assert found["output_token_throughput"] == {"unit": "tokens/sec", "avg": pytest.approx(6 / 1.8)}
    benchmark = {"benchmark_id": found["benchmark_id"]}
    assert found["run_info"] == benchmark | TABLES["run_info"]


def test_a_summary_says_what_was_sent() -> None:
    assert profile_of(load_figures([RUN], LIMITS))["input_config"] == TABLES["sent"]


def test_a_summary_of_ones_own_requests_at_a_rate() -> None:
    whole = answer(at=(), ended=0.5, text="x", is_streamed=False)
    level = Level(rate=2.5, arrivals="constant", concurrency=64)
    workload = BenchWorkload(name="own", data="mine.jsonl", endpoint="/v1/completions")

    found = profile_of(
        load_figures([load(whole, level=level)]), workload=workload, name="docker:tiny:1"
    )

    config = found["input_config"]
    assert {name: config[name] for name in TABLES["own_at_a_rate"]} == TABLES["own_at_a_rate"]
    assert found["run_info"]["variation_values"] == {"phases.profiling.rate": 2.5}
    assert found["packager"]["variant"] == "docker:tiny:1"


def test_what_sagemaker_counts_and_prices_stands_beside_aiperfs_tags() -> None:
    prices = Prices(usd_hour=1.0, output=2.5, input=0.5)
    found = profile_of(load_figures([RUN]).model_copy(update={"prices": prices}))

    assert {tag: found[tag]["avg"] for tag in TABLES["sagemaker"]} == TABLES["sagemaker"]


def test_an_interrupted_load_is_said_to_be_one() -> None:
    found = profile_of(load_figures([load(*RUN.results, lost="connection refused")]))

    assert found["was_cancelled"] is True
    assert found["is_complete"] is False
    assert found["incomplete_reason"] == "connection refused"


def test_records_are_one_a_request() -> None:
    found = list(records([RUN, load(RUN.results[0], started="2026-11-23T10:01:00Z")]))

    told = [(record["metadata"], record["error"] and record["error"]["type"]) for record in found]
    assert [
        (one["session_num"], one["round"], error, one["was_cancelled"]) for one, error in told
    ] == [
        *((0, 0, None, False), (1, 0, None, False), (2, 0, "status", False)),
        *((3, 0, "empty", False), (4, 0, "cancelled", True), (0, 1, None, False)),
    ]
    assert [record["metadata"]["request_start_ns"] for record in found][::5] == [
        1795428000000000000,
        1795428060000000000,
    ]
    assert found[1]["metadata"]["request_end_ns"] == 1795428001800000000
    assert found[1]["metrics"]["request_latency"] == {"value": 800.0, "unit": "ms"}
    assert found[1]["metrics"]["inter_chunk_latency"] == {"value": [200.0, 200.0], "unit": "ms"}
    assert found[2]["metrics"] == {"error_isl": {"value": 7, "unit": "tokens"}}
    assert found[4]["metadata"]["cancellation_time_ns"] == 1795428001000000000


def test_a_planned_pair_reads_the_summary_as_a_measurement(tmp_path: Path) -> None:
    figures = load_figures([replace(RUN, metrics_before=vllm(0, 0), metrics_after=vllm(8, 12))])
    path = tmp_path / "profile_export_aiperf.json"
    path.write_bytes(
        load_files(report_of(figures), report_of(figures).variants[0], figures)[path.name]
    )

    measured = load_measurements(path)

    (found,) = measured.loads
    assert measured.setup.model == "tiny-llama"
    assert found.concurrency == 8
    assert found.tpot_s == pytest.approx(0.15)
    assert found.ttft_s == pytest.approx(0.25)
    assert found.output_tokens_s == pytest.approx(6 / 1.8)
    assert (found.input_tokens, found.output_tokens) == (20.0, 3.0)
    assert measured.acceptance_length == 2.5


def vllm(drafts: int, accepted: int) -> str:
    names = {"drafts": drafts, "accepted_tokens": accepted}
    return "".join(f"vllm:spec_decode_num_{name}_total {n}\n" for name, n in names.items())


def test_the_setup_of_a_summary_is_read_and_an_address_is_no_model(tmp_path: Path) -> None:
    figures = load_figures([RUN])
    path = tmp_path / "profile.json"

    def read(**setup: Any) -> MeasuredSetup:
        variant = BenchVariant(name="http://host:8080", setup=BenchSetup(**setup), loads=(figures,))
        path.write_bytes(json_bytes(profile(report_of(variants=(variant,)), variant, figures)))
        return load_measurements(path).setup

    assert read() == MeasuredSetup()
    assert read(**TABLES["setup"]) == MeasuredSetup(**TABLES["setup"])


def members(packed: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        found = {}
        for member in tar:
            content = known(tar.extractfile(member))
            assert (member.mtime, member.uid, member.mode) == (0, 0, 0o644)
            found[member.name] = content.read()
        return found


def test_an_archive_depends_on_its_files_alone() -> None:
    one = archive({"b.json": b"2", "a.json": b"1"})

    assert one == archive({"a.json": b"1", "b.json": b"2"})
    assert one[4:8] == b"\0\0\0\0"  # no time
    assert members(one) == {"a.json": b"1", "b.json": b"2"}
    assert list(members(one)) == ["a.json", "b.json"]


def test_every_load_has_an_archive_of_its_own() -> None:
    figures = load_figures([RUN])
    two = figures.model_copy(update={"concurrency": 16})
    variant = BenchVariant(name="http://host:8080/v1", loads=(figures, two))
    found = aws_files(report_of(variants=(variant,)), {(0, 0): [RUN]}, {})

    assert sorted(found) == TABLES["paths_of_an_address"]
    inside = members(found["http_host_8080_v1/concurrency_8/output.tar.gz"])
    tables = ["profile_export_aiperf.csv", "profile_export_aiperf.json"]
    assert sorted(inside) == ["profile_export.jsonl", *tables]
    assert len(inside["profile_export.jsonl"].splitlines()) == 5
    assert json.loads(inside["profile_export_aiperf.json"])["request_count"]["avg"] == 2
    assert sorted(members(found["http_host_8080_v1/concurrency_16/output.tar.gz"])) == tables


def test_a_search_has_an_archive_with_all_it_tried() -> None:
    figures = load_figures([RUN])
    variants = (BenchVariant(name="a", loads=(figures,)), BenchVariant(name="a", loads=(figures,)))

    found = aws_files(report_of(variants=variants), {}, {1: {"boundary_summary": None}})

    assert sorted(found) == TABLES["paths_of_a_search"]
    assert sorted(members(found["2_a/search/output.tar.gz"])) == TABLES["members_of_a_search"]


def test_the_table_has_aiperfs_sections_names_and_units() -> None:
    spread = dict.fromkeys(("min", "max", "p50", "p99", "std"), 1.5)
    table = metrics_table(
        {
            "time_to_first_token": Metric(unit="ms", avg=2.256, count=3, **spread),
            "request_count": Metric(unit="requests", avg=3),
            "osl_mismatch_diff_pct": Metric(unit="%", avg=0.5, p50=0.25),
            "total_osl": Metric(unit="tokens", avg=1234567),
        }
    )

    assert table.decode().split("\r\n") == TABLES["the_table_has_aiperfs_sections_names_and_units"]
