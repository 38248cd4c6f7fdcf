"""Requests of `packager bench`, as they arrive at a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.core.bench import BenchReport
from tests.support.commandline import Packager
from tests.support.llm_double import Behaviour, LlmDouble, Record

QUICK = Behaviour(ttft_s=0.001, itl_s=0.0)


@pytest.fixture
def server() -> Iterator[LlmDouble]:
    with LlmDouble(QUICK) as double:
        yield double


def asked(double: LlmDouble) -> list[Record]:
    """Return the requests of loads: without those that only counted tokens."""
    return [one for one in double.records() if one.body.get("stream")]


def prompts(records: list[Record]) -> list[str]:
    return [
        one.body["prompt"] if "prompt" in one.body else one.body["messages"][-1]["content"]
        for one in records
    ]


def test_no_load_round_or_warm_up_sends_a_prompt_that_another_has_sent(
    packager: Packager, server: LlmDouble
) -> None:
    done = packager(
        *("bench", server.url, "--workload", "40:2", "--requests", "5", "--warm-up", "2"),
        *("--concurrency", "1,2", "--rounds", "2"),
    )

    assert done.status == 0, done.err
    begins = [" ".join(text.split()[:4]) for text in prompts(asked(server))]
    assert (len(begins), len(set(begins))) == (28, 28)


def test_a_second_run_of_the_same_seed_sends_the_same_requests(packager: Packager) -> None:
    sent = []
    for seed in ("3", "3", "4"):
        with LlmDouble(QUICK) as double:
            done = packager(
                *("bench", double.url, "--workload", "multi_turn_chat", "--requests", "3"),
                *("--concurrency", "1", "--output-tokens", "2", "--seed", seed),
            )
            assert done.status == 0, done.err
            sent.append([one.body["messages"] for one in asked(double)])

    assert sent[0] == sent[1] != sent[2]


def test_own_requests_arrive_once_each_as_they_were_recorded(
    packager: Packager, server: LlmDouble, tmp_path: Path
) -> None:
    rows = [{"prompt": f"Question {number}?", "completion": "Yes."} for number in range(12)]
    data = tmp_path / "own.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = packager(
        *("bench", server.url, "--data", str(data), "--requests", "5", "--warm-up", "1"),
        *("--concurrency", "1,2", "--format", "json", "--extra", "top_p=0.9"),
    )

    assert done.status == 0, done.err
    records = asked(server)
    assert sorted(prompts(records)) == sorted(str(row["prompt"]) for row in rows)
    assert {one.path for one in records} == {"/v1/completions"}
    assert {one.body["max_tokens"] for one in records} == {1}  # a token for four letters
    assert {one.body["top_p"] for one in records} == {0.9}
    workload = BenchReport.model_validate_json(done.out).workload
    assert (workload.name, workload.input_tokens, workload.output_tokens) == (
        "own requests",
        None,
        None,
    )


def test_a_specification_of_sagemaker_is_what_is_sent_and_the_command_line_wins(
    packager: Packager, server: LlmDouble, tmp_path: Path
) -> None:
    path = tmp_path / "workload.json"
    parameters = {
        "concurrency": [1, 2],
        "request_count": 3,
        "warmup_request_count": 0,
        "prompt_input_tokens_mean": 60,
        "output_tokens_mean": 9,
        "shared_system_prompt_length": 30,
        "extra_inputs": "ignore_eos:true top_k:5",
    }
    path.write_text(json.dumps({"benchmark": {"type": "aiperf"}, "parameters": parameters}))
    done = packager("bench", server.url, "--workload-spec", str(path), "--output-tokens", "4")

    assert done.status == 0, done.err
    bodies = [one.body for one in asked(server)]
    assert len(bodies) == 6
    assert {(one["max_tokens"], one["min_tokens"], one["top_k"]) for one in bodies} == {(4, 4, 5)}
    assert len({one["messages"][0]["content"] for one in bodies}) == 1
    assert len({one["messages"][1]["content"] for one in bodies}) == 6


def test_a_file_of_requests_gives_the_lengths_of_each(
    packager: Packager, server: LlmDouble, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [{"input_tokens": 40 * number, "output_tokens": number} for number in (1, 2, 3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = packager(
        *("bench", server.url, "--workload", str(path), "--requests", "3"),
        *("--concurrency", "1", "--warm-up", "0"),
    )

    assert done.status == 0, done.err
    found = sorted((one.body["max_tokens"], one.prompt_tokens) for one in asked(server))
    assert [answer for answer, _ in found] == [1, 2, 3]
    assert all(abs(tokens - 40 * answer) <= 3 for answer, tokens in found)


@pytest.mark.parametrize(("counts", "notes"), [(True, 0), (False, 1)])
def test_it_is_said_where_a_server_does_not_count_what_it_is_sent(
    packager: Packager, counts: bool, notes: int
) -> None:
    quick = Behaviour(ttft_s=0.001, itl_s=0.0, usage=counts, tokenize=counts)
    with LlmDouble(quick) as double:
        done = packager(
            *("bench", double.url, "--workload", "40:2", "--requests", "3"),
            *("--concurrency", "1", "--format", "json"),
        )

    (load,) = BenchReport.model_validate_json(done.out).variants[0].loads
    told = [note for note in load.notes if note.startswith("lengths of prompts are estimates")]
    assert len(told) == notes
