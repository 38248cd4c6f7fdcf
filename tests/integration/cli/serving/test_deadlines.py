"""A request has one deadline, however the server uses the time until then."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import urllib3

from packager.cli.serving.openai import Server
from tests.support.doubles.hostile import HostileServer, Reply, reply

LIMIT_S = 0.5
WHOLE = reply(b"x" * 4096)


@pytest.mark.parametrize("form", ["silent", "drips a head", "drips a body", "100 without end"])
def test_an_answer_that_never_ends_is_given_up(form: str) -> None:
    def answer(_: object) -> Reply:
        return pieces()

    def pieces() -> Iterator[bytes]:
        if form == "100 without end":
            while True:
                yield b"HTTP/1.1 100 Continue\r\n\r\n" * 100
        head = WHOLE.index(b"\r\n\r\n") + 4
        at = {"silent": 0, "drips a head": 0, "drips a body": head}[form]
        yield WHOLE[:at]
        for letter in WHOLE[at:]:
            server.wait(LIMIT_S / 5 if form != "silent" else 60)
            yield bytes([letter])

    started = time.monotonic()
    with HostileServer(answer) as server, pytest.raises(urllib3.exceptions.HTTPError):
        Server(server.url, timeout_s=LIMIT_S).model()

    assert time.monotonic() - started < 60  # the drips would take minutes
