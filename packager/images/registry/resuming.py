"""Answers whose body broke off: taken up where they broke, as far as a registry can."""

from __future__ import annotations

import re
from collections.abc import Callable

from packager.images.registry.failures import RegistryUnreachable, UnexpectedAnswer
from packager.images.registry.transport import ATTEMPTS, Response, header_number

_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-\d{1,19}/(\d{1,19}|\*)", re.ASCII)


def read_whole(
    ask: Callable[[int], Response], limit: int, pause: Callable[[int], None], host: str
) -> tuple[Response, bytes]:
    """Return the last answer and a small document; `ask` gets the number of bytes received.

    An answer of 206 continues there; one of 200 begins again.  Raises `RegistryUnreachable` after
    `ATTEMPTS` bodies that broke off, and `UnexpectedAnswer` for another range or above `limit`.
    """
    data = bytearray()
    for attempt in range(1, ATTEMPTS + 1):
        answer = ask(len(data))
        if answer.status == 206:
            range_start(answer, len(data), host)
        else:
            data.clear()
        try:
            answer.read_into(data, limit)
            return answer, bytes(data)
        except RegistryUnreachable as failure:
            answer.close()
            if attempt == ATTEMPTS or not failure.transient:
                raise
            pause(attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def whole_size(answer: Response) -> int | None:
    """Return the whole size of the document that an answer is a part of; None if not stated."""
    if answer.status == 200:
        return header_number(answer.headers.get("Content-Length", ""))
    return header_number(answer.headers.get("Content-Range", "").rpartition("/")[2])


def range_start(answer: Response, offset: int, host: str) -> tuple[int, int | None]:
    """Return how many bytes of the response to skip, and the size of the whole blob."""
    if answer.status == 200:
        return offset, header_number(answer.headers.get("Content-Length", ""))
    found = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
    if not found or int(found[1]) != offset:
        raise UnexpectedAnswer(host, f"bytes from {offset}", "with another range")
    return 0, int(found[2]) if found[2] != "*" else None
