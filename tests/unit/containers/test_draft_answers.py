"""How samples become questions to the model, and how answers stay when a run is interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.letters import Letters
from tests.support.worker_modules import load_module

TEMPLATE = (
    "{% for turn in messages %}"
    "{% if turn.role == 'system' and not loop.first %}{{ refuse() }}{% endif %}"
    "<{{ turn.role }}>{{ turn.content }}{% if turn.role == 'assistant' %}.{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def dialogues() -> ModuleType:
    return load_module("draft-heads", "dialogues.py")


@pytest.fixture(scope="module")
def limits() -> ModuleType:
    return load_module("draft-heads", "limits.py")


@pytest.fixture(scope="module")
def journal() -> ModuleType:
    return load_module("draft-heads", "journal.py")


def _turns(*said: str) -> dict[str, Any]:
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return {"messages": [{"role": roles[one[0]], "content": one} for one in said]}


def _answered(dialogue: Any, answers: list[str]) -> list[str]:
    """Answer all that is asked; give the questions as text."""
    asked = []
    while question := dialogue.question():
        asked.append("".join(map(chr, question)))
        dialogue.take(answers[len(asked) - 1])
    return asked


def test_each_answer_is_asked_for_after_those_already_given(dialogues: ModuleType) -> None:
    dialogue = dialogues.Dialogue(_turns("s", "u1", "a1", "u2", "a2"), Letters(TEMPLATE), 1000)

    asked = _answered(dialogue, ["one", "two"])

    assert asked == [
        "<system>s<user>u1<assistant>",
        "<system>s<user>u1<assistant>one.<user>u2<assistant>",
    ]
    assert [turn["content"] for turn in dialogue.row()["messages"]] == [
        *("s", "u1", "one", "u2", "two")
    ]


@cases("a_question_is_what_stands_before_an_answer")
def test_a_question_is_what_stands_before_an_answer(
    dialogues: ModuleType, sample: dict[str, Any], questions: int, row: list[str]
) -> None:
    dialogue = dialogues.Dialogue(sample, Letters(TEMPLATE), 1000)

    assert len(_answered(dialogue, ["A", "B"])) == questions
    assert [turn["content"] for turn in dialogue.row()["messages"]] == row


def test_prompts_are_asked_as_they_were_sent_and_texts_are_not(dialogues: ModuleType) -> None:
    prompt = dialogues.Dialogue({"prompt": "1+1=", "completion": "3"}, Letters(TEMPLATE), 1000)
    text = dialogues.Dialogue({"text": "once"}, Letters(TEMPLATE), 1000)

    assert _answered(prompt, ["2"]) == ["^1+1="]
    assert prompt.row() == {"prompt": "1+1=", "completion": "2"}
    assert _answered(text, []) == []
    assert text.row() == {"text": "once"}


def test_a_model_without_a_template_is_asked_plainly(dialogues: ModuleType) -> None:
    dialogue = dialogues.Dialogue(_turns("u1", "a1"), Letters(None), 1000)

    assert _answered(dialogue, ["A"]) == ["^user: u1\nassistant:"]


def test_a_conversation_ends_before_what_is_too_long_or_refused(dialogues: ModuleType) -> None:
    long = dialogues.Dialogue(_turns("u1", "a1", "u" * 50, "a2"), Letters(TEMPLATE), 40)
    refused = dialogues.Dialogue(_turns("u1", "a1", "s2", "a2"), Letters(TEMPLATE), 1000)
    never = dialogues.Dialogue(_turns("u" * 50, "a1"), Letters(TEMPLATE), 40)
    silent = dialogues.Dialogue(_turns("u1", "a1"), Letters(TEMPLATE), 40)

    for dialogue in (long, refused):
        assert len(_answered(dialogue, ["A"])) == 1
        assert [turn["content"] for turn in dialogue.row()["messages"]] == ["u1", "A"]
        assert dialogue.cut
    assert _answered(never, []) == []
    assert never.row() is None
    assert _answered(silent, [""]) == ["<user>u1<assistant>"]
    assert silent.row() is None


def test_answers_fit_behind_their_questions(limits: ModuleType) -> None:
    bounds = limits.Limits(text=100, answer=30, context=4096)

    assert bounds.question == 92
    assert (bounds.room(92), bounds.room(50)) == (8, 30)


def test_the_longest_questions_are_answered_first(limits: ModuleType) -> None:
    bounds = limits.Limits(text=2000, answer=10, context=4096)

    assert bounds.groups({0: 5, 1: 0, 2: 9, 3: 5}) == [[2, 0, 3]]


def test_a_group_is_bounded_in_number_tokens_and_context(limits: ModuleType) -> None:
    many = limits.Limits(text=2000, answer=10, context=4096).groups(dict.fromkeys(range(130), 5))
    heavy = limits.Limits(text=9000, answer=192, context=9000).groups(dict.fromkeys(range(9), 4000))
    narrow = limits.Limits(text=100, answer=40, context=100).groups({0: 90, 1: 60, 2: 50})

    assert [len(group) for group in many] == [64, 64, 2]
    assert [len(group) for group in heavy] == [3, 3, 3]
    assert narrow == [[0], [1, 2]]  # the second would write beyond the context behind the first


def test_lines_stay(journal: ModuleType, tmp_path: Path) -> None:
    first = journal.Journal(tmp_path / "lines", "job")
    first.add({"rows": ["a\u2028b"]})
    first.add({"rows": []})

    assert journal.Journal(tmp_path / "lines", "job").lines == [
        {"rows": ["a\u2028b"]},
        {"rows": []},
    ]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-3],
        lambda data: data + b"0123456789",
        lambda data: data.replace(b"two", b"zwo"),
        lambda data: data + bytes(100) + b"\n",
    ],
    ids=["cut", "begun", "changed", "zeros"],
)
def test_what_follows_a_broken_line_is_written_again(
    journal: ModuleType, tmp_path: Path, spoil: Any
) -> None:
    place = tmp_path / "lines"
    first = journal.Journal(place, "job")
    first.add("one")
    first.add("two")
    whole = place.read_bytes()
    place.write_bytes(spoil(whole))

    again = journal.Journal(place, "job")
    for line in ("one", "two")[len(again.lines) :]:
        again.add(line)

    assert again.lines == ["one", "two"]
    assert place.read_bytes() == whole


def test_lines_of_another_job_are_not_taken(journal: ModuleType, tmp_path: Path) -> None:
    journal.Journal(tmp_path / "lines", "job").add("one")

    assert journal.Journal(tmp_path / "lines", "other job").lines == []
    assert journal.Journal(tmp_path / "lines", "job").lines == []


def test_samples_are_split_at_the_ends_of_lines_alone(tmp_path: Path) -> None:
    sample = {"text": "a\u2028b\u0085c\u2029d\x1ce"}
    (tmp_path / "train.jsonl").write_text(json.dumps(sample, ensure_ascii=False) + "\n")

    assert load_module("draft-heads", "rows.py").load_samples(tmp_path / "train.jsonl") == [sample]
