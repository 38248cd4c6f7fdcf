"""Answers that come slower than a network can be."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest

from artifact_cache.timely import PIECE, TimelyResponse

PATIENCE_S = 0.3
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


def answer_of(said: bytes) -> tuple[TimelyResponse, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    theirs.sendall(said)
    with ours:  # the answer keeps it open
        return TimelyResponse(ours, method="GET"), theirs


def test_an_answer_is_read() -> None:
    answer, theirs = answer_of(HEAD % 5 + b"hello")
    with theirs:
        answer.begin()

        assert (answer.status, answer.read()) == (200, b"hello")


def test_a_large_answer_may_take_as_long_as_it_moves() -> None:
    answer, theirs = answer_of(HEAD % (3 * PIECE))
    started = time.monotonic()
    with theirs:
        answer.begin()
        for _ in range(3):
            time.sleep(0.2)  # the reader is slow; that is nobody's fault
            theirs.sendall(bytes(PIECE))
            assert answer.read(PIECE) == bytes(PIECE)

    assert time.monotonic() - started > 2 * PATIENCE_S


def test_the_wait_for_the_head_is_not_of_the_first_piece() -> None:
    answer, theirs = answer_of(b"")
    with theirs:
        for part in (HEAD % 5, b"hello"):
            late = threading.Timer(0.2, theirs.sendall, (part,))
            late.start()
            answer.begin() if part != b"hello" else None
            late.join()

        assert answer.read() == b"hello"


def test_a_byte_now_and_then_is_no_answer() -> None:
    answer, theirs = answer_of(HEAD % 1000)
    dribble = threading.Thread(target=send_slowly, args=(theirs, 1000, 0.02))
    started = time.monotonic()
    with theirs:
        answer.begin()
        dribble.start()
        with pytest.raises(TimeoutError):
            answer.read()
        answer.close()
        dribble.join()

    assert PATIENCE_S <= time.monotonic() - started < 15


def test_silence_is_no_answer() -> None:
    answer, theirs = answer_of(b"HTTP/1.1 200")
    with theirs, pytest.raises(TimeoutError):
        answer.begin()


def send_slowly(sock: socket.socket, count: int, pause_s: float) -> None:
    with suppress(OSError):
        for _ in range(count):
            sock.sendall(b".")
            time.sleep(pause_s)
