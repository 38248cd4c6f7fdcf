"""Which texts a head learns from, and which measure it."""

from __future__ import annotations

import pytest

from packager.core.errors import UsageError
from packager.core.growing import join_growing
from packager.core.samples import Message, Sample, Samples
from packager.core.training import TrainingReport, split_texts
from tests.support.cases import cases, read_tables

FIGURES = read_tables(__file__)["figures"]
ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def said(words: str) -> Sample:
    """Make a conversation of `role:content` or `role:content:reasoning`, tools behind a bar."""
    turns, _, tools = words.partition("|")
    parts = [turn.split(":") for turn in turns.split()]
    messages = (
        Message(role=ROLES[role], content=content, reasoning="".join(reasoning))
        for role, content, *reasoning in parts
    )
    return Sample(messages=tuple(messages), tools=tools.strip())


def texts(count: int, start: int = 0) -> Samples:
    found = tuple(Sample(text=f"text {start + number}") for number in range(count))
    return Samples(source="texts.jsonl", samples=found)


@pytest.mark.parametrize(("count", "aside"), [(2, 1), (8, 2), (40, 8), (100, 8), (1000, 50)])
def test_a_share_is_kept_aside_and_of_few_texts_some(count: int, aside: int) -> None:
    split = split_texts(texts(count), None, count=None, seed=0)

    assert len(split.held_out.samples) == aside
    assert len(split.train.samples) == count - aside
    assert not {*split.train.samples} & {*split.held_out.samples}


def test_the_same_texts_are_kept_aside_in_any_order() -> None:
    found = texts(50)
    turned = Samples(source="other.jsonl", samples=found.samples[::-1])

    one = split_texts(found, None, count=None, seed=1)
    other = split_texts(turned, None, count=None, seed=1)

    assert one.held_out.samples == other.held_out.samples
    assert one.held_out.samples != split_texts(found, None, count=None, seed=2).held_out.samples


def test_texts_of_their_own_measure_and_are_never_trained_on() -> None:
    others = texts(3)

    split = split_texts(texts(10), others, count=None, seed=0)

    assert split.held_out == others
    assert len(split.train.samples) == 7


@cases("growing")
def test_a_growing_conversation_is_one(given: list[str], kept: list[str]) -> None:
    assert list(join_growing(map(said, given))) == [*map(said, kept)]


def test_texts_and_prompts_never_grow() -> None:
    found = (Sample(text="one"), Sample(prompt="one"), Sample(text="one two"))

    assert join_growing(found) == found


def test_no_turn_of_a_conversation_that_is_measured_with_is_trained_on() -> None:
    branches = tuple(said(f"u:q{number} a:{answer}") for number in range(12) for answer in "xyz")
    found = Samples(source="chats.jsonl", samples=branches)

    split = split_texts(found, None, count=None, seed=0)
    given = split_texts(found, Samples(source="o", samples=(said("u:q3 a:w"),)), count=None, seed=0)

    begun = [{one.messages[0].content for one in part.samples} for part in (split.train,
             split.held_out)]  # fmt: skip
    assert not begun[0] & begun[1]
    assert len(split.held_out.samples) == 9  # 8 of 36, and what else its conversations have
    assert len(given.train.samples) == 33


def test_so_many_are_taken_as_asked_for() -> None:
    split = split_texts(texts(100), None, count=20, seed=0)

    assert len(split.train.samples) + len(split.held_out.samples) == 20


@pytest.mark.parametrize("others", [None, texts(1)])
def test_without_a_text_to_train_on_nothing_begins(others: Samples | None) -> None:
    with pytest.raises(UsageError, match="kept aside"):
        split_texts(texts(1), others, count=None, seed=0)


def test_a_report_of_tomorrow_is_read_and_one_without_figures_is_not() -> None:
    assert TrainingReport.model_validate({**FIGURES, "more": 1}).expected_length == 1.75
    with pytest.raises(ValueError, match="loss"):
        TrainingReport.model_validate({**FIGURES, "loss": float("nan")})
