"""Events of a stream, however the network cuts it into pieces."""

from __future__ import annotations

import pytest

from packager.load.events import DONE, EventReader, InvalidEvent


def events(*pieces: bytes, lines: bool = False) -> list[object]:
    reader = EventReader(lines=lines)
    found = [event for piece in pieces for event in reader.feed(piece)]
    return [*found, *reader.end()]


def test_several_events_of_one_read_are_told_apart() -> None:
    assert events(b'data: {"a": 1}\n\ndata: {"a": 2}\n\ndata: [DONE]\n\n') == [
        {"a": 1},
        {"a": 2},
        DONE,
    ]


def test_an_event_comes_whole_however_it_is_cut() -> None:
    stream = 'data: {"a": "zwölf"}\r\n\r\ndata:{"b": 2}\n\ndata: [DONE]'.encode()

    for cut in range(len(stream)):
        assert events(stream[:cut], stream[cut:]) == [{"a": "zwölf"}, {"b": 2}, DONE]
    assert events(*(bytes([byte]) for byte in stream)) == [{"a": "zwölf"}, {"b": 2}, DONE]


def test_an_event_is_given_as_soon_as_its_line_ends() -> None:
    reader = EventReader()

    assert list(reader.feed(b'data: {"a": 1}')) == []
    assert list(reader.feed(b"\n")) == [{"a": 1}]
    assert list(reader.feed(b"\n")) == []


def test_comments_ids_and_blank_lines_are_no_events() -> None:
    assert events(b": ping\n\n\nid: 5\nretry: 10\nevent: message\ndata: 7\n\n") == [7]


def test_events_need_no_blank_line_between_them() -> None:
    assert events(b'data: {"a": 1}\ndata: {"a": 2}\n') == [{"a": 1}, {"a": 2}]


def test_a_document_may_take_several_lines_of_data() -> None:
    assert events(b'data: {"a":\ndata: 1}\n\n') == [{"a": 1}]


def test_an_event_that_is_named_an_error_is_one() -> None:
    assert events(b"event: error\ndata: out of memory\n\ndata: {}\n\n") == [
        {"error": "out of memory"},
        {},
    ]


def test_lines_are_documents_where_the_server_says_so() -> None:
    assert events(b'{"a": 1}\n{"a"', b': 2}\n\n{"a": 3}', lines=True) == [
        {"a": 1},
        {"a": 2},
        {"a": 3},
    ]


@pytest.mark.parametrize(
    "stream",
    [
        b"data: nothing\n\n",
        b"data: {nothing}\n\n",
        b'data: {"a": 1',
        b"data: \xff\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"data: " + b"9" * 5000 + b"\n\n",
        b"data: {\n" * 100,
    ],
    ids=["words", "braces", "half", "not-utf-8", "deep", "long-number", "lines-without-end"],
)
def test_what_is_no_json_is_refused(stream: bytes) -> None:
    with pytest.raises(InvalidEvent, match="a chunk of its answer is not JSON"):
        events(stream)
