"""Samples as questions: what is asked, and which cannot be."""

from __future__ import annotations

import pytest

from packager.core.probes import has_prompt, probe_request
from packager.core.samples import Message, Sample
from tests.support.cases import cases

SYSTEM, USER = Message(role="system", content="be kind"), Message(role="user", content="why?")
ANSWER = Message(role="assistant", content="because")


@cases("the_last_answer_is_not_asked")
def test_the_last_answer_is_not_asked(sample: Sample, endpoint: str, asked: object) -> None:
    question = probe_request(sample, 7)

    assert question.endpoint == endpoint
    assert question.body.get("messages", question.body.get("prompt")) == asked
    assert question.body["max_tokens"] == 7
    assert has_prompt(sample)


@pytest.mark.parametrize(
    "sample",
    [Sample(messages=(ANSWER,)), Sample(prompt=""), Sample(text="")],
    ids=["answer-alone", "empty-prompt", "empty-text"],
)
def test_what_leaves_nothing_to_ask_is_not_asked(sample: Sample) -> None:
    assert not has_prompt(sample)


def test_calls_and_tools_are_asked_as_openai_has_them() -> None:
    call = '[{"id": "c1", "type": "function", "function": {"name": "w", "arguments": {"a": 1}}}]'
    turns = (
        USER,
        Message(role="assistant", content="", tool_calls=call, reasoning="um"),
        Message(role="tool", content="5", tool_call_id="c1"),
    )

    body = probe_request(Sample(messages=turns, tools="[7]", template='{"a": 1}'), 7).body

    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert body["messages"][1]["reasoning"] == "um"
    assert body["messages"][2] == {"role": "tool", "content": "5", "tool_call_id": "c1"}
    assert (body["tools"], body["tool_choice"]) == ([7], "none")
    assert body["chat_template_kwargs"] == {"a": 1}
