"""What pieces of an answer hold, and whether there were any."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.load.answers import AnswerFailed, AnswerReader
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


CHUNKS: dict[str, dict[str, Any]] = {
    "text": {"choices": [{"index": 0, "text": "a", "finish_reason": None, "token_ids": None}]},
    "content": chat(content="a"),
    "role": chat(role="assistant", content=""),
    "two choices": {"choices": [{"text": "a"}, {"text": "b"}]},
    "an end": {"choices": [{"text": "a", "finish_reason": "stop"}]},
    "usage": {"choices": [{"text": "a"}], "usage": {"completion_tokens": 7, "prompt_tokens": 3}},
    "tokens": {"choices": [{"text": "a", "token_ids": [4, 5]}]},
    "a prompt's tokens": {"prompt_token_ids": [1], "choices": [{"text": "a"}]},
    "a prompt's tokens in a choice": {"choices": [{"text": "a", "prompt_token_ids": [1, 2]}]},
    "thoughts": chat(reasoning_content="a"),
    "thoughts and words": chat(reasoning="a", content="b"),
    "a refusal": chat(refusal="a"),
    "a call": chat(tool_calls=[{"function": {"name": "f", "arguments": "{}"}}], content=None),
    "text and a delta": {"choices": [{"text": "a", "delta": {"content": "b"}}]},
    "no choices": {"choices": []},
    "a token of TGI": {"token": {"text": "a"}, "details": {"generated_tokens": 2}},
}


@pytest.mark.parametrize("event", CHUNKS.values(), ids=CHUNKS)
def test_a_chunk_is_the_same_in_one_read_and_in_many(event: dict[str, Any]) -> None:
    whole, pieces = AnswerReader("text/event-stream"), AnswerReader("text/event-stream")
    data = f"data: {json.dumps(event)}\n\n".encode()
    whole.feed(data, 1.0)
    for number in range(len(data)):
        pieces.feed(data[number : number + 1], 1.0)

    assert state_of(whole) == state_of(pieces)


def state_of(reader: AnswerReader) -> tuple[Any, ...]:
    counted = (reader.input_tokens, reader.output_tokens, reader.is_complete)
    return (reader.text, reader.chunks, reader.token_ids, reader.prompt_token_ids, counted)


@pytest.mark.parametrize(
    "event",
    [
        {"error": "out of memory"},
        {"choices": [{"text": 5}]},
        {"choices": [{"delta": {"content": 5}}]},
    ],
)
def test_a_chunk_that_is_none_is_refused_in_one_read(event: dict[str, Any]) -> None:
    with pytest.raises(AnswerFailed):
        read(event)


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
