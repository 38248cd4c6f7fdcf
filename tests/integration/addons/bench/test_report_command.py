"""`packager report` as it is typed: files in, text, JSON or a page out."""

from __future__ import annotations

import json
from pathlib import Path

from packager.addons.bench.export import json_bytes, profile
from packager.core.bench import BenchReport
from tests.support.bench_reports import drafts, even, hostile, quantized
from tests.support.cases import read_tables
from tests.support.commandline import Packager
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.report_values import quality_report
from tests.unit.addons.bench.test_aiperf_reports import measured_load
from tests.unit.pipeline.test_records import record

TABLES = read_tables(__file__)


def write(directory: Path, name: str, report: BenchReport) -> None:
    place = directory / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(report.model_dump_json(exclude_none=True), encoding="utf-8")


def test_a_report_is_printed_with_tables_and_decision(tmp_path: Path, packager: Packager) -> None:
    write(tmp_path, "bench.json", quantized())

    done = packager("report", "bench.json")

    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    for title in ("Latency", "Throughput", "Price", "Predicted and measured", "Quality"):
        assert title in lines
    assert (
        "so         awq costs least, $0.32 per million tokens out at 32 requests at once:"
        in done.out
    )


def test_json_is_a_report_that_is_read_again(tmp_path: Path, packager: Packager) -> None:
    write(tmp_path, "one.json", even())
    write(tmp_path, "other.json", drafts())

    done = packager("report", "one.json", "other.json", "--format", "json")
    (tmp_path / "both.json").write_text(done.out, encoding="utf-8")
    again = packager("report", "both.json", "--format", "json")

    assert len(json.loads(done.out)["variants"]) == 5
    assert again.out == done.out


def test_a_page_names_its_files_and_its_command(tmp_path: Path, packager: Packager) -> None:
    write(tmp_path, "one.json", even())

    page = packager("report", "one.json", "--goal", "latency", "--format", "html").out

    assert page.startswith("<!doctype html>")
    assert "<dt>Files</dt><dd>one.json</dd>" in page
    assert "packager report one.json" in page
    assert "--goal latency" in page


def test_an_output_has_the_form_that_its_ending_tells(tmp_path: Path, packager: Packager) -> None:
    write(tmp_path, "one.json", even())

    texts = [
        packager("report", "one.json", "--output", f"report{ending}").out
        for ending in (".html", ".json", ".txt")
    ]

    assert len(set(texts)) == 1
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "report.json").read_text())["rounds"] == 3
    assert (tmp_path / "report.txt").read_text() == texts[0]


def test_records_of_builds_are_compared_with_benchmarks(tmp_path: Path, packager: Packager) -> None:
    built = record(quality=quality_report())
    (tmp_path / "record.json").write_text(
        built.model_dump_json(exclude_none=True), encoding="utf-8"
    )
    write(tmp_path, "bench.json", even())

    done = packager("report", "record.json", "bench.json", "--format", "json")

    assert [one["name"] for one in json.loads(done.out)["variants"]] == TABLES[
        "records_of_builds_are_compared_with_benchmarks"
    ]


def test_strangers_names_start_no_line_and_no_colour(tmp_path: Path, packager: Packager) -> None:
    write(tmp_path, "bench.json", hostile())

    done = packager("report", "bench.json", status=0)

    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


def test_benchmarks_of_bucket_and_aiperf_are_joined(tmp_path: Path, packager: Packager) -> None:
    report = quantized()
    text = report.model_dump_json(exclude_none=True).encode()
    (variant, *_) = report.variants
    export = json_bytes(profile(report, variant, measured_load()))
    with bucket_server() as server:
        bucket = Bucket(server)
        bucket.put("results/bench.json", text)
        bucket.put("results/bench.json.old", b"{")
        bucket.put("other/profile_export_aiperf.json", export)

        def read(*references: str) -> list[str]:
            places = [f"{bucket.url}/{one}" for one in references]
            done = packager(
                "report", *places, "--mixed", "--format", "json", env=bucket.environment, status=0
            )
            return [one["name"] for one in json.loads(done.out)["variants"]]

        names = [one.name for one in report.variants]
        assert read("results/") == read("results") == read("results/bench.json") == names
        assert len(read("results", "other/profile_export_aiperf.json")) == len(names) + 1
        missing = packager("report", f"{bucket.url}/resul", env=bucket.environment, status=66)

    assert f"no benchmark at '{bucket.url}/resul'" in missing.err
