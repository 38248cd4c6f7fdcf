"""Asking a server that streams: what is taken from its answer, and what is a failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import urllib3

from packager.core.probes import ProbeResponse, probe_request
from packager.core.samples import Sample
from packager.errors import UsageError
from packager.serving.openai import BadAnswer, Server, _collected, _lines


def test_time_for_a_token_counts_tokens_and_not_chunks() -> None:
    answer = ProbeResponse(tokens=6, chunks=2, first_s=1.0, last_s=1.5)

    assert answer.tpot_s == 0.1
    assert ProbeResponse(tokens=1, chunks=1, first_s=1.0, last_s=1.0).tpot_s is None


def test_thoughts_are_text() -> None:
    thought = {"choices": [{"delta": {"reasoning_content": "hm "}}]}
    said = {"choices": [{"delta": {"content": "yes", "reasoning_content": None}}]}
    usage = {"choices": [], "usage": {"completion_tokens": 5}}

    answer = _collected(iter([thought, said, usage]), 0.0, iter([1.0, 2.0, 3.0]).__next__)

    assert (answer.text, answer.chunks, answer.first_s, answer.last_s) == ("hm yes", 2, 1.0, 2.0)


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"text": 5}]},
        {"choices": [{"text": ["a"]}]},
        {"choices": [{"delta": {"content": {"a": 1}}}]},
        {"choices": {"a": 1}},
        {"usage": {"completion_tokens": 10**400}},
        {"usage": {"completion_tokens": float("inf")}},
        {"usage": {"completion_tokens": -5}},
        {"usage": {"completion_tokens": "5"}},
        {"prompt_token_ids": [5, "6"]},
        {"prompt_token_ids": [5, -6]},
        {"choices": [{"prompt_token_ids": [True]}]},
    ],
)
def test_a_chunk_of_another_form_is_a_failure(chunk: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match="another form"):
        _collected(iter([chunk]), 0.0, lambda: 1.0)


class Pieces:
    """What comes of a connection."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def stream(self) -> Iterator[bytes]:
        return self._pieces


def test_lines_come_whole_however_they_are_cut() -> None:
    pieces = iter([b"one", b" line\ntwo\n\nthr", b"", b"ee", b"\n", b"end"])

    found = list(_lines(cast("urllib3.BaseHTTPResponse", Pieces(pieces))))

    assert found == [b"one line", b"two", b"", b"three", b"end"]


def test_a_line_that_does_not_end_is_not_kept_for_ever() -> None:
    endless = iter(lambda: bytes(2**20), b"")

    with pytest.raises(BadAnswer, match="does not end"):
        list(_lines(cast("urllib3.BaseHTTPResponse", Pieces(endless))))


@pytest.mark.parametrize("address", ["ftp://host", "http://", "http://host:port", "http://[::1"])
def test_an_address_that_is_none_is_refused_without_being_repeated(address: str) -> None:
    with pytest.raises(UsageError, match="the server's address") as caught:
        Server(address)

    assert address not in caught.value.message


def test_a_question_says_which_it_was() -> None:
    asked = probe_request(Sample(prompt="word " * 40), 4)

    assert asked.shown == f"…{'word ' * 12}".rstrip()
