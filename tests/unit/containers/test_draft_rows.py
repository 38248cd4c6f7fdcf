"""Which tokens of samples a head learns to predict, and the figures of how well it does."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.cases import cases, read_tables
from tests.support.letters import Letters
from tests.support.worker_modules import load_module

TABLES = read_tables(__file__)
TEMPLATES = TABLES["templates"]


class Pairs(Letters):
    """A tokenizer whose tokens are pairs of characters, from the front; the last may be one."""

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[Any]]:
        opening = [self.bos_token_id] if add_special_tokens else []
        return {"input_ids": opening + [text[at : at + 2] for at in range(0, len(text), 2)]}


@pytest.fixture(scope="module")
def rows() -> ModuleType:
    return load_module("draft-heads", "rows.py")


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    return load_module("draft-heads", "figures.py")


def shown(row: Any) -> tuple[str, str]:
    """Give a row's text, and the same with what was not answered blotted out."""
    text = "".join(map(chr, row.ids))
    marked = (
        letter if answered else "-" for letter, answered in zip(text, row.answered, strict=True)
    )
    return text, "".join(marked)


@cases("rows")
def test_what_a_model_would_have_written_counts(
    sample: dict[str, Any],
    template: str,
    text: str | list[str],
    answered: str | list[str],
    rows: ModuleType,
) -> None:
    found = rows.to_rows(sample, Letters(TEMPLATES.get(template)), 199)

    texts, marked = ([one] if isinstance(one, str) else one for one in (text, answered))
    assert [shown(row) for row in found] == list(zip(texts, marked, strict=True))


@pytest.mark.parametrize(
    ("prompt", "tokens"), [("abcd", ["ab", "cd", "xy", "z"]), ("abc", ["ab", "c", "xy", "z"])]
)
def test_no_token_is_half_question_half_answer(
    prompt: str, tokens: list[str], rows: ModuleType
) -> None:
    (found,) = rows.to_rows({"prompt": prompt, "completion": "xyz"}, Pairs(None), 99)

    assert found.ids == [ord("^"), *tokens]
    assert found.answered == [False] * 3 + [True] * 2


def test_a_text_that_begins_with_bos_has_it_once(rows: ModuleType) -> None:
    assert [*map(shown, rows.to_rows({"text": "^hi"}, Letters(None), 99))] == [("^hi", "^hi")]


def test_texts_are_cut_and_those_without_an_answer_left_out(
    rows: ModuleType, tmp_path: Path
) -> None:
    samples = [{"text": "abcdef"}, {"prompt": "long question", "completion": "a"}, {"text": ""}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))

    found = rows.load_rows(tmp_path / "train.jsonl", Letters(TEMPLATES["NESTING"]), 5)

    assert [shown(row) for row in found] == [("^abcd", "^abcd")]


@pytest.mark.parametrize("missing", ["train.jsonl", "held-out.jsonl"])
def test_a_set_without_an_answer_is_refused(missing: str, rows: ModuleType, tmp_path: Path) -> None:
    for name in ("train.jsonl", "held-out.jsonl"):
        sample = {"prompt": "no answer"} if name == missing else {"text": "some"}
        (tmp_path / name).write_text(json.dumps(sample) + "\n")

    with pytest.raises(Exception, match=r"no .*sample .*has an answered token") as refused:
        rows.load_both(tmp_path, Letters(TEMPLATES["NESTING"]), 64)

    assert refused.type.__name__ == "Rejected"


def test_a_file_of_samples_that_is_broken_is_named(rows: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{")

    with pytest.raises(Exception, match=r"train\.jsonl cannot be read") as refused:
        rows.load_both(tmp_path, Letters(TEMPLATES["NESTING"]), 64)

    assert refused.type.__name__ == "BadInput"


def test_a_token_that_the_model_does_not_know_is_refused(rows: ModuleType) -> None:
    found = [rows.Row([1, 2, 3], [True] * 3), rows.Row([4], [True])]
    rows.check_ids(found, 5)

    with pytest.raises(Exception, match="gives token 4, the model knows 4"):
        rows.check_ids(found, 4)


@cases("texts_are_kept_together_up_to_a_size")
def test_texts_are_kept_together_up_to_a_size(
    lengths: list[int], most: int, expected: list[list[int]], rows: ModuleType
) -> None:
    found = [rows.Row([0] * length, [True] * length) for length in lengths]

    assert [[len(row.ids) for row in group] for group in rows.groups(found, most)] == expected


def test_figures_are_means_over_all_texts(figures: ModuleType) -> None:
    tally = figures.Tally()
    tally.add(positions=3, accepted=[3, 1], loss_sums=[6.0, 8.0], loss_counts=[4, 4])
    tally.add(positions=1, accepted=[0, 0], loss_sums=[2.0, 0.0], loss_counts=[4, 0])

    assert tally.loss == (8 / 8 + 8 / 4) / 2
    assert tally.acceptance == [3 / 4, 1 / 4]
    assert tally.expected_length == 2.0


def test_the_report_counts_what_was_trained_on_and_measured(
    rows: ModuleType, figures: ModuleType
) -> None:
    before, after = figures.Tally(), figures.Tally()
    before.add(positions=3, accepted=[0], loss_sums=[9.0], loss_counts=[3])
    after.add(positions=3, accepted=[2], loss_sums=[3.0], loss_counts=[3])
    row = rows.Row([1, 2, 3, 4], [True, True, False, True])

    report = figures.report(
        "medusa",
        rows=[row, row],
        held_out=[row],
        epochs=2,
        steps=7,
        kept=5,
        before=before,
        after=after,
    )

    assert report == TABLES["report"]
