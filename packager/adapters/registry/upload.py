"""One blob on its way into a registry, pushed piece by piece as it is read.

The bytes go out in a single streaming PATCH: the digest is wanted in the
closing PUT only, so it can be computed while they travel, and no registry
needs ranges for it.  Nothing is buffered or copied here.

A registry that refuses in the middle answers and closes.  We look for its
answer before each piece, and again when sending fails, because the answer
says why and the broken pipe does not.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from urllib3.util import wait_for_read

from packager.adapters.registry.auth import push
from packager.adapters.registry.client import RegistryClient
from packager.adapters.registry.failures import ContentMismatch, RefusedBySize, error_codes
from packager.adapters.registry.transport import (
    CONNECT_TIMEOUT_S,
    TRANSIENT,
    USER_AGENT,
)
from packager.core.units import decimal
from packager.errors import AccessDenied, PackagerError, Unavailable

STALL_TIMEOUT_S = 120.0  # for one piece to leave
ANSWER_TIMEOUT_S = 300.0  # for the registry to store the last of it
_FAREWELL_TIMEOUT_S = 5.0  # for the answer of a registry that has closed on us
_LONGEST_ERROR = 64 * 1024
_SESSION_LOST = frozenset({404, 409, 416})
_MEDIA_BLOB = "application/octet-stream"


class UploadInterrupted(Unavailable):
    """The blob did not arrive; sending all of it again may help."""

    def __init__(self, host: str, sent: int, size: int, reason: str) -> None:
        super().__init__(
            f"the upload to {host!r} broke off after {decimal(sent)} of {decimal(size)}: {reason}",
            hint="build again: finished layers are not sent again",
        )


class BlobUpload:
    """A `BlobWriter` for one upload that the registry has opened."""

    def __init__(
        self,
        client: RegistryClient,
        repository: str,
        address: str,
        size: int,
        *,
        on_sent: Callable[[int], None],
        on_commit: Callable[[str], None],
    ) -> None:
        self._client = client
        self._repository = repository
        self._address = address  # of the upload; the registry may move it with each answer
        self._size = size
        self._on_sent = on_sent
        self._on_commit = on_commit
        self._sent = 0
        self._connection: http.client.HTTPConnection | None = None
        self._authorization = ""

    def write(self, chunk: memoryview) -> None:
        """Send the next bytes."""
        connection = self._connection or self._open()
        try:
            answered = _has_answered(connection)
            if not answered:
                connection.send(chunk)
        except OSError as error:
            raise self._explained(connection, error) from error
        if answered:
            raise self._explained(connection)
        self._sent += len(chunk)
        self._on_sent(len(chunk))

    def commit(self, digest: str) -> None:
        """Close the upload. When the answer is lost, look whether the blob is there."""
        if self._sent != self._size:
            raise PackagerError(f"{self._sent} bytes were written for a blob of {self._size}")
        self._end_body()
        try:
            self._client.commit_upload(self._repository, self._address, digest)
        except (AccessDenied, ContentMismatch):
            raise
        except PackagerError as error:
            if self._client.head_blob(self._repository, digest) != self._size:
                raise self._interrupted(_reason(error)) from error
        self._on_commit(digest)

    def abort(self) -> None:
        """Drop the connection and cancel the upload, as far as the registry allows."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        with suppress(Exception):
            self._client.cancel_upload(self._repository, self._address)

    def _open(self) -> http.client.HTTPConnection:
        """Start the PATCH. Its token is asked for now: later it could not be renewed."""
        access = push(self._repository)
        self._authorization = self._client.authorization(self._address, access)
        connection = self._client.transport.connect(self._address, CONNECT_TIMEOUT_S)
        connection.auto_open = 0
        self._connection = connection
        try:
            connection.connect()
            connection.sock.settimeout(STALL_TIMEOUT_S)
            connection.putrequest("PATCH", _target(self._address), skip_accept_encoding=True)
            connection.putheader("User-Agent", USER_AGENT)
            connection.putheader("Content-Type", _MEDIA_BLOB)
            connection.putheader("Content-Length", str(self._size))
            if self._authorization:
                connection.putheader("Authorization", self._authorization)
            connection.endheaders()
        except (OSError, http.client.HTTPException) as error:
            raise self._interrupted(_reason(error)) from error
        return connection

    def _end_body(self) -> None:
        connection = self._connection or self._open()
        try:
            connection.sock.settimeout(ANSWER_TIMEOUT_S)
            response = connection.getresponse()
            if response.status not in (201, 202, 204):
                raise self._failure(response)
            response.read(_LONGEST_ERROR)
        except (OSError, http.client.HTTPException) as error:
            raise self._interrupted(_reason(error)) from error
        finally:
            connection.close()
            self._connection = None
        location = response.headers.get("Location")
        if location:
            self._address = self._client.resolve(self._address, location)

    def _explained(
        self, connection: http.client.HTTPConnection, error: OSError | None = None
    ) -> PackagerError:
        """The registry takes no more. It may have said why before it closed."""
        try:
            connection.sock.settimeout(_FAREWELL_TIMEOUT_S)
            return self._failure(connection.getresponse())
        except (OSError, http.client.HTTPException) as silence:
            return self._interrupted(_reason(error or silence))

    def _failure(self, response: http.client.HTTPResponse) -> PackagerError:
        """What an answer to the PATCH means: send again, or give up."""
        body = b""
        with suppress(OSError, http.client.HTTPException):
            body = response.read(_LONGEST_ERROR)
        access = push(self._repository)
        status = response.status
        if status == 413:
            return RefusedBySize(self._client.host, self._size)
        if status == 401:
            challenge = response.headers.get("WWW-Authenticate", "")
            try:
                if self._client.auth.answer(challenge, access, self._authorization):
                    return self._interrupted("the registry wants a new token")
            except PackagerError as error:
                return error
        if status in TRANSIENT or status in _SESSION_LOST or status < 300:
            return self._interrupted(f"the registry answered {status}{error_codes(body)}")
        return self._client.failure(
            status, body, access, f"the bytes of an upload to {self._repository!r}"
        )

    def _interrupted(self, reason: str) -> UploadInterrupted:
        return UploadInterrupted(self._client.host, self._sent, self._size, reason)


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _reason(error: Exception) -> str:
    match error:
        case PackagerError():
            return error.message
        case TimeoutError():
            return "time-out"
        case OSError(strerror=str() as reason):
            return reason.lower()
    return "the connection was cut"


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
        self.settimeout = sock.settimeout
        self.close = sock.close

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002
        """What `http.client` reads an answer from."""
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
