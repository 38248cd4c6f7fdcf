"""What a tune says: scores, text, request files, and options of candidates."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context, Option

from packager.check.yaml_values import parse_yaml_table
from packager.cli.options import read_request_fields
from packager.cli.tune_choices import named_variations, time_span, varied_axes
from packager.core.bench import BenchLoad, Limits, Metric
from packager.core.documents import parse_object
from packager.core.request import parse_request
from packager.core.tuning import NotTried, TunedCandidate, TuneReport
from packager.errors import UsageError
from packager.performance.presets import Goal
from packager.tune.report import tune_lines
from packager.tune.request_file import check_request_file, request_text
from packager.tune.score import score_of, why_useless
from packager.tune.space import Axis
from tests.support.tuning import a_load

LIMITS = Limits(ttft_ms=500.0)


@pytest.mark.parametrize(
    ("goal", "loads", "score"),
    [
        pytest.param("throughput", [a_load(100.0)], 100.0, id="tokens a second"),
        pytest.param("cost", [a_load(100.0), a_load(300.0)], 300.0, id="of the best load"),
        pytest.param("latency", [a_load(1.0, latency_ms=250.0), a_load(9.0, latency_ms=10.0)], 4.0,
                     id="answers a second of one reader, under the first load"),
        pytest.param("cost", [a_load(100.0), a_load(300.0, ttft_ms=600.0)], 100.0,
                     id="of the best load that keeps the limits"),
        pytest.param("cost", [a_load(100.0, ttft_ms=500.0)], 100.0, id="at the limit"),
        pytest.param("cost", [a_load(100.0, ttft_ms=750.0), a_load(300.0, ttft_ms=1000.0)], -1.5,
                     id="how far the nearest is beyond them, where all break them"),
    ],
)  # fmt: skip
def test_a_round_is_worth(goal: Goal, loads: Sequence[BenchLoad], score: float) -> None:
    assert score_of(loads, goal, LIMITS) == pytest.approx(score)


def test_the_95th_percentile_is_held_against_a_limit() -> None:
    slow = {"time_to_first_token": Metric(unit="ms", avg=100.0, p50=90.0, p95=1000.0)}
    load = a_load(100.0)
    load = load.model_copy(update={"metrics": {**load.metrics, **slow}})

    assert score_of([load], "cost", LIMITS) == pytest.approx(-2.0)


@pytest.mark.parametrize(
    ("loads", "why"),
    [
        pytest.param([a_load(10.0, requests=100, answered=99)], "", id="one of a hundred lost"),
        pytest.param(
            [a_load(10.0), a_load(10.0, requests=100, answered=98)],
            "2 of 100 requests got no answer: the answer ended early",
            id="two lost",
        ),
        pytest.param(
            [a_load(10.0, empty=4)], "4 of 32 requests got no answer, 4 of them empty", id="empty"
        ),
        pytest.param([a_load(0.0)], "its answers hold no tokens", id="no tokens"),
        pytest.param([], "nothing was measured", id="nothing"),
    ],
)
def test_answers_that_make_a_candidate_useless(loads: Sequence[BenchLoad], why: str) -> None:
    assert why_useless(loads, Limits()) == why


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        pytest.param(Limits(ttft_ms=500.0), "its answers tell no time to first token, of which "
                     "the limit is 500 ms", id="first token"),
        pytest.param(Limits(latency_ms=9000.0), "", id="a limit that can be held"),
    ],
)  # fmt: skip
def test_a_limit_that_nothing_tells_of_is_broken(limits: Limits, why: str) -> None:
    load = a_load(10.0)
    untold = {tag: one for tag, one in load.metrics.items() if tag != "time_to_first_token"}

    assert why_useless([load.model_copy(update={"metrics": untold})], limits) == why


def report(*candidates: TunedCandidate, **more: Any) -> TuneReport:
    fields: dict[str, Any] = {
        "packager_version": "1.2.3",
        "model": "examples/tiny-llama",
        "instance": "local",
        "goal": "throughput",
        "unit": "output tokens/s",
        "concurrency": (8,),
        "started": "2026-11-23T00:00:00Z",
        "journal": "tune.jsonl",
        "ended": "finished",
        "best": candidates[0].name if candidates else None,
        "keeps_limits": True,
        "measurements": 7,
        "exhaustive": 12,
        "seconds": 720.0,
        "candidates": candidates,
    }
    return TuneReport(**fields | more)


BEST = TunedCandidate(
    id="1", name="--quantize awq", state="best", rounds=3, score=180.0, low=175.0, high=185.0
)
TIED = TunedCandidate(
    id="2", name="--draft ngram", state="tied", rounds=3, score=178.0, low=172.0, high=184.0,
    predicted=400.0, band=0.6,
)  # fmt: skip
BASE = TunedCandidate(
    id="3", name="as requested", state="worse", rounds=1, score=100.0, low=97.0, high=103.0,
    dropped_after=1,
)  # fmt: skip
FAILED = TunedCandidate(
    id="4", name="--kv-dtype fp8", state="failed", stage="start", reason="it ended with status 1"
)


def test_the_decision_comes_first_then_every_candidate_then_what_was_left_out() -> None:
    left_out = (
        NotTried(name="--tp-degree 3", kind="refused", why="4 heads are not a multiple of it"),
        NotTried(name="--draft auto", kind="same", why="the same build as: as requested"),
    )

    text = "\n".join(
        tune_lines(
            report(
                BEST, TIED, BASE, FAILED, not_tried=left_out, images=("packager-tune:1@sha256:01",)
            )
        )
    )

    assert text == (
        "model      examples/tiny-llama on local\n"
        "goal       throughput: output tokens/s at concurrency 8\n"
        "best       --quantize awq: 180 output tokens/s, 1.80 times the request as it is; no "
        "measurable\n"
        "           difference from it: --draft ngram\n"
        "image      packager-tune:1@sha256:01\n"
        "measured   7 rounds of 4 candidates, 12 would be all; 12 min of work\n"
        "\n"
        "candidate       result       rounds  output tokens/s  95 % interval  predicted\n"
        "--quantize awq  best         3       180              175 to 185\n"
        "--draft ngram   tied         3       178              172 to 184     400 ±60%\n"
        "as requested    out after 1  1       100              97 to 103\n"
        "--kv-dtype fp8  failed       0\n"
        "\n"
        "failed     --kv-dtype fp8, when it started: it ended with status 1\n"
        "\n"
        "left out   --tp-degree 3, refused: 4 heads are not a multiple of it\n"
        "left out   1 combination that would build the same as another"
    )  # fmt: skip


def test_all_candidates_beyond_the_limits_are_said_to_be() -> None:
    slow = BEST.model_copy(update={"score": -1.5, "low": -1.6, "high": -1.4})

    text = "\n".join(tune_lines(report(slow, keeps_limits=False)))

    assert "best       --quantize awq, which breaks the limits as all candidates do" in text
    assert "1.50 times a limit" in text


def test_no_candidate_at_all_is_said() -> None:
    text = "\n".join(tune_lines(report(FAILED, best=None, ended="all-failed")))

    assert "best       none: no candidate could be measured" in text


def test_names_of_candidates_cannot_write_lines_of_their_own() -> None:
    hostile = BEST.model_copy(update={"name": "a\nbest       b\x1b[31m"})

    lines = list(tune_lines(report(hostile)))

    assert not [line for line in lines if line == "best       b" or "\x1b" in line]


READERS: dict[str, Callable[[str], dict[str, Any]]] = {
    ".toml": tomllib.loads,
    ".json": lambda text: parse_object(text.encode()),
    ".yaml": yaml.safe_load,  # a reader of YAML 1.1
    ".yml": lambda text: parse_yaml_table(text.encode()),
}
FIELDS = {
    "model": 'a "quoted"\\ \u00e4 model',
    "instance": "local",
    "goal": "cost",
    "max_batch": 8,
    "ep": True,
    "gpu_memory_utilization": 0.85,
    "engine_options": {"max-num-seqs": "8", 'odd "key"': "\u007f"},
    "quantize_ignore": ["lm_head", "re:.*gate"],
}


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


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("30m", 1800.0), ("1.5 h", 5400.0), ("45", 45.0)]
)
def test_times_are_written_as_people_write_them(text: str, seconds: float) -> None:
    assert time_span(context(), OPTION, text) == seconds


@pytest.mark.parametrize("text", ["soon", "0s", "-5m", "", "1d", "1e9h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--budget-time"):
        time_span(context(), OPTION, text)


OPTION = Option(["--budget-time"])


def context() -> Context:
    return None  # type: ignore[return-value]


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
    ) == (
        Axis("quantize", ("none", "awq")),
        Axis("draft", ("ngram",)),
        Axis("engine_options", ({"a": "1"}, {"a": "2"})),
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("quantize", "--vary 'quantize' is not FIELD=VALUE", "name an option of a request"),
        ("quantise=awq", "--vary 'quantise=awq' names no option of a request", "'quantize'?"),
        ("model=x", "--vary sets model, which is the same for all candidates", "give --model"),
        ("max-batch=two", "--vary 'max-batch=two': ", "it takes the options of a request"),
    ],
)
def test_what_cannot_be_varied_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        varied_axes([text])

    assert refused.value.message.startswith(message)
    assert hint in refused.value.hint
