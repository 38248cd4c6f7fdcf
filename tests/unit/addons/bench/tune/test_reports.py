"""What a tune says: scores, text, request files, and options of candidates."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import BadParameter, Option

from packager.addons.bench.commands.tune_choices import named_variations, varied_axes
from packager.addons.bench.tune.report import tune_report
from packager.addons.bench.tune.request_file import check_request_file, request_text
from packager.addons.bench.tune.score import score_of, why_useless
from packager.addons.bench.tune.space import Axis
from packager.cli.field_options import TimeRange
from packager.cli.options import read_request_fields
from packager.core.bench import Limits, Metric
from packager.core.documents import parse_object
from packager.core.errors import UsageError
from packager.core.reports.text import report_lines
from packager.core.request import parse_request
from packager.core.tuning import NotTried, TunedCandidate, TuneReport
from packager.core.yaml_values import parse_yaml_table
from packager.estimate.performance.presets import Goal
from tests.support.cases import Case, as_type, cases, read_tables
from tests.support.tuning import a_load

TABLES = read_tables(__file__)

LIMITS = Limits(ttft_ms=500.0)


@cases("scores")
def test_a_round_is_worth(goal: Goal, loads: tuple[dict[str, Any], ...], score: float) -> None:
    assert score_of([a_load(**one) for one in loads], goal, LIMITS) == pytest.approx(score)


def test_the_95th_percentile_is_held_against_a_limit() -> None:
    slow = {"time_to_first_token": Metric(unit="ms", avg=100.0, p50=90.0, p95=1000.0)}
    load = a_load(100.0)
    load = load.model_copy(update={"metrics": {**load.metrics, **slow}})

    assert score_of([load], "cost", LIMITS) == pytest.approx(-2.0)


@cases("useless")
def test_answers_that_make_a_candidate_useless(case: Case) -> None:
    made = [a_load(**one) for one in case["loads"]]
    for load in made:
        load.metrics.pop(case.get("untold", ""), None)

    assert why_useless(made, Limits(**case.get("limits", {}))) == case["why_useless"]


def report(*candidates: TunedCandidate, **more: Any) -> TuneReport:
    best = candidates[0].name if candidates else None
    fields = {**TABLES["report"]["fields"], "best": best, "candidates": candidates}
    return TuneReport(**fields | more)


BEST, TIED, BASE, FAILED = (
    TunedCandidate(**one) for one in TABLES["report"]["candidates"].values()
)


def test_the_decision_comes_first_then_every_candidate_then_what_was_left_out() -> None:
    left_out = (
        NotTried(name="--tp-degree 3", kind="refused", why="4 heads are not a multiple of it"),
        NotTried(name="--draft auto", kind="same", why="the same build as: as requested"),
    )

    images = ("packager-tune:1@sha256:01",)
    whole = report(BEST, TIED, BASE, FAILED, not_tried=left_out, images=images)

    assert report_lines(tune_report(whole)) == TABLES["report"]["text"].splitlines()


def test_all_candidates_beyond_the_limits_are_said_to_be() -> None:
    slow = BEST.model_copy(update={"score": -1.5, "low": -1.6, "high": -1.4})

    text = "\n".join(report_lines(tune_report(report(slow, keeps_limits=False))))

    assert "best       --quantize awq, which breaks the limits as all candidates do" in text
    assert "1.50 times a limit" in text


def test_no_candidate_at_all_is_said() -> None:
    text = "\n".join(report_lines(tune_report(report(FAILED, best=None, ended="all-failed"))))

    assert "best       none: no candidate could be measured" in text


def test_names_of_candidates_cannot_write_lines_of_their_own() -> None:
    hostile = BEST.model_copy(update={"name": "a\nbest       b\x1b[31m"})
    lines = report_lines(tune_report(report(hostile)))

    assert not [line for line in lines if line == "best       b" or "\x1b" in line]


READERS: dict[str, Callable[[str], dict[str, Any]]] = {
    ".toml": tomllib.loads,
    ".json": lambda text: parse_object(text.encode()),
    ".yaml": yaml.safe_load,  # a reader of YAML 1.1
    ".yml": lambda text: parse_yaml_table(text.encode()),
}
FIELDS = TABLES["fields"]


@pytest.mark.parametrize("name", ["best.toml", "best.json", "best.yaml", "best.yml"])
def test_a_request_file_says_what_the_request_says(name: str, tmp_path: Path) -> None:
    text = request_text(Path(name), FIELDS, ("the best of 8 candidates",))
    (tmp_path / name).write_text(text)

    read = READERS[Path(name).suffix](text)
    assert read == FIELDS
    assert parse_request(read).engine_options == FIELDS["engine_options"]
    assert read_request_fields(tmp_path / name) == FIELDS


def test_another_ending_than_a_request_file_has_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        check_request_file(Path("out/best.ini"))

    assert refused.value.hint == "write it to best.toml, best.json or best.yaml"


@cases("times_are_written_as_people_write_them")
def test_times_are_written_as_people_write_them(text: str, seconds: float) -> None:
    assert TimeRange(0, min_open=True).convert(text, OPTION, None) == seconds


@pytest.mark.parametrize("text", ["soon", "0s", "-5m", "", "1y", "1e9h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises((UsageError, BadParameter)):
        TimeRange(0, min_open=True).convert(text, OPTION, None)


OPTION = Option(["--budget-time"])


def test_options_in_quotes_are_a_candidate() -> None:
    (found,) = named_variations(
        ["--quantize awq,group=64 --engine-option a=1 --engine-option b='x y'"], []
    )

    assert dict(found.changes) == {
        "quantize": "awq,group=64",
        "engine_options": {"a": "1", "b": "x y"},
    }
    assert found.is_asked
    assert found.name == "--quantize awq,group=64 --engine-option a=1 --engine-option 'b=x y'"


def test_a_request_file_is_a_candidate_without_what_is_the_same_for_all(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('model = "other"\ninstance = "ml.g5.xlarge"\ndraft = "ngram:3"\n')

    (found,) = named_variations([], [file])

    assert found.name == "--draft ngram:3"


def test_values_of_one_field_are_one_choice_and_settings_one_for_each_name() -> None:
    assert varied_axes(
        ["quantize=none", "draft=ngram", "quantize=awq", "engine-option=a=1", "engine-option=a=2"]
    ) == as_type(TABLES["axes"], tuple[Axis, ...])


@cases("not_varied")
def test_what_cannot_be_varied_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        varied_axes([text])

    assert refused.value.message.startswith(message)
    assert hint in refused.value.hint
