"""`packager bench --baseline` and `--history`, with servers whose speed is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commandline import Packager
from tests.support.llm_double import Behaviour, LlmDouble

LOAD = ("--workload", "20:6", "--requests", "4", "--warm-up", "0", "--concurrency", "1")


@pytest.mark.timeout(600)
def test_a_slower_server_ends_with_a_status_of_its_own_and_its_history_is_drawn(
    packager: Packager, tmp_path: Path
) -> None:
    kept = ("--output", "base.json", "--history", "runs.jsonl")
    with LlmDouble(Behaviour(itl_s=0.003)) as quick:
        packager("bench", quick.url, *LOAD, "--rounds", "3", *kept, status=0)
        short = packager("bench", quick.url, *LOAD, "--rounds", "1", "--output", "1.json", status=0)
        told = packager("bench", quick.url, *LOAD, "--baseline", "1.json", status=2)
    with LlmDouble(Behaviour(itl_s=0.4)) as slow:
        held = ("--baseline", "runs.jsonl", "--history", "runs.jsonl")
        done = packager("bench", slow.url, *LOAD, *held, status=9)

    assert short.err.count("error") == 0
    assert "'1.json' has 1 rounds of a load, which tell no noise" in told.err
    assert "slower than the baseline: output tokens a second at 1 at once is 0." in done.err
    assert "(baseline)" in done.out
    assert "(now)" in done.out
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["variants"]) for line in lines] == [1, 1]
    page = packager("report", "runs.jsonl", "--mixed", "--format", "html", status=0).out
    text = packager("report", "runs.jsonl", "--mixed", status=0).out
    assert ">History</h2>" in page
    assert text.startswith("History\n")
    assert text.count("1 request at once") >= 2
    refused = packager("bench", slow.url, *LOAD, "--history", "runs.json", status=2)
    assert "--history 'runs.json' is not a file of JSON lines" in refused.err
