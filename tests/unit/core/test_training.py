"""Which texts a head learns from, and which measure it."""

from __future__ import annotations

import pytest

from packager.core.errors import UsageError
from packager.core.samples import Sample, Samples
from packager.core.training import TrainingReport, split_texts
from tests.support.cases import read_tables

FIGURES = read_tables(__file__)["figures"]


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

    assert split.held_out is others
    assert len(split.train.samples) == 7


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
