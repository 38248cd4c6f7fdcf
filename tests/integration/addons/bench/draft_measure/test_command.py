"""`packager draft measure` of servers that run: what is printed, written and demanded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cases import cases_of, read_tables
from tests.support.commandline import TINY, Packager
from tests.support.doubles.speculating import SpeculatingServer

cases = cases_of(__file__)

ROWS = "".join(
    json.dumps({"prompt": f"{name} one two three four five six seven eight nine"}) + "\n"
    for name in ("a", "b", "c")
)
BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "-q")


@pytest.fixture
def data(tmp_path: Path) -> str:
    (tmp_path / "prompts.jsonl").write_text(ROWS)
    return "prompts.jsonl"


def test_two_servers_are_printed_and_written(packager: Packager, tmp_path: Path, data: str) -> None:
    with SpeculatingServer(step=4) as drafting, SpeculatingServer() as plain:
        done = packager(
            *("draft", "measure", drafting.url, "--plain", plain.url, "--data", data),
            *("--concurrency", "2", "--max-tokens", "9", "--output", "new/figures.json"),
            "--require-identical",
        )

    assert done.status == 0, done.err
    assert "acceptance  4.00 tokens a step, by vLLM's own count" in done.out
    assert "answers     3 of 3 identical at temperature 0" in done.out
    assert f"{plain.url}, concurrency 2: " in done.err
    written = json.loads((tmp_path / "new" / "figures.json").read_text())
    assert written["acceptance"]["length"] == 4.0
    assert [speed["concurrency"] for speed in written["speeds"]] == [1, 2]
    assert written["sameness"] == read_tables(__file__)["sameness"]
    assert written["record"] is None


def test_json_is_the_same_and_alone_on_stdout(packager: Packager, data: str) -> None:
    with SpeculatingServer(step=4) as server:
        done = packager("draft", "measure", server.url, "--data", data, "--format", "json")

    assert done.status == 0, done.err
    assert json.loads(done.out)["server"] == server.url
    assert done.err == ""


@cases("demands")
def test_a_demand_that_is_not_met_ends_with_7_after_the_figures(
    packager: Packager, data: str, demand: tuple[str, ...], said: str
) -> None:
    with (
        SpeculatingServer(step=4) as drafting,
        SpeculatingServer(answer=lambda prompt: prompt.upper().split()) as plain,
    ):
        done = packager(
            *("draft", "measure", drafting.url, "--plain", plain.url, "--data", data, *demand),
            *("--concurrency", "1", "--max-tokens", "9", "--quiet"),
        )

    assert done.status == 7
    assert "answers     0 of 3 identical" in done.out
    assert done.err.startswith("error: the draft misses its requirements: ")
    assert said in done.err


@cases("ties")
def test_answers_that_part_at_a_tie_are_identical_unless_strictly(
    packager: Packager, data: str, demand: tuple[str, ...], status: int
) -> None:
    """On another processor one answer of thirty parted, where two tokens are equally likely."""

    def other(prompt: str) -> list[str]:
        words = prompt.split()
        return ["b", "one", "TWOS", *words[3:]] if words[0] == "b" else words

    with (
        SpeculatingServer(step=4) as drafting,
        SpeculatingServer(answer=other, chances=lambda tokens: {4: -0.69, 3: -0.75}) as plain,
    ):
        done = packager(
            *("draft", "measure", *demand, drafting.url, "--plain", plain.url, "--data", data),
            *("--concurrency", "1", "--max-tokens", "9", "--quiet"),
        )

    assert done.status == status, done.err
    assert "answers     2 of 3 identical at temperature 0\n            1 part at a tie" in done.out
    assert "parts at character 6, token 2, a tie (0.06 nats apart):" in done.out
    assert ("1 of 3 answers differ from the plain ones, 1 at a tie" in done.err) == bool(status)


def test_figures_go_into_a_build_record(packager: Packager, tmp_path: Path, data: str) -> None:
    assert packager(*BUILD, "--output", "oci:out", "--record", "built.json").status == 0
    with SpeculatingServer(step=4) as server:
        done = packager(
            *("draft", "measure", server.url, "--data", data, "--record", "built.json"),
            *("--concurrency", "1", "--max-tokens", "9"),
        )

    assert done.status == 0, done.err
    record = json.loads((tmp_path / "built.json").read_text())
    assert record["speculation"]["acceptance"]["accepted_tokens"] == 18
    assert "in the record built.json" in done.err
    packager("build", "--from-record", "built.json", "--output", "oci:again", "-q", status=0)


def test_no_password_is_printed_or_written(packager: Packager, tmp_path: Path, data: str) -> None:
    with SpeculatingServer(step=4) as server:
        address = server.url.replace("http://", "http://user:hunter2@")
        done = packager(
            *("draft", "measure", f"{address}/?key=hunter2", "--data", data, "--plain", address),
            *("--output", "figures.json", "--concurrency", "1"),
        )
        alone = packager(
            *("draft", "measure", f"{address}/?key=hunter2", "--data", data),
            *("--output", "figures.json", "--concurrency", "1"),
        )

    assert (done.status, alone.status) == (2, 0), alone.err
    said = done.out + done.err + alone.out + alone.err + (tmp_path / "figures.json").read_text()
    assert "hunter2" not in said


@pytest.mark.parametrize("scheme", ["HTTP", "htps"])
def test_a_password_in_an_address_that_is_misspelt_is_not_printed_either(
    packager: Packager, data: str, scheme: str
) -> None:
    with SpeculatingServer(step=4) as server:
        address = server.url.replace("http://", f"{scheme}://user:hunter2@")
        done = packager(
            "draft", "measure", address, "--data", data, "--concurrency", "1", "--plain", "none"
        )

    assert done.status == (0 if scheme == "HTTP" else 2), done.err
    assert "hunter2" not in done.out + done.err


@cases("measure")
def test_wrong_words_are_refused_before_anything_is_asked(
    packager: Packager, asked: list[str], status: int, said: str
) -> None:
    with SpeculatingServer(step=4) as server:
        done = packager("draft", "measure", server.url, *asked)

    assert (done.status, server.asked) == (status, []), done.err
    assert said in done.err


def test_broken_rows_are_told_or_refused(packager: Packager, tmp_path: Path, data: str) -> None:
    (tmp_path / data).write_text(ROWS + "{}\n")
    with SpeculatingServer(step=4) as server:
        words = ("draft", "measure", server.url, "--data", data, "--concurrency", "1")
        told, refused = packager(*words), packager(*words, "--broken", "refuse")

    assert told.status == 0, told.err
    assert "warning: 1 rows are not samples; prompts.jsonl, line 4" in told.err
    assert refused.status == 65
    assert "holds 1 broken row" in refused.err


def test_help_shows_both_forms(packager: Packager) -> None:
    done = packager("draft", "measure", "--help", status=0)

    assert "packager draft measure IMAGE --data prompts.jsonl --require-identical" in done.out
