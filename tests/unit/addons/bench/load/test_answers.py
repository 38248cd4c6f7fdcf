"""One answer, from its bytes: what counts as content, as its end, and as a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.addons.bench.load import answers
from packager.addons.bench.load.answers import AnswerFailed, AnswerReader
from packager.addons.bench.load.client import _asked_tokens
from tests.support.cases import cases

STREAM = "text/event-stream; charset=utf-8"


def read(*reads: bytes, kind: str = STREAM) -> AnswerReader:
    """Read an answer; the first read comes at 1 s, the next one at 2 s."""
    answer = AnswerReader(kind)
    for at_s, data in enumerate(reads, 1):
        answer.feed(data, float(at_s))
    answer.end(float(len(reads)))
    return answer


def events(*documents: str) -> bytes:
    return "".join(f"data: {one}\n\n" for one in documents).encode()


@cases("streams")
def test_a_stream_is_read(reads: tuple[tuple[str, ...], ...], found: dict[str, Any]) -> None:
    answer = read(*(events(*documents) for documents in reads))

    of_chunks = {
        name: [getattr(chunk, name) for chunk in answer.chunks]
        for name in ("at_s", "tokens", "is_reasoning")
    }
    ids = {name: [*getattr(answer, name)] for name in ("token_ids", "prompt_token_ids")}
    told = {name: getattr(answer, name, None) for name in found} | of_chunks | ids
    assert {name: told[name] for name in found} == found
    assert answer.is_streamed


def test_done_is_the_end_without_the_end_of_its_line() -> None:
    assert read(events('{"choices": [{"text": "a"}]}'), b"data: [DONE]").is_complete


def test_lmis_lines_are_read() -> None:
    lines = (
        b'{"token": {"id": [5], "text": "yes"}}\n{"token": {"text": "!"}, "generated_text": ""}\n'
    )

    answer = read(lines, kind="application/jsonlines")

    assert (answer.text, len(answer.chunks)) == ("yes!", 2)


@cases("whole")
def test_a_whole_answer_has_no_chunks(document: str, tokens: int | None) -> None:
    data = document.encode()

    answer = read(data[:5], data[5:], kind="application/json")

    assert (answer.text, answer.output_tokens, answer.chunks) == ("yes", tokens, [])
    assert not answer.is_streamed


def test_json_of_an_unnamed_kind_is_a_whole_answer() -> None:
    assert read(b'{"choices": [{"text": "a"}]}', kind="").text == "a"


@cases("invalid")
def test_a_chunk_of_another_form_is_invalid(chunk: str) -> None:
    with pytest.raises(AnswerFailed) as caught:
        read(events(chunk))

    assert caught.value.failure == "invalid"


@cases("unusable")
def test_the_unusable_counts_as_what_it_is(data: str, kind: str, failure: str, reason: str) -> None:
    with pytest.raises(AnswerFailed) as caught:
        read(data.encode(), kind=kind)

    assert caught.value.failure == failure
    assert reason in caught.value.reason


def test_an_answer_that_does_not_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST_ANSWER", 100)
    answer = AnswerReader(STREAM)
    answer.feed(b"x" * 100, 1.0)

    with pytest.raises(AnswerFailed, match="does not end"):
        answer.feed(b"x", 2.0)


@cases("chunks")
def test_a_chunk_is_the_same_in_one_read_and_in_many(event: str) -> None:
    whole, pieces = AnswerReader(STREAM), AnswerReader(STREAM)
    data = events(event)
    whole.feed(data, 1.0)
    for number in range(len(data)):
        pieces.feed(data[number : number + 1], 1.0)

    assert state_of(whole) == state_of(pieces)


def state_of(reader: AnswerReader) -> tuple[Any, ...]:
    counted = (reader.input_tokens, reader.output_tokens, reader.is_complete)
    return (reader.text, reader.chunks, reader.token_ids, reader.prompt_token_ids, counted)


@cases("lengths")
def test_the_length_that_a_body_asks_for(body: str, expected: int | None) -> None:
    assert _asked_tokens(json.loads(body)) == expected
