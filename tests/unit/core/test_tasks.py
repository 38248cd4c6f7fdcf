"""Questions with right answers: what counts as right, and what the counts tell."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from packager.core.tasks import is_right, judge, mcnemar, recovery_interval, wilson
from packager.models.samples.tasks import arithmetic, load_tasks
from tests.support.cases import cases
from tests.support.known import known
from tests.support.refusals import raises_code


@cases("right")
def test_a_right_answer_is_seen(said: str, answers: list[str]) -> None:
    assert is_right(said, answers)


@cases("wrong")
def test_a_wrong_answer_is_seen(said: str, answers: list[str]) -> None:
    assert not is_right(said, answers)


def test_a_long_answer_of_numbers_is_read_at_once() -> None:
    assert is_right("9," * 2_000_000 + " #### 12", ["12"])


@cases("mcnemar")
def test_mcnemars_test_is_exact(lost: int, gained: int, chance: float) -> None:
    assert mcnemar(lost, gained) == pytest.approx(chance)


def test_intervals_are_those_of_wilson_and_of_paired_ratios() -> None:
    assert wilson(160, 200) == pytest.approx((0.7391, 0.8496), abs=1e-4)
    assert wilson(0, 10)[0] == 0.0
    interval = known(recovery_interval(160, 152, 12))
    assert math.sqrt(interval[0] * interval[1]) == pytest.approx(0.95)
    assert interval == pytest.approx((0.9087, 0.9931), abs=1e-3)


@cases("judged")
def test_only_a_whole_interval_decides(
    base: int, candidate: int, changed: int, least: float, verdict: str
) -> None:
    assert judge(recovery_interval(base, candidate, changed), least) == verdict


@cases("questions")
def test_rows_are_questions(row: dict[str, Any], answers: list[str], tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row) + "\n")

    (task,) = load_tasks(str(tmp_path / "tasks.jsonl"))

    asked = known(task.sample.messages[-1].content if task.sample.messages else task.sample.prompt)
    assert asked.startswith("2+2")
    assert list(task.answers) == answers


@cases("broken")
def test_what_is_no_question_is_refused(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row) + "\n")

    with pytest.raises(Exception, match=said):
        load_tasks(str(tmp_path / "tasks.jsonl"))


def test_the_set_that_is_made_is_the_same_everywhere() -> None:
    tasks = arithmetic(200)

    assert tasks[:3] == arithmetic(3)
    assert len({task.sample for task in tasks}) == 200
    assert [task.answers for task in tasks[:3]] == [("416",), ("747",), ("5004",)]
    assert "answer alone" in tasks[0].sample.messages[0].content


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("\n")

    with raises_code("UsageError"):
        load_tasks(str(tmp_path / "tasks.jsonl"))
