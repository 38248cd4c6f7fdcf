"""HTTP request whose body is sent piece by piece while it is read.

A registry that refuses in the middle answers and closes.  We look for its
answer before each piece, and again when sending fails, because the answer
says why and the broken pipe does not.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from urllib3.util import wait_for_read

from packager.images.registry.connection_failures import CONNECT_TIMEOUT_S
from packager.images.registry.transport import USER_AGENT, Transport

_FAREWELL_TIMEOUT_S = 5.0  # for the answer of a registry that has closed on us
_END_TIMEOUT_S = 2.0
_LONGEST_ANSWER = 64 * 1024

Failures = (OSError, http.client.HTTPException, ValueError)  # of every method here


class EarlyAnswer(Exception):
    """The registry answered, or closed, before it had all bytes: see `BodyRequest.farewell`."""


class BodyRequest:
    """HTTP request on its own connection. `length` None: chunked transfer encoding."""

    def __init__(
        self,
        transport: Transport,
        method: str,
        url: str,
        headers: Mapping[str, str],
        length: int | None,
        *,
        stall_timeout_s: float,  # for one piece to leave
        reuse: http.client.HTTPConnection | None = None,
    ) -> None:
        self._in_chunks = length is None
        self._stall_timeout_s = stall_timeout_s
        if reuse is not None and wait_for_read(reuse.sock, timeout=0):
            reuse.close()  # closed meanwhile
            reuse = None
        self.connection = reuse or transport.connect(url, CONNECT_TIMEOUT_S)
        self.connection.auto_open = 0
        try:
            if reuse is None:
                self.connection.connect()
            _limit_sends(self.connection.sock, stall_timeout_s)
            self.connection.putrequest(method, _target(url), skip_accept_encoding=True)
            self.connection.putheader("User-Agent", USER_AGENT)
            if length is None:
                self.connection.putheader("Transfer-Encoding", "chunked")
            else:
                self.connection.putheader("Content-Length", str(length))
            for name, value in headers.items():
                self.connection.putheader(name, value)
            self.connection.endheaders()
        except BaseException:
            self.connection.close()
            raise

    def send(self, chunk: memoryview) -> None:
        """Send the next bytes without copying them."""
        if _has_answered(self.connection):
            raise EarlyAnswer
        parts = (b"%x\r\n" % len(chunk), chunk, b"\r\n") if self._in_chunks else (chunk,)
        if chunk:
            _send_together(self.connection, parts, self._stall_timeout_s)

    def finish(self, timeout_s: float) -> http.client.HTTPResponse:
        """Send the end of the body and return the response."""
        if self._in_chunks:
            limit_s = min(timeout_s, self._stall_timeout_s)
            _send_together(self.connection, (b"0\r\n\r\n",), limit_s)
        self.connection.sock.settimeout(timeout_s)
        return self.connection.getresponse()

    def answers(self, timeout_s: float) -> bool:
        """Wait for an answer to the head; return whether one has come, or the other side closed."""
        return wait_for_read(self.connection.sock, timeout=timeout_s)

    def farewell(self) -> http.client.HTTPResponse:
        """The answer of a registry that takes no more."""
        self.connection.sock.settimeout(_FAREWELL_TIMEOUT_S)
        return self.connection.getresponse()

    def close(self) -> None:
        """Drop the connection, whatever is on its way."""
        self.connection.close()

    def interrupt(self) -> None:
        """Make a `send` or `finish` in another thread fail at once. Never raises."""
        with suppress(Exception):
            # Of the plain socket: a TLS one would be left writing in the clear for a moment.
            socket.socket.shutdown(self.connection.sock, socket.SHUT_RDWR)

    def end_early(self) -> http.client.HTTPResponse | None:
        """End the body early where chunked encoding allows it.

        Never raises, returns within seconds.
        """
        with suppress(Exception):
            if self._in_chunks:
                self.connection.sock.settimeout(_END_TIMEOUT_S)
                return self.finish(_END_TIMEOUT_S)
        return None


def read_answer(response: http.client.HTTPResponse) -> bytes:
    """The body of an answer, as far as it is of interest."""
    return response.read(_LONGEST_ANSWER)


def _limit_sends(sock: socket.socket, timeout_s: float) -> None:
    """Limit how long a send may wait; over plain TCP by the system, which then sends all at once.

    A time-out of Python's makes the socket take what there is room for and no more: a piece left
    in several calls, with a wait, a lock of the interpreter and a wake-up of the registry for each.
    """
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(timeout_s)
        return
    sock.settimeout(None)
    seconds, rest = divmod(timeout_s, 1)
    limit = struct.pack("@ll", int(seconds), int(rest * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _send_together(
    connection: http.client.HTTPConnection, parts: Sequence[bytes | memoryview], timeout_s: float
) -> None:
    """Send all parts; over plain TCP in one call, which wakes the registry once and copies nothing.

    One call each woke it for a few bytes, twice a piece, and our threads waited for each other.
    """
    sock = connection.sock
    if not isinstance(sock, socket.socket) or isinstance(sock, ssl.SSLSocket):
        for part in parts:
            connection.send(part)
        return
    started = time.monotonic()
    try:
        sent = sock.sendmsg(parts)
    except BlockingIOError as error:  # the system's time limit is over
        raise TimeoutError from error
    left = [part for part in _after(parts, sent) if part]
    if not left:
        return
    timeout_s = started + timeout_s - time.monotonic()
    if timeout_s <= 0:
        raise TimeoutError
    before = sock.gettimeout()
    sock.settimeout(timeout_s)
    for part in left:
        sock.sendall(part)
    sock.settimeout(before)


def _after(parts: Sequence[bytes | memoryview], sent: int) -> Iterator[memoryview]:
    """Yield what is left of the parts when so many bytes of them were taken."""
    for part in parts:
        yield memoryview(part)[sent:]
        sent = max(0, sent - len(part))


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _has_answered(connection: http.client.HTTPConnection) -> bool:
    """Whether the registry answers, or has closed, before it has all bytes."""
    sock = connection.sock
    if not wait_for_read(sock, timeout=0):
        return False
    if not isinstance(sock, ssl.SSLSocket):
        return True
    # What waits may be a TLS session ticket; only reading tells, and takes a byte.
    timeout = sock.gettimeout()
    sock.settimeout(0)
    try:
        taken = sock.recv(1)
    except ssl.SSLWantReadError:
        return False
    finally:
        sock.settimeout(timeout)
    connection.sock = _Unread(sock, taken)
    return True


class _Unread:
    """A socket whose next byte was already taken."""

    def __init__(self, sock: socket.socket, taken: bytes) -> None:
        self._sock = sock
        self._taken = taken
        self.settimeout, self.gettimeout = sock.settimeout, sock.gettimeout
        self.close = sock.close

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002
        """Return the file that `http.client` reads a response from."""
        return io.BufferedReader(_Chained(self._taken, self._sock.makefile("rb", buffering=0)))


class _Chained(io.RawIOBase):
    def __init__(self, first: bytes, rest: socket.SocketIO) -> None:
        self._first = first
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._first:
            count = len(self._first)
            memoryview(buffer)[:count] = self._first
            self._first = b""
            return count
        return self._rest.readinto(buffer)
