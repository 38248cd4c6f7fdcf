"""The command from its options to its outputs, with servers of known speed in place of engines."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import packager.addons.bench.commands.tune as command
from packager.addons.bench.commands import tune_run, tune_work
from packager.addons.bench.tune.candidates import TuneCandidate
from packager.addons.bench.tune.journal import Built
from packager.addons.bench.tune.session import Taken
from packager.cli import app
from packager.core.bench import BenchReport, Limits
from packager.core.errors import SmokeFailed
from packager.core.request import parse_request
from tests.support.cases import cases
from tests.support.commandline import TINY
from tests.support.tuning import FakeWorkshop

NGRAM, AWQ, BOTH = "--draft ngram", "--quantize awq", "--quantize awq --draft ngram"
SPEEDS = {"as requested": 100.0, NGRAM: 140.0, AWQ: 150.0, BOTH: 220.0}
OPTIONS = (
    *("tune", "--model", str(TINY), "--instance", "local", "--goal", "throughput"),
    *("--vary", "quantize=none", "--vary", "quantize=awq"),
    *("--vary", "draft=none", "--vary", "draft=ngram", "--concurrency", "8"),
)
NAMES = {"--quantize none --draft ngram": NGRAM, "--quantize awq --draft none": AWQ}


class Workshop(FakeWorkshop):
    """Knows candidates by what they build, whatever options ask for it."""

    def measure(self, candidate: TuneCandidate, built: Built, number: int) -> Taken:
        self.speeds = {**SPEEDS, candidate.name: SPEEDS[NAMES.get(candidate.name, candidate.name)]}
        return super().measure(candidate, built, number)


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """Put servers of known speed in place of the Docker Engine's."""
    made = Workshop()

    @contextmanager
    def work(*asked: Any) -> Iterator[Workshop]:
        yield made

    removed: list[str] = []
    made.removed = removed  # type: ignore[attr-defined]
    monkeypatch.setattr(tune_run, "find_engine", lambda: None)
    monkeypatch.setattr(tune_run, "work_in_engine", work)
    monkeypatch.setattr(tune_work, "remove_images", lambda engine, images: removed.extend(images))
    return made


def test_it_ends_with_the_best_build_the_table_and_a_request_that_repeats_it(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request, figures = tmp_path / "best.toml", tmp_path / "tune.json"

    status = app.run(
        [*OPTIONS, "--request-out", str(request), "--figures", str(figures),
         "--journal", str(tmp_path / "tune.jsonl")]
    )  # fmt: skip

    out, err = capsys.readouterr()
    assert status == 0, err
    lines = out.splitlines()
    assert lines[1] == "goal       throughput: output tokens/s at concurrency 8"
    assert lines[2].startswith(f"best       {BOTH}: 2")
    assert [line for line in lines if line.startswith("image      docker:tuned:")]
    asked = parse_request(tomllib.loads(request.read_text()))
    assert (asked.quantize, asked.draft, asked.goal, asked.outputs) == (
        "awq", "ngram", "throughput", ()
    )  # fmt: skip
    report = BenchReport.model_validate_json(figures.read_bytes())
    assert report.variants[0].name == "as requested"
    assert {one.setup.quantization for one in report.variants} == {"none", "awq"}
    assert f"to repeat the best build: packager build --request {request} --output OUT" in err


def test_asked_again_it_measures_nothing_and_says_the_same(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*OPTIONS, "--format", "json", "--journal", str(tmp_path / "tune.jsonl")]
    assert app.run(options) == 0
    first = json.loads(capsys.readouterr().out)
    done = list(workshop.done)

    assert app.run(options) == 0

    assert workshop.done == done
    assert json.loads(capsys.readouterr().out) == first


def test_images_of_the_others_are_removed_unless_kept(workshop: Workshop, tmp_path: Path) -> None:
    options = [*OPTIONS, "--journal", str(tmp_path / "tune.jsonl")]
    assert app.run([*options, "--keep-images"]) == 0
    removed: list[str] = workshop.removed  # type: ignore[attr-defined]
    assert removed == []

    assert app.run(options) == 0

    assert len(removed) == 3


def test_candidates_that_all_fail_end_with_the_status_of_servers_and_the_reasons(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*OPTIONS, "--only", "--journal", str(tmp_path / "tune.jsonl")]
    workshop.broken = {"start as requested": SmokeFailed("the container ended with status 1")}

    assert app.run(options) == 4

    out, err = capsys.readouterr()
    assert "failed     as requested, when it started: the container ended with status 1" in out
    assert "error: no candidate could be built, started and measured" in err

    workshop.broken = {}
    assert app.run([*options, "--retry-failed"]) == 0


@cases("questions")
def test_another_question_has_another_journal(
    workshop: Workshop, more: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run([*OPTIONS, "--only", "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)["journal"]

    assert app.run([*OPTIONS, "--only", "--format", "json", *more]) == 0

    assert json.loads(capsys.readouterr().out)["journal"] != first


def test_the_page_names_every_candidate(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run([*OPTIONS, "--format", "html", "--journal", str(tmp_path / "t.jsonl")]) == 0

    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>")
    assert [name for name in (*NAMES, "as requested", BOTH) if name not in page] == []


CORPUS = Path(__file__).parent / "corpus"


def test_a_workload_specification_says_what_candidates_are_sent(
    workshop: Workshop,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    works: list[tune_work.TuneWork] = []
    made = command.make_work

    def make(*arguments: Any, **more: Any) -> tune_work.TuneWork:
        works.append(made(*arguments, **more))
        return works[-1]

    monkeypatch.setattr(command, "make_work", make)
    options = [one for one in OPTIONS if one not in ("--concurrency", "8")]

    status = app.run([*options, "--workload-spec", str(CORPUS / "workload.json"), "--dry-run"])

    said = capsys.readouterr().err
    (work,) = works
    assert status == 0
    assert (work.concurrency, work.workload.words) == ((4,), "as asked: 64 tokens in, 16 out")
    assert (work.loads.load.requests, work.loads.spec.input_stddev) == (12, 8.0)
    assert work.race.limits == Limits(ttft_ms=500.0)
    assert work.race.rounds == 3
    assert work.asked()["input_stddev"] == 8.0
    assert "num_profile_runs of 'workload.json' is passed over: a tune decides that itself" in said


def test_a_specified_rate_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "workload.json"
    spec.write_text('{"benchmark": {"type": "aiperf"}, "parameters": {"request_rate": 2}}')

    assert app.run([*OPTIONS, "--workload-spec", str(spec), "--dry-run"]) == 2
    assert (
        "'workload.json' has request_rate: candidates are measured by requests at a time"
        in capsys.readouterr().err
    )
