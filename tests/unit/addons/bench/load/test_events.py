"""Events of a stream, however the network cuts it into pieces."""

from __future__ import annotations

import pytest

from packager.addons.bench.load.events import DONE, EventReader, InvalidEvent
from tests.support.cases import cases


def read(*pieces: bytes, lines: bool = False) -> list[object]:
    reader = EventReader(lines=lines)
    return [*[event for piece in pieces for event in reader.feed(piece)], *reader.end()]


@cases("streams")
def test_a_stream_is_cut_into_events(
    pieces: tuple[str, ...], lines: bool | None, events: tuple[object, ...]
) -> None:
    found = read(*(piece.encode() for piece in pieces), lines=bool(lines))

    assert ["[DONE]" if one is DONE else one for one in found] == [*events]


def test_an_event_comes_whole_however_it_is_cut() -> None:
    stream = 'data: {"a": "zwölf"}\r\n\r\ndata:{"b": 2}\n\ndata: [DONE]'.encode()

    for cut in range(len(stream)):
        assert read(stream[:cut], stream[cut:]) == [{"a": "zwölf"}, {"b": 2}, DONE]
    assert read(*(bytes([byte]) for byte in stream)) == [{"a": "zwölf"}, {"b": 2}, DONE]


def test_an_event_is_given_as_soon_as_its_line_ends() -> None:
    reader = EventReader()

    assert list(reader.feed(b'data: {"a": 1}')) == []
    assert list(reader.feed(b"\n")) == [{"a": 1}]
    assert list(reader.feed(b"\n")) == []


@cases("what_is_no_json_is_refused")
def test_what_is_no_json_is_refused(stream: bytes) -> None:
    with pytest.raises(InvalidEvent, match="a chunk of its answer is not JSON"):
        read(stream)
