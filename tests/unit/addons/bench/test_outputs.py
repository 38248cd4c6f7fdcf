"""Places of results: what each holds by its name, and what is refused before measuring."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from packager.addons.bench.assemble import make_report
from packager.addons.bench.load.values import Level
from packager.addons.bench.outputs import (
    OutputPlace,
    append_requests,
    check_archive,
    files_of,
    forget_requests,
    parse_output,
    write_files,
)
from packager.addons.bench.session import Results
from packager.core.bench import BenchReport
from packager.core.errors import UsageError
from tests.support.cases import cases
from tests.unit.addons.bench.test_assemble import about, one, target

RESULTS = Results(loads=[one("a", 0), one("a", 0, level=Level(concurrency=8)), one("b:1", 0)])


def report() -> BenchReport:
    return make_report([target("a"), target("b:1")], RESULTS, about())


@cases("places")
def test_a_place_holds_what_its_name_says(text: str, kind: str) -> None:
    assert parse_output(text).kind == kind


@pytest.mark.parametrize("text", ["r.yaml", "r.csv", "s3://bucket", "s3://bucket/", "s3:///x"])
def test_a_name_that_does_not_tell_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_output(text)

    assert repr(text) in refused.value.message
    assert refused.value.hint


def test_a_directory_that_is_there_is_one_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "v1.2").mkdir()

    assert parse_output(str(tmp_path / "v1.2")).kind == "directory"


@cases("several_loads")
def test_an_archive_of_several_loads_is_refused(servers: int, loads: int, searches: bool) -> None:
    archive = (parse_output("output.tar.gz"),)

    with pytest.raises(UsageError, match="can hold one load of one server"):
        check_archive(archive, servers, loads, searches=searches)
    check_archive((parse_output("x/"),), servers, loads, searches=searches)


@pytest.mark.parametrize(("loads", "searches"), [(1, False), (0, True)])
def test_an_archive_of_one_load_or_search_is_written(loads: int, searches: bool) -> None:
    check_archive((parse_output("output.tar.gz"),), 1, loads, searches=searches)


def test_a_directory_has_the_report_the_page_and_each_load_as_readers_want_it() -> None:
    files = files_of(
        OutputPlace(text="r/", kind="directory"), report(), RESULTS, lambda _: "<page>"
    )

    own = ("output.tar.gz", *OF_A_LOAD)
    assert sorted(files) == sorted(
        ["bench.html", "bench.json"]
        + [
            f"{folder}/{name}"
            for folder in ("a/concurrency_4", "a/concurrency_8", "b_1/concurrency_4")
            for name in own
        ]
    )
    assert files["bench.html"] == b"<page>"
    assert BenchReport.model_validate_json(files["bench.json"]) == report()
    summary = json.loads(files["a/concurrency_8/profile_export_aiperf.json"])
    assert summary["input_config"]["phases"][0]["concurrency"] == 8
    assert files["a/concurrency_8/profile_export.jsonl"].count(b"\n") == 2


OF_A_LOAD = ("profile_export.jsonl", "profile_export_aiperf.csv", "profile_export_aiperf.json")


@pytest.mark.parametrize("loads", [1, 2])
def test_one_server_has_an_archive_where_sagemakers_jobs_have_theirs(loads: int) -> None:
    (variant, _) = report().variants
    one_server = report().model_copy(
        update={"variants": (variant.model_copy(update={"loads": variant.loads[:loads]}),)}
    )

    files = files_of(OutputPlace(text="r/", kind="directory"), one_server, RESULTS, lambda _: "")

    folders = ["concurrency_4/", "concurrency_8/"] if loads == 2 else [""]
    (place,) = [name for name in files if name.endswith(".tar.gz")]
    assert place == "output/output.tar.gz"
    with tarfile.open(fileobj=io.BytesIO(files[place])) as tar:
        names = tar.getnames()
        if loads == 2:
            sweep = json.load(tar.extractfile(names.pop()))  # type: ignore[arg-type]
            rows = [row["parameters"] for row in sweep["per_combination_metrics"]]
            assert rows == [{"concurrency": 4}, {"concurrency": 8}]
            metrics = sweep["per_combination_metrics"][0]["metrics"]
            for tag, metric in variant.loads[0].metrics.items():
                assert metrics[tag]["mean"] == metrics[f"{tag}_avg"]["mean"] == metric.avg
    assert names == [f"{folder}{name}" for folder in folders for name in OF_A_LOAD]


def test_requests_of_a_load_are_on_disk_when_the_load_has_ended(tmp_path: Path) -> None:
    output = OutputPlace(text=str(tmp_path / "r"), kind="directory")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "requests.jsonl").write_text("of an earlier benchmark\n")

    forget_requests(output)
    append_requests(output, one("a", 0))
    append_requests(output, one("b:1", 1))
    append_requests(OutputPlace(text=str(tmp_path / "r.json"), kind="json"), one("a", 0))

    rows = [json.loads(row) for row in (tmp_path / "r" / "requests.jsonl").read_text().splitlines()]
    assert [(row["server"], row["load"], row["round"]) for row in rows] == [
        *(("a", "concurrency 4", 0), ("a", "concurrency 4", 0)),
        *(("b:1", "concurrency 4", 1), ("b:1", "concurrency 4", 1)),
    ]
    assert "metrics" in rows[0]
    assert not (tmp_path / "r.json").exists()


def test_files_are_written_below_a_place_that_is_made(tmp_path: Path) -> None:
    write_files(tmp_path / "new", {"a/b.json": b"1", "c.json": b"2"})
    write_files(tmp_path / "one.json", {"": b"3"})

    assert (tmp_path / "new/a/b.json").read_bytes() == b"1"
    assert (tmp_path / "new/c.json").read_bytes() == b"2"
    assert (tmp_path / "one.json").read_bytes() == b"3"
