"""Requests of `packager bench`, as they arrive at a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from packager.core.bench import BenchReport
from tests.support.commandline import Packager
from tests.support.llm_double import Behaviour, LlmDouble, Record

CORPUS = Path(__file__).parent / "corpus"
Bench = Callable[..., BenchReport]
QUICK = Behaviour(ttft_s=0.001, itl_s=0.0)


@pytest.fixture
def server() -> Iterator[LlmDouble]:
    with LlmDouble(QUICK) as double:
        yield double


@pytest.fixture
def bench(packager: Packager) -> Bench:
    """Return what runs `packager bench` with these words; it gives the report."""

    def run(*words: str) -> BenchReport:
        done = packager("bench", *words, "--format", "json", status=0)
        return BenchReport.model_validate_json(done.out)

    return run


def asked(double: LlmDouble) -> list[Record]:
    """Return the requests of loads: without those that only counted tokens."""
    return [one for one in double.records() if one.body.get("stream")]


def prompts(records: list[Record]) -> list[str]:
    return [
        one.body["prompt"] if "prompt" in one.body else one.body["messages"][-1]["content"]
        for one in records
    ]


def test_no_load_round_or_warm_up_sends_a_prompt_again(bench: Bench, server: LlmDouble) -> None:
    counts = ("--requests", "5", "--warm-up", "2", "--concurrency", "1,2", "--rounds", "2")
    bench(server.url, "--workload", "40:2", *counts)

    begins = [" ".join(text.split()[:4]) for text in prompts(asked(server))]
    assert (len(begins), len(set(begins))) == (28, 28)


def test_own_requests_arrive_as_recorded(bench: Bench, server: LlmDouble, tmp_path: Path) -> None:
    rows = [{"prompt": f"Question {number}?", "completion": "Yes."} for number in range(12)]
    data = tmp_path / "own.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    counts = ("--requests", "5", "--warm-up", "1", "--concurrency", "1,2")
    workload = bench(server.url, "--data", str(data), *counts, "--extra", "top_p=0.9").workload

    records = asked(server)
    assert sorted(prompts(records)) == sorted(str(row["prompt"]) for row in rows)
    assert {one.path for one in records} == {"/v1/completions"}
    assert {one.body["max_tokens"] for one in records} == {1}  # a token for four letters
    assert {one.body["top_p"] for one in records} == {0.9}
    assert workload.name == "own requests"
    assert workload.input_tokens is workload.output_tokens is None


def test_options_win_over_a_specification_of_sagemaker(bench: Bench, server: LlmDouble) -> None:
    spec = str(CORPUS / "workload.json")
    bench(server.url, "--workload-spec", spec, "--output-tokens", "4")

    bodies = [one.body for one in asked(server)]
    assert len(bodies) == 6
    assert {(one["max_tokens"], one["min_tokens"], one["top_k"]) for one in bodies} == {(4, 4, 5)}
    assert len({one["messages"][0]["content"] for one in bodies}) == 1
    assert len({one["messages"][1]["content"] for one in bodies}) == 6


@pytest.mark.parametrize(("counts", "notes"), [(True, 0), (False, 1)])
def test_it_is_said_where_a_server_does_not_count(bench: Bench, counts: bool, notes: int) -> None:
    quick = Behaviour(ttft_s=0.001, itl_s=0.0, usage=counts, tokenize=counts)
    with LlmDouble(quick) as double:
        words = ("--workload", "40:2", "--requests", "3", "--concurrency", "1")
        (load,) = bench(double.url, *words).variants[0].loads

    told = [note for note in load.notes if note.startswith("lengths of prompts are estimates")]
    assert len(told) == notes
