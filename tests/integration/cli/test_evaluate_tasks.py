"""`packager evaluate --tasks`: two servers answer the same questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.models.samples.tasks import arithmetic
from tests.support.commandline import Packager
from tests.support.doubles.speculating import SpeculatingServer
from tests.support.llm_double import Behaviour, LlmDouble

RIGHT = {task.sample.messages[0].content: task.answers[0] for task in arithmetic(40)}


def answering(wrong: int) -> Callable[[str], list[str]]:
    """Return who answers rightly but for the first questions."""
    known = list(RIGHT)

    def answer(prompt: str) -> list[str]:
        return ["It", "is", "####", "0" if known.index(prompt) < wrong else RIGHT[prompt]]

    return answer


@pytest.mark.parametrize(
    ("wrong", "least", "status", "verdict"),
    [(0, "0.9", 0, "kept"), (20, "0.9", 7, "missed"), (4, "0.9", 0, "not decided")],
)
def test_the_same_questions_decide(
    wrong: int, least: str, status: int, verdict: str, tmp_path: Path, packager: Packager
) -> None:
    with SpeculatingServer(answer=answering(0)) as base, SpeculatingServer(
        answer=answering(wrong)
    ) as candidate:  # fmt: skip
        words = ("--base", base.url, "--candidate", candidate.url, "--tasks", "arithmetic",
                 "--samples", "40", "--min-recovery", least, "--format", "json",
                 "--output", str(tmp_path / "tasks.json"))  # fmt: skip
        done = packager("evaluate", *words, status=status)

    found = json.loads((tmp_path / "tasks.json").read_text())
    assert found["verdict"] == verdict
    assert (found["base"]["right"], found["candidate"]["right"]) == (40, 40 - wrong)
    assert (found["lost"], found["gained"], found["changed"]) == (wrong, 0, wrong)
    assert json.loads(done.out) == found
    assert {body["messages"][0]["content"] for body in base.asked} == {*RIGHT}
    assert all(body["temperature"] == 0 for body in candidate.asked)


def test_a_server_that_refuses_everything_is_no_base(packager: Packager) -> None:
    with SpeculatingServer(refused=" ") as base, SpeculatingServer() as candidate:
        words = ("--base", base.url, "--candidate", candidate.url, "--tasks", "arithmetic")

        done = packager("evaluate", *words, "--samples", "3", status=4)

    assert "answered none of 3 questions" in done.err


def test_questions_without_an_answer_are_counted(tmp_path: Path, packager: Packager) -> None:
    with SpeculatingServer(answer=answering(0)) as base, SpeculatingServer(
        answer=answering(0), refused="seats"
    ) as candidate:  # fmt: skip
        words = ("--base", base.url, "--candidate", candidate.url, "--tasks", "arithmetic")
        done = packager("evaluate", *words, "--samples", "30", status=0)

    assert "20 of 30 right" in done.out
    assert "10 without an answer" in done.out
    assert "10 right answers lost, 0 gained" in done.out


def test_an_adapter_is_asked_beside_its_base(packager: Packager) -> None:
    with LlmDouble(Behaviour(adapters=("sql",))) as server:
        words = ("--base", server.url, "--candidate", server.url, "--tasks", "arithmetic",
                 "--samples", "3", "--adapter", "sql")  # fmt: skip
        done = packager("evaluate", *words, status=0)
        asked = [one.body["model"] for one in server.records() if "messages" in one.body]
        server.behave(Behaviour(adapters=("sql",), base_answers=True))
        silent = packager("evaluate", *words, status=4)

    assert asked == 3 * ["double"] + 3 * ["sql"]
    assert f": {server.url}, adapter sql\n" in done.out
    assert "the adapter 'sql' answers as the base does" in silent.err


@pytest.mark.parametrize("words", [("--min-recovery", "1"), ("--base-adapter", "sql")])
def test_what_is_of_questions_alone_is_refused_without_them(
    words: tuple[str, str], packager: Packager
) -> None:
    done = packager("evaluate", "--base", "a", "--candidate", "b", *words, status=2)

    assert f"{words[0]} is of --tasks alone" in done.err
