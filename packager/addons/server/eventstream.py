"""Messages of AWS's event stream encoding (`application/vnd.amazon.eventstream`).

A message is a prelude (total length, length of the headers, CRC of both), headers, a payload, and
the CRC of all before it; lengths and CRCs are big-endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping

CONTENT_TYPE = "application/vnd.amazon.eventstream"
LONGEST_PART = 64 * 1024  # bytes of a payload; readers take 16 MiB
_STRING = 7  # type of a header's value
_PRELUDE = struct.Struct("!II")
_CRC = struct.Struct("!I")


def payload_parts(data: bytes) -> Iterator[bytes]:
    """Yield messages that carry the bytes of an answer, in their order; none for no bytes."""
    headers = {
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
        ":message-type": "event",
    }
    for start in range(0, len(data), LONGEST_PART):
        yield encode_message(headers, data[start : start + LONGEST_PART])


def exception_message(kind: str, document: Mapping[str, str]) -> bytes:
    """Return the message of an exception, which ends the stream."""
    headers = {
        ":exception-type": kind,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return encode_message(headers, json.dumps(document).encode())


def encode_message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one message; header names have at most 255 bytes and values at most 32,767."""
    packed = b"".join(_header(name, value) for name, value in headers.items())
    total = _PRELUDE.size + _CRC.size + len(packed) + len(payload) + _CRC.size
    prelude = _PRELUDE.pack(total, len(packed))
    prelude += _CRC.pack(zlib.crc32(prelude))
    message = prelude + packed + payload
    return message + _CRC.pack(zlib.crc32(message))


def _header(name: str, value: str) -> bytes:
    data, text = name.encode(), value.encode()
    return bytes((len(data),)) + data + struct.pack("!BH", _STRING, len(text)) + text
