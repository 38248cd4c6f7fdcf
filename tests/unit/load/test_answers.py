"""One answer, from its bytes: what counts as content, as its end, and as a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.load import answers
from packager.load.answers import AnswerFailed, AnswerReader
from packager.load.values import Chunk

STREAM = "text/event-stream; charset=utf-8"


def read(*reads: bytes, kind: str = STREAM) -> AnswerReader:
    """Read an answer; the first read comes at 1 s, the next one at 2 s."""
    answer = AnswerReader(kind)
    for at_s, data in enumerate(reads, 1):
        answer.feed(data, float(at_s))
    answer.end(float(len(reads)))
    return answer


def event(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def said(delta: dict[str, Any], **more: Any) -> bytes:
    return event({"choices": [{"delta": delta, **more}]})


DONE = b"data: [DONE]\n\n"


def test_chunks_count_from_the_first_content() -> None:
    """The role, an empty delta and the usage are none of it."""
    answer = read(
        said({"role": "assistant", "content": ""}),
        said({}),
        said({"content": "yes"}),
        said({"content": ""}, finish_reason="stop"),
        event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}),
        DONE,
    )

    assert answer.chunks == [Chunk(at_s=3.0)]
    assert (answer.text, answer.input_tokens, answer.output_tokens) == ("yes", 5, 2)


def test_chunks_of_one_read_have_its_time() -> None:
    answer = read(said({"content": "a"}) + said({"content": "b"}), said({"content": "c"}) + DONE)

    assert [chunk.at_s for chunk in answer.chunks] == [1.0, 1.0, 2.0]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_are_content(name: str) -> None:
    answer = read(said({name: "hm "}), said({"content": "yes", name: None}), DONE)

    assert (answer.text, len(answer.chunks)) == ("hm yes", 2)


def test_calls_of_tools_are_content() -> None:
    call = {"function": {"name": "look", "arguments": '{"a"'}}
    rest = {"function": {"arguments": ": 1}"}}

    answer = read(said({"tool_calls": [call]}), said({"tool_calls": [rest]}), DONE)

    assert (answer.text, len(answer.chunks)) == ('look{"a": 1}', 2)


def test_tokens_so_far_are_kept_where_every_chunk_tells_them() -> None:
    first = {"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}}
    second = {"choices": [{"text": "bcd"}], "usage": {"completion_tokens": 4}}

    answer = read(event(first), event(second), DONE)

    assert answer.chunks == [Chunk(at_s=1.0, tokens=1), Chunk(at_s=2.0, tokens=4)]
    assert answer.output_tokens == 4


def test_numbers_of_tokens_are_counted_too() -> None:
    first = {"choices": [{"text": "a", "token_ids": [7], "prompt_token_ids": [1, 2]}]}
    second = {"choices": [{"text": "bc", "token_ids": [8, 9]}]}

    answer = read(event(first), event(second), DONE)

    assert (answer.token_ids, answer.prompt_token_ids) == ((7, 8, 9), (1, 2))
    assert [chunk.tokens for chunk in answer.chunks] == [1, 3]


def test_reasoning_tokens_are_told_apart() -> None:
    usage = {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}

    answer = read(event({"choices": [], "usage": usage}), DONE)

    assert (answer.output_tokens, answer.reasoning_tokens) == (9, 4)


@pytest.mark.parametrize(
    "end", [DONE, b"data: [DONE]", said({}, finish_reason="length")], ids=["done", "cut", "reason"]
)
def test_done_or_a_finish_reason_is_the_end(end: bytes) -> None:
    assert read(said({"content": "a"}), end).is_complete


def test_a_stream_without_an_end_was_cut() -> None:
    with pytest.raises(AnswerFailed, match="its answer has no end") as caught:
        read(said({"content": "a"}))

    assert caught.value.failure == "cut"


def test_tgis_tokens_are_read() -> None:
    first = {"token": {"id": 5, "text": "yes", "special": False}, "generated_text": None}
    details = {"finish_reason": "eos_token", "generated_tokens": 2, "input_length": 7}
    last = {"token": {"text": "</s>", "special": True}, "generated_text": "yes", "details": details}

    answer = read(event(first), event(last))

    assert (answer.text, answer.output_tokens, answer.input_tokens) == ("yes", 2, 7)
    assert answer.chunks == [Chunk(at_s=1.0)]


def test_lmis_lines_are_read() -> None:
    lines = (
        b'{"token": {"id": [5], "text": "yes"}}\n{"token": {"text": "!"}, "generated_text": ""}\n'
    )

    answer = read(lines, kind="application/jsonlines")

    assert (answer.text, len(answer.chunks)) == ("yes!", 2)


@pytest.mark.parametrize(
    ("document", "text", "tokens"),
    [
        (
            {"choices": [{"message": {"content": "yes"}}], "usage": {"completion_tokens": 3}},
            "yes",
            3,
        ),
        ({"choices": [{"text": "yes"}]}, "yes", None),
        ([{"generated_text": "yes", "details": {"generated_tokens": 3}}], "yes", 3),
        ({"generated_text": "yes"}, "yes", None),
    ],
    ids=["chat", "completion", "tgi", "lmi"],
)
def test_a_whole_answer_has_no_chunks(document: Any, text: str, tokens: int | None) -> None:
    data = json.dumps(document).encode()

    answer = read(data[:5], data[5:], kind="application/json")

    assert (answer.text, answer.output_tokens, answer.chunks) == (text, tokens, [])


def test_json_of_an_unnamed_kind_is_a_whole_answer() -> None:
    assert read(b'{"choices": [{"text": "a"}]}', kind="").text == "a"


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"text": 5}]},
        {"choices": [{"text": ["a"]}]},
        {"choices": [{"delta": {"content": {"a": 1}}}]},
        {"choices": [{"delta": {"tool_calls": [5]}}]},
        {"choices": {"a": 1}},
        {"choices": 5},
        {"usage": {"completion_tokens": 10**400}},
        {"usage": {"completion_tokens": float("inf")}},
        {"usage": {"completion_tokens": -5}},
        {"usage": {"completion_tokens": "5"}},
        {"usage": 5},
        {"choices": [], "prompt_token_ids": [5, "6"]},
        {"choices": [], "prompt_token_ids": [5, -6]},
        {"choices": [{"prompt_token_ids": [True]}]},
        {"token": 5},
    ],
)
def test_a_chunk_of_another_form_is_invalid(chunk: dict[str, Any]) -> None:
    with pytest.raises(AnswerFailed) as caught:
        read(event(chunk))

    assert caught.value.failure == "invalid"


@pytest.mark.parametrize(
    ("data", "kind", "failure", "reason"),
    [
        (b"data: [1]\n\n", STREAM, "invalid", "a chunk of its answer is not an object"),
        (b'data: {"error": "no"}\n\n', STREAM, "server", 'it broke off: "no"'),
        (b"{", "application/json", "invalid", "its answer is not JSON"),
        (b"5", "application/json", "invalid", "its answer has another form than OpenAI's"),
        (b'{"a": 1}', "application/json", "invalid", "another form than OpenAI's"),
        (b'{"error": {"code": 5}}', "application/json", "server", 'it broke off: {"code": 5}'),
        (b"<html>", "text/html", "invalid", "its answer is text/html"),
        (b"", "", "invalid", "its answer is nothing"),
        (b"", STREAM, "cut", "its answer has no end"),
    ],
)
def test_what_cannot_be_used_counts_as_what_it_is(
    data: bytes, kind: str, failure: str, reason: str
) -> None:
    with pytest.raises(AnswerFailed) as caught:
        read(data, kind=kind)

    assert caught.value.failure == failure
    assert reason in caught.value.reason


def test_an_answer_that_does_not_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST_ANSWER", 100)
    answer = AnswerReader(STREAM)
    answer.feed(b"x" * 100, 1.0)

    with pytest.raises(AnswerFailed, match="does not end"):
        answer.feed(b"x", 2.0)


def test_half_of_a_surrogate_pair_can_be_written_to_a_file() -> None:
    whole = read(said({"content": "\ud83d"}), said({"content": "\ude00"}), DONE)
    half = read(said({"content": "a\ud83d"}), DONE)

    assert (whole.text, half.text) == ("\U0001f600", "a�")
