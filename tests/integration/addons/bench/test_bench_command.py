"""`packager bench` of servers whose every answer is known: what is printed, written and demanded.

No figure is compared with a time: what a loaded machine makes of one is measured elsewhere.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.core.bench import BenchReport
from packager.estimate.performance.measurements import load_measurements
from packager.pipeline.records import load_record, put_starts
from tests.support.cases import cases_of
from tests.support.commandline import TINY, Done, Packager
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.known import known
from tests.support.llm_double import Behaviour, LlmDouble, Mode
from tests.support.running_jobs import until
from tests.unit.addons.bench.test_startup import whole_report

cases = cases_of(__file__)

ALL = ("--workload", "20:6", "--requests", "4", "--warm-up", "0")
FEW = ("--workload", "20:6", "--requests", "4", "--warm-up", "1")
BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "-q")


@pytest.fixture(scope="module")
def one() -> Iterator[LlmDouble]:
    with LlmDouble(Behaviour(itl_s=0.003)) as double:
        yield double


@pytest.fixture(scope="module")
def other() -> Iterator[LlmDouble]:
    with LlmDouble(Behaviour(itl_s=0.003, tokens_per_chunk=2)) as double:
        yield double


@pytest.fixture
def bench(packager: Packager) -> Packager:
    """Return what runs `packager bench` where it is to end well."""

    def run(*words: str, **more: Any) -> Done:
        return packager("bench", *words, **more, status=0)

    return run


def test_two_servers_are_compared(bench: Packager, one: LlmDouble, other: LlmDouble) -> None:
    done = bench(
        *(one.url, other.url, *FEW, "--concurrency", "1,2", "--rounds", "2"),
        *("--usd-per-hour", "2", "--discount", "0.5", "--ttft-ms", "60000"),
    )

    assert done.out.startswith("requests   as asked: 20 tokens in, 6 tokens out; seed 0\n")
    assert "limits     the first token within 60000 ms" in done.out
    assert "rounds     2, in turns" in done.out
    for title in ("Latency", "Throughput", "Price", "Requests within the limits"):
        assert f"\n{title}\n" in done.out
    assert "$2.00 an hour, less 50 % (--usd-per-hour)" in done.out
    assert "from fewer than 3 rounds, so it may be noise" in " ".join(done.out.split())
    assert "measure, " in done.err  # which load is shown depends on when it is looked at


def test_json_is_the_report_and_alone_on_stdout(bench: Packager, one: LlmDouble) -> None:
    done = bench(one.url, *FEW, "--concurrency", "2", "--format", "json")

    assert done.err == ""
    report = BenchReport.model_validate_json(done.out)
    (variant,) = report.variants
    (load,) = variant.loads
    assert (variant.name, variant.setup.digest) == (one.url, "")
    assert variant.setup.model == "double"
    assert (load.concurrency, load.requests, load.answered, load.empty) == (2, 4, 4, 0)
    assert load.metrics["output_sequence_length"].avg == 6
    assert load.metrics["input_sequence_length"].avg == 20
    assert report.workload.output_tokens == 6
    assert report.command.startswith(f"packager bench {one.url} --workload 20:6")


def test_adapters_are_loaded_by_their_shares_and_measured_apart(
    packager: Packager, tmp_path: Path
) -> None:
    words = (*ALL, "--requests", "40", "--concurrency", "2", "--adapter", "sql=3", "--adapter", "*")
    with LlmDouble(Behaviour(adapters=("sql", "chat"))) as adapted:
        done = packager("bench", adapted.url, *words, "--output", "r/", status=0)
        sent = [one.body["model"] for one in adapted.records() if one.body.get("stream")]
        adapted.behave(Behaviour(adapters=("sql", "chat"), base_answers=True))
        silent = packager("bench", adapted.url, *words, status=4)

    assert "\nAdapters\n" in done.out
    assert ", for sql=3, *; seed 0" in done.out
    (variant,) = BenchReport.model_validate_json((tmp_path / "r/bench.json").read_text()).variants
    (load,) = variant.loads
    chat, sql = load.adapters
    assert (chat.name, sql.name, chat.requests + sql.requests) == ("chat", "sql", load.requests)
    assert (chat.requests, sql.requests) == (sent.count("chat"), sent.count("sql"))
    assert 20 < sql.answered == sql.requests < 40
    rates = [one.metrics["output_token_throughput"].avg for one in (chat, sql)]
    assert sum(rates) == pytest.approx(load.metrics["output_token_throughput"].avg)
    assert "the adapter 'sql' answers as the base does on /v1/completions" in silent.err


def test_a_directory_suits_every_reader(bench: Packager, tmp_path: Path, one: LlmDouble) -> None:
    outputs = ("--output", "results/", "--output", "alone.json")
    done = bench(one.url, *FEW, "--concurrency", "1,2", *outputs)

    assert "written to results/" in done.err
    results = tmp_path / "results"
    (archive, server) = sorted(path for path in results.iterdir() if path.is_dir())[::-1]
    assert [path.name for path in archive.iterdir()] == ["output.tar.gz"]
    assert sorted(path.name for path in server.iterdir()) == ["concurrency_1", "concurrency_2"]
    summary = server / "concurrency_2" / "profile_export_aiperf.json"
    assert load_measurements(summary).loads[0].concurrency == 2
    assert len((server / "concurrency_2" / "profile_export.jsonl").read_text().splitlines()) == 4
    assert (results / "bench.html").read_text().startswith("<!doctype html>")
    alone = load_measurements(tmp_path / "alone.json")
    assert [load.concurrency for load in alone.loads] == [1, 2]


def test_a_search_ends_at_the_boundary(bench: Packager, tmp_path: Path, one: LlmDouble) -> None:
    """Every load is within a minute: the search ends where it may not go on."""
    done = bench(
        *(one.url, *FEW, "--find", "max-concurrency", "--latency-ms", "60000"),
        *("--find-up-to", "4", "--output", "output.tar.gz"),
    )

    assert "found      up to 4 requests at once are within the limits" in done.out
    with tarfile.open(tmp_path / "output.tar.gz") as tar:
        history = known(tar.extractfile("search_history.json"))
        found = json.load(io.BytesIO(history.read()))
    assert found["boundary_summary"]["feasible_max"]["value"] == 4


def test_a_missed_share_ends_with_7_after_the_figures(packager: Packager, one: LlmDouble) -> None:
    done = packager(
        *("bench", one.url, *FEW, "--concurrency", "1", "--latency-ms", "0.001"),
        *("--min-goodput", "0.99", "--quiet"),
        status=7,
    )

    assert "Requests within the limits" in done.out
    assert done.err.startswith(
        "error: only 0 % of the requests of a load keep the limits; 99 % are demanded\n"
    )


def test_what_fails_is_told_as_what_it_is(bench: Packager) -> None:
    modes: tuple[Mode, ...] = ("ok", "empty", "cut", "status")
    with LlmDouble(Behaviour(), modes=modes) as failing:
        done = bench(failing.url, *ALL, "--concurrency", "1", "--format", "json")

    (load,) = json.loads(done.out)["variants"][0]["loads"]
    assert (load["requests"], load["empty"]) == (4, 1)
    assert {error["kind"] for error in load["errors"]} == {"cut", "status"}


def test_a_server_that_answers_nothing_ends_with_4(packager: Packager) -> None:
    with LlmDouble(Behaviour(mode="status", status=503)) as failing:
        done = packager("bench", failing.url, *FEW, "--concurrency", "1", "--quiet", status=4)

    assert "error: no request was answered: " in done.err
    assert "503" in done.err


def test_an_absent_server_does_not_stop_the_other(packager: Packager, one: LlmDouble) -> None:
    done = packager(
        "bench", one.url, "http://127.0.0.1:9", *FEW, "--concurrency", "1", "--quiet", status=4
    )

    assert "Latency" in done.out
    assert "failed     http://127.0.0.1:9: " in done.out
    assert "error: 'http://127.0.0.1:9' could not be measured to the end: " in done.err


def test_passwords_and_keys_are_sent_and_never_shown(
    bench: Packager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: LlmDouble
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-geheim")
    url = one.url.replace("http://", "http://user:verrat@")

    done = bench(url, *FEW, "--concurrency", "1", "--output", "results/")

    told = done.out + done.err
    files = [path for path in tmp_path.rglob("*.*") if path.is_file()]
    assert files
    told += "".join(path.read_text(errors="replace") for path in files)
    assert "verrat" not in told
    assert "geheim" not in told


def test_figures_go_into_the_build_record_that_is_named(
    packager: Packager, bench: Packager, tmp_path: Path, one: LlmDouble
) -> None:
    assert packager(*BUILD, "--output", "oci:out", "--record", "built.json").status == 0

    done = bench(one.url, *FEW, "--concurrency", "2", "--record", "built.json")

    assert "in the record built.json" in done.err
    record = json.loads((tmp_path / "built.json").read_text())
    assert record["schema_version"] == 7
    assert record["bench"]["variants"][0]["loads"][0]["concurrency"] == 2
    assert [load.concurrency for load in load_measurements(tmp_path / "built.json").loads] == [2]


def built_record(packager: Packager) -> Path:
    """Build an image in `out`; return the record of its build."""
    assert packager(*BUILD, "--output", "oci:out").status == 0
    (record,) = Path(os.environ["XDG_STATE_HOME"]).glob("packager/records/*.json")
    return record


def test_inspect_shows_measurements(packager: Packager, bench: Packager, one: LlmDouble) -> None:
    record = built_record(packager)
    bench(one.url, *FEW, "--concurrency", "2", "--record", str(record), "-q")

    text, document = packager("inspect", "oci:out"), packager("inspect", "oci:out", "--format=json")

    assert "as asked: 20 tokens in, 6 tokens out; seed 0\n  2 requests at once: " in text.out
    assert json.loads(document.out)["bench"]["variants"][0]["loads"][0]["concurrency"] == 2


def test_inspect_and_report_show_measured_starts_of_our_image(packager: Packager) -> None:
    record = built_record(packager)
    predicted = load_record(record).startup
    [first, _] = whole_report().startups
    started = first.model_copy(update={"predicted": predicted})
    put_starts(record, whole_report().model_copy(update={"startups": (started,)}))

    text, document = packager("inspect", "oci:out"), packager("inspect", "oci:out", "--format=json")
    page = packager("report", str(record), "--format", "html")

    assert "started    2026-11-28T00:00:00Z, 3 rounds\n" in text.out
    assert "weights 2.0 s 1.9 s to 2.1 s ~< 0.1 s" in " ".join(text.out.split())
    assert "  next: compile ahead of time: --compile auto" in text.out
    found = json.loads(document.out)["starts"]["startups"][0]
    assert found["phases"]["weights"]["median"] == 2.04
    assert found["predicted"]["nodes"][0]["phases"][0]["name"] == "pull"
    assert '<h2 id="starts">Cold start</h2>' in page.out


@pytest.mark.extended
def test_an_interrupted_benchmark_prints_and_writes_what_it_has(tmp_path: Path) -> None:
    """The second load waits for an answer that never comes."""
    modes: tuple[Mode, ...] = ("ok",) * 4 + ("silent",) * 96
    with LlmDouble(Behaviour(), modes=modes) as double:
        words = ("bench", double.url, *ALL, "--concurrency", "1,2", "--output", "kept.json")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(
            [sys.executable, "-m", "packager", *words], cwd=tmp_path, **pipes
        ) as process:
            until(lambda: len(double.records()) >= 5 or process.poll() is not None, within_s=120)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=120)

    assert process.returncode == 130, err
    assert "incomplete interrupted; loads may be missing or short" in out
    report = json.loads((tmp_path / "kept.json").read_text())
    assert report["incomplete"] == "interrupted"
    assert report["variants"][0]["loads"][0]["answered"] == 4


def test_results_go_into_a_bucket(bench: Packager, one: LlmDouble) -> None:
    with bucket_server() as server:
        bucket = Bucket(server)
        output = ("--output", f"{bucket.url}/run/")
        bench(one.url, *FEW, "--concurrency", "2", *output, env=bucket.environment)
        names, report = bucket.names(), bucket.get("run/bench.json")

    exports = [Path(name).name for name in names if "profile_export" in name]
    assert {"run/bench.json", "run/bench.html"} < set(names)
    assert sorted(exports) == [
        "profile_export.jsonl", "profile_export_aiperf.csv", "profile_export_aiperf.json",
    ]  # fmt: skip
    assert len(names) == 6
    assert BenchReport.model_validate_json(report).variants[0].name == one.url


@cases("of_others")
def test_options_of_starts_and_loads(packager: Packager, words: tuple[str, ...], said: str) -> None:
    done = packager("bench", *words, status=2)

    assert said in done.err
