"""Messages of the event stream, as botocore reads them."""

from __future__ import annotations

import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer

from packager.addons.server.eventstream import LONGEST_PART, exception_message, payload_parts
from tests.support.cases import read_tables

TABLES = read_tables(__file__)


def read(data: bytes) -> list[tuple[dict[str, str], bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(message.headers, message.payload) for message in buffer]


def test_the_bytes_of_an_answer_are_one_event() -> None:
    (message,) = payload_parts(b"data: 1\n\n")

    assert read(message) == [(TABLES["event"], b"data: 1\n\n")]


def test_a_message_has_the_bytes_of_the_specification() -> None:
    (message,) = payload_parts(b"hi")

    assert message[:12].hex() == "0000006b00000059" + "99777065"
    assert len(message) == 0x6B


def test_large_answers_are_several_events_in_order() -> None:
    data = bytes(range(256)) * (LONGEST_PART // 128)

    messages = read(b"".join(payload_parts(data)))

    assert [len(payload) for _, payload in messages] == [65536, 65536]
    assert b"".join(payload for _, payload in messages) == data


def test_no_bytes_are_no_event() -> None:
    assert list(payload_parts(b"")) == []


def test_an_exception_is_told_with_its_type() -> None:
    message = exception_message(
        "ModelStreamError", {"Message": "lost", "ErrorCode": "StreamBroken"}
    )

    data = b'{"Message": "lost", "ErrorCode": "StreamBroken"}'
    assert read(message) == [(TABLES["exception"], data)]


@pytest.mark.parametrize("position", [0, 5, 9, 20, -6, -1])
def test_a_byte_that_was_changed_is_noticed(position: int) -> None:
    (message,) = payload_parts(b"data: 1\n\n")
    broken = bytearray(message)
    broken[position] ^= 1

    with pytest.raises(ChecksumMismatch):
        read(bytes(broken))
