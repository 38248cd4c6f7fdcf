"""Questions sent to servers, and whether their answers are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import urllib3

from packager.cli.serving.adapters import named_server
from packager.cli.serving.openai import BadAnswer
from packager.cli.serving.opening import MeasuredServer, Opener, OpenServer
from packager.core.capture.rows import join_stream
from packager.core.documents import NotStrict, parse_object
from packager.core.probes import probe_request
from packager.core.tasks import (
    Task,
    TaskOptions,
    TaskReport,
    TaskShare,
    is_right,
    judge,
    mcnemar,
    needed_questions,
    recovery_interval,
    wilson,
)

AT_ONCE = 8
_TELL_EVERY = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAnswer:
    """What a server said; None: nothing."""

    text: str | None
    is_cut: bool = False


def compare_on_tasks(
    base: MeasuredServer,
    candidate: MeasuredServer,
    tasks: Sequence[Task],
    asked: TaskOptions,
    opener: Opener,
    on_progress: Callable[[str], None],
) -> TaskReport:
    """Ask both servers all questions, one server after the other."""
    shown, answers = [], []
    for target, adapter in ((base, asked.base_adapter), (candidate, asked.adapter)):
        with opener.open(target) as opened:
            one = named_server(opened, adapter)
            shown.append(one.shown)
            answers.append(_ask_all(one, tasks, asked.task_tokens, on_progress))
    marks = [_marks(tasks, some) for some in answers]
    both = list(zip(*marks, strict=True))
    lost, gained = both.count((True, False)), both.count((False, True))
    shares = [_share(*of) for of in zip(shown, marks, answers, strict=True)]
    right = [one.right for one in shares]
    interval = recovery_interval(right[0], right[1], lost + gained)
    report = TaskReport(
        tasks=asked.tasks,
        questions=len(tasks),
        base=shares[0],
        candidate=shares[1],
        lost=lost,
        gained=gained,
        changed=sum(one.text != two.text for one, two in zip(*answers, strict=True)),
        p_value=mcnemar(lost, gained),
        recovery=right[1] / right[0] if right[0] else None,
        recovery_ci95=interval,
        min_recovery=asked.min_recovery,
        verdict=judge(interval, asked.min_recovery) if asked.min_recovery else None,
    )
    return report.model_copy(update={"questions_to_decide": needed_questions(report)})


def _ask_all(
    server: OpenServer, tasks: Sequence[Task], tokens: int, on_progress: Callable[[str], None]
) -> list[TaskAnswer]:
    found: list[TaskAnswer] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for answer in pool.map(lambda task: _ask(server, task, tokens), tasks):
            found.append(answer)
            if len(found) % _TELL_EVERY == 0:
                on_progress(f"{server.shown}: {len(found)} of {len(tasks)} questions")
    if all(one.text is None for one in found):
        raise server.failure(f"{server.shown!r} answered none of {len(tasks)} questions")
    return found


def _ask(server: OpenServer, task: Task, tokens: int) -> TaskAnswer:
    asked = probe_request(task.sample, tokens)
    body = {name: value for name, value in asked.body.items() if name != "stream_options"}
    named = {"model": server.model} if server.model else {}
    try:
        status, data = server.server.post(asked.endpoint, {**body, **named, "stream": False})
        if status != 200:
            return TaskAnswer(text=None)
        choice = _answer(data)["choices"][0]
        message = choice.get("message")
        text = message.get("content") if isinstance(message, dict) else choice.get("text")
    except (BadAnswer, NotStrict, KeyError, IndexError, TypeError, AttributeError,
            urllib3.exceptions.HTTPError):  # fmt: skip
        return TaskAnswer(text=None)
    is_cut = choice.get("finish_reason") == "length"
    return TaskAnswer(text=text if isinstance(text, str) else "", is_cut=is_cut)


def _answer(data: bytes) -> Mapping[str, Any]:
    """Parse an answer; some servers stream whatever they are asked for."""
    joined = None if data.lstrip().startswith(b"{") else join_stream(data)
    if joined is None:
        return parse_object(data)
    answer, is_whole = joined
    if not is_whole:
        raise BadAnswer("the answer broke off")
    return answer


def _marks(tasks: Sequence[Task], answers: Sequence[TaskAnswer]) -> list[bool]:
    return [
        answer.text is not None and is_right(answer.text, task.answers)
        for task, answer in zip(tasks, answers, strict=True)
    ]


def _share(shown: str, marks: Sequence[bool], answers: Sequence[TaskAnswer]) -> TaskShare:
    right = sum(marks)
    return TaskShare(
        server=shown,
        right=right,
        share=right / len(marks),
        share_ci95=wilson(right, len(marks)),
        cut=sum(one.is_cut for one in answers),
        failed=sum(one.text is None for one in answers),
    )
