"""What pieces of an answer hold, and whether there were any."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.load.answers import AnswerReader
from packager.load.client import _asked_tokens


def read(*events: Any, content_type: str = "text/event-stream") -> AnswerReader:
    reader = AnswerReader(content_type)
    for at, event in enumerate(events):
        reader.feed(f"data: {json.dumps(event)}\n\n".encode(), float(at))
    return reader


def chat(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta}]}


def test_thoughts_are_told_from_the_answer() -> None:
    reader = read(
        chat(role="assistant", content=""),
        chat(reasoning_content="Let me"),
        chat(reasoning=" think"),
        chat(reasoning_content=".", content="4"),
        chat(content="2"),
        chat(tool_calls=[{"function": {"name": "add"}}]),
        {"choices": [{"text": "!"}]},
    )

    assert [(chunk.at_s, chunk.is_reasoning) for chunk in reader.chunks] == [
        (1.0, True),
        (2.0, True),
        (3.0, False),
        (4.0, False),
        (5.0, False),
        (6.0, False),
    ]


def test_a_whole_answer_is_not_streamed_whatever_was_asked_for() -> None:
    whole = AnswerReader("application/json")
    whole.feed(b'{"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]}', 1.0)

    assert not whole.is_streamed
    assert read(chat(content="42")).is_streamed


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6, "max_tokens": 5}, 6),
        ({"inputs": "x", "parameters": {"max_new_tokens": 7}}, 7),
        ({"parameters": "x"}, None),
        ({"max_tokens": None}, None),
        ({}, None),
    ],
)
def test_the_length_that_a_body_asks_for(body: dict[str, Any], expected: int | None) -> None:
    assert _asked_tokens(body) == expected
