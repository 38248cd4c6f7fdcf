"""Every format has rows that are read and rows that are refused with a reason."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from packager.core.samples import Message, Sample
from packager.samples.formats import NotASample, read_row

ASKED = Message(role="user", content="What is OCI?")
ANSWERED = Message(role="assistant", content="A standard.")
CHAT = Sample(messages=(ASKED, ANSWERED))
MESSAGES = [
    {"role": "user", "content": "What is OCI?"},
    {"role": "assistant", "content": "A standard."},
]
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "A standard."}}]}
STREAM = (
    'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'
    'data: {"choices": [{"delta": {"content": "A "}}]}\n\n'
    'data: {"choices": [{"delta": {"content": "standard."}}]}\n\n'
    "data: [DONE]\n\n"
)
TGI_STREAM = (
    'data:{"token": {"text": "A "}}\n\ndata:{"token": {"text": "standard."}, "generated_text": "x"}'
)


def captured(request: object, answer: object = None, *, encoding: str = "BASE64") -> dict[str, Any]:
    def part(value: object, mode: str) -> dict[str, str]:
        data = value if isinstance(value, str) else json.dumps(value)
        if encoding == "BASE64":
            data = base64.b64encode(data.encode()).decode()
        return {"data": data, "encoding": encoding, "mode": mode}

    capture = {"endpointInput": part(request, "INPUT")}
    if answer is not None:
        capture["endpointOutput"] = part(answer, "OUTPUT")
    return {"captureData": capture, "eventMetadata": {"eventId": "1"}, "eventVersion": "0"}


GOOD = {
    "text": ({"text": "Once."}, "text", Sample(text="Once.")),
    "chat": ({"messages": MESSAGES}, "chat", CHAT),
    "chat in parts": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is OCI?"}]}]},
        "chat",
        Sample(messages=(ASKED,)),
    ),
    "chat request and response": (
        {"request": {"messages": MESSAGES[:1]}, "response": ANSWER},
        "chat",
        CHAT,
    ),
    "batch request and response": (
        {"custom_id": "7", "body": {"messages": MESSAGES[:1]}, "response": {"body": ANSWER}},
        "chat",
        CHAT,
    ),
    "sharegpt": (
        {
            "conversations": [
                {"from": "human", "value": "What is OCI?"},
                {"from": "gpt", "value": "A standard."},
            ]
        },
        "sharegpt",
        CHAT,
    ),
    "sharegpt with roles": ({"conversations": MESSAGES}, "sharegpt", CHAT),
    "completion": (
        {"prompt": "One, two,", "completion": " three"},
        "completions",
        Sample(prompt="One, two,", completion=" three"),
    ),
    "completion without an answer": (
        {"prompt": "One, two,"},
        "completions",
        Sample(prompt="One, two,"),
    ),
    "completion request and response": (
        {"request": {"prompt": "One,"}, "response": {"choices": [{"text": " two"}]}},
        "completions",
        Sample(prompt="One,", completion=" two"),
    ),
    "capture of a chat": (captured({"messages": MESSAGES[:1]}, ANSWER), "data-capture", CHAT),
    "capture in JSON": (
        captured({"messages": MESSAGES[:1]}, ANSWER, encoding="JSON"),
        "data-capture",
        CHAT,
    ),
    "capture of a stream": (
        captured({"messages": MESSAGES[:1], "stream": True}, STREAM),
        "data-capture",
        CHAT,
    ),
    "capture of a cut stream": (
        captured({"messages": MESSAGES[:1]}, 'data: {"choices": [{"del'),
        "data-capture",
        Sample(messages=(ASKED,)),
    ),
    "capture without an answer": (
        captured({"messages": MESSAGES[:1]}),
        "data-capture",
        Sample(messages=(ASKED,)),
    ),
    "capture of TGI": (
        captured({"inputs": "What is OCI?"}, [{"generated_text": "A standard."}]),
        "data-capture",
        Sample(prompt="What is OCI?", completion="A standard."),
    ),
    "capture of TGI's stream": (
        captured({"inputs": "What is OCI?"}, TGI_STREAM),
        "data-capture",
        Sample(prompt="What is OCI?", completion="A standard."),
    ),
}

BROKEN = {
    "no object": ([1], "not a JSON object"),
    "no field": ({"answer": "42"}, "none of the fields"),
    "empty text": ({"text": "  "}, "text is empty"),
    "half a surrogate pair": ({"text": "\ud800"}, "surrogate"),
    "messages as text": ({"messages": "Hello"}, "not a list of turns"),
    "no turns": ({"messages": []}, "not a list of turns"),
    "no user": ({"messages": MESSAGES[1:]}, "no user turn"),
    "unknown role": ({"messages": [{"role": "ghost", "content": "Boo"}]}, "unknown role"),
    "turn is a text": ({"messages": ["Hello"]}, "a turn is not"),
    "picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "something else than text",
    ),
    "turn without content": ({"conversations": [{"from": "human"}]}, "not a text"),
    "sharegpt as object": ({"conversations": {"from": "human"}}, "not a list of turns"),
    "prompt in a list": ({"prompt": ["a", "b"], "completion": "c"}, "the prompt is not a text"),
    "completion is a number": ({"prompt": "a", "completion": 3}, "the completion is not a text"),
    "request is unknown": ({"request": {"image": "x"}}, "none of messages, prompt and inputs"),
    "capture without input": ({"captureData": {}}, "no endpointInput"),
    "capture without data": ({"captureData": {"endpointInput": {}}}, "no data"),
    "capture is no BASE64": (
        {"captureData": {"endpointInput": {"data": "{}", "encoding": "BASE64"}}},
        "not BASE64",
    ),
    "capture of text": (captured("a,b,c", encoding="CSV"), "not a JSON object"),
}


@pytest.mark.parametrize(("row", "name", "sample"), GOOD.values(), ids=GOOD)
def test_a_row_is_read(row: object, name: str, sample: Sample) -> None:
    assert read_row(row) == (name, sample)


@pytest.mark.parametrize(("row", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_row_says_why(row: object, reason: str) -> None:
    with pytest.raises(NotASample, match=reason):
        read_row(row)


@pytest.mark.parametrize("case", ["chat", "capture of TGI", "completion"])
def test_an_answer_is_recognised(case: str) -> None:
    assert GOOD[case][2].answered


@pytest.mark.parametrize("case", ["capture without an answer", "completion without an answer"])
def test_a_missing_answer_is_recognised(case: str) -> None:
    assert not GOOD[case][2].answered
