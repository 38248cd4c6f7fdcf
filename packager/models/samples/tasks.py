"""Questions with right answers: files of them, and a set that is made here.

A row has `messages`, `question` or `prompt`, and `answer`: a text, a number, or a list of them.
GSM8K's rows are read as they are published: the answer is what follows `####`.  A `prompt` is
completed, the others are asked in a conversation.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from packager.core.errors import UsageError
from packager.core.samples import Message, Sample, Skipped
from packager.core.tasks import Task
from packager.models.samples.formats import NotASample, read_row
from packager.models.samples.load import BrokenSamples, read_rows
from packager.models.samples.turns import read_text

ARITHMETIC = "arithmetic"
QUESTIONS, MOST_MADE = 200, 10_000  # of a set that is made here
MOST_QUESTIONS = 100_000
_HOW = "Think step by step, and end with a line `#### ` and the answer alone."


def load_tasks(
    reference: str,
    count: int | None = None,
    *,
    download: Callable[[str, str, str | None], Path] | None = None,
) -> tuple[Task, ...]:
    """Read questions, the first `count` of them; raises `BrokenSamples` where a row is none."""
    if reference == ARITHMETIC:
        return arithmetic(min(count or QUESTIONS, MOST_MADE))
    found: list[Task] = []
    for place, row in read_rows(reference, download):
        if len(found) >= (count or MOST_QUESTIONS):
            break
        try:
            if isinstance(row, NotASample):
                raise row
            found.append(_task(row))
        except NotASample as why:
            raise BrokenSamples(
                reference, 1, Skipped(place=place, reason=str(why)), refused=True
            ) from why
    if not found:
        raise UsageError(
            f"{reference!r} holds no questions", hint="write rows of question and answer"
        )
    return tuple(found)


def arithmetic(count: int) -> tuple[Task, ...]:
    """Return sums, differences and products in words: the same ones everywhere."""
    draw = random.Random("arithmetic 1")
    kinds: tuple[tuple[str, Callable[[int, int], int]], ...] = (
        ("A shop has {a} boxes and gets {b} more. How many boxes are there?", operator.add),
        ("Of {a} seats {b} are taken. How many are free?", operator.sub),
        ("Each of {a} shelves holds {b} books. How many books are there?", operator.mul),
    )
    made: dict[str, Task] = {}
    while len(made) < count:
        text, right = kinds[len(made) % len(kinds)]
        first, second = draw.randint(30, 999), draw.randint(2, 29)
        question = f"{text.format(a=first, b=second)} {_HOW}"
        made[question] = Task(sample=_asked(question), answers=(str(right(first, second)),))
    return tuple(made.values())


def _task(row: object) -> Task:
    if not isinstance(row, Mapping) or "answer" not in row:
        raise NotASample("it has no field answer")
    answers = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
    right = tuple(_answer(one) for one in answers)
    if not right or not all(right):
        raise NotASample("its answer is empty")
    if "question" in row:
        return Task(sample=_asked(f"{read_text(row['question'], 'the question')} {_HOW}"),
                    answers=right)  # fmt: skip
    asked = {name: value for name, value in row.items() if name not in ("answer", "completion")}
    return Task(sample=read_row(asked)[1], answers=right)


def _answer(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise NotASample("its answer is neither a text nor a number")
    return read_text(str(value), "the answer").rpartition("####")[2].strip()


def _asked(question: str) -> Sample:
    return Sample(messages=(Message(role="user", content=question),))
