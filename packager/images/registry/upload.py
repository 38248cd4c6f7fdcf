"""Upload of one blob to a registry, pushed piece by piece while it is read.

The bytes go out in a single streaming PATCH wherever that works: only the closing PUT needs the
digest, so it is computed while they are sent, without ranges, buffers or copies.  As docker does,
it uses chunked encoding: such a body can be ended in order when the push is aborted, and
docker-registry cancels no upload that was cut off.

Other registries get several PATCHes that name their ranges, or one PUT of all
of it, which needs the digest beforehand: `forms` chooses.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from contextlib import suppress

from packager.core.errors import AccessDenied, NotFound, OutputFailed, PackagerError, Unavailable
from packager.core.events import ignore
from packager.core.ports import BlobWriter
from packager.core.registry import UploadForm
from packager.core.remote.refusals import find_refusal, read_error
from packager.core.units import MIB, decimal
from packager.images.oci import sha256
from packager.images.registry.auth import push
from packager.images.registry.body import BodyRequest, EarlyAnswer, Failures, read_answer
from packager.images.registry.client import COMMIT_TIMEOUT_S, RegistryClient
from packager.images.registry.failures import (
    ContentMismatch,
    ServiceLimited,
    UnexpectedAnswer,
    refused_by_size,
)
from packager.images.registry.leniency import CLOSE_UPLOAD, SENT
from packager.images.registry.moved_uploads import EARLY_S, MOST_MOVES, MOVED
from packager.images.registry.origins import commit_address, origin_of
from packager.images.registry.transport import ATTEMPTS, TRANSIENT, header_number, retry_after_s

STALL_TIMEOUT_S = 120.0  # for one piece to leave
ANSWER_TIMEOUT_S = 300.0  # for the registry to store the last of it
_SESSION_LOST = frozenset({404, 409, 416})
_MEDIA_BLOB = "application/octet-stream"
_LONGEST_HELD = 16 * MIB  # of a range, if it must be buffered to know its length


class UploadInterrupted(Unavailable):
    """The blob did not arrive; sending all of it again may help."""

    def __init__(self, host: str, sent: int, size: int | None, reason: str) -> None:
        whole = f" of {decimal(size)}" if size is not None else ""
        super().__init__(
            f"the upload to {host!r} broke off after {decimal(sent)}{whole}: {reason}",
            hint="build again: finished layers are not sent again",
        )


class BlobUpload(BlobWriter):
    """A `BlobWriter` for one upload that the registry has opened.

    `size` None: unknown until the last byte.  With a `digest` the
    blob can also go out in the closing PUT, and a small one does so first.  `digest_first` sends
    nothing before it is known.
    """

    def __init__(
        self,
        client: RegistryClient,
        repository: str,
        address: str,
        size: int | None,
        *,
        digest: str = "",
        digest_first: bool = False,
        is_small: bool = False,
        on_sent: Callable[[int], None],
        on_commit: Callable[[str], None],
    ) -> None:
        self._client = client
        self._repository = repository
        self._address = address  # of the upload; the registry may move it with each answer
        self._size = size
        self._digest = digest
        self._on_sent = on_sent
        self._on_commit = on_commit
        choose = client.forms.choose_small if is_small else client.forms.choose
        self._form: UploadForm = "put" if digest_first else choose(size)
        self._range_bytes = _range_bytes(client, size)
        self._range_end = 0
        self._body_length = size  # of the request
        self._held = bytearray()  # of a blob whose size is not known
        self._sent = 0
        self._request: BodyRequest | None = None
        self._kept: http.client.HTTPConnection | None = None  # for the next range
        self._authorization = ""
        self._goes_on = False  # at another address, in the next try

    @property
    def sent(self) -> int:
        """Bytes of the blob that have left."""
        return self._sent

    def write(self, chunk: memoryview) -> None:
        """Send the next bytes."""
        if self._waits_for_digest():
            return
        if self._form != "ranges":
            self._send(self._request or self._open(self._size), chunk)
        elif self._size is not None:
            self._send_in_ranges(chunk)
        else:
            self._held += chunk
            while len(self._held) > self._range_bytes:
                self._send_held(self._range_bytes)

    def commit(self, digest: str) -> None:
        """Close the upload. When the answer is lost, look whether the blob is there."""
        if self._waits_for_digest():
            raise self._interrupted("the registry wants to know the digest first")
        if self._held:
            self._send_held(len(self._held))
        if self._size is not None and self._sent != self._size:
            raise PackagerError(f"{self._sent} bytes were written for a blob of {self._size}")
        if self._form == "put":
            self._end_put(self._request or self._open(self._size), digest)
        else:
            if self._request or self._form == "stream":
                self._end_patch(self._request or self._open(self._size))
            self._end_upload(digest)
        self._drop_connections()
        self._client.forms.accept(self._form)
        self._on_commit(digest)

    def abort(self) -> None:
        """Drop the connection and cancel the upload, as far as the registry allows.

        docker-registry cancels nothing whose PATCH was cut off, so a PATCH that can
        end in order does.
        """
        with suppress(Exception):
            response = self._request.end_early() if self._request else None
            if response is not None:
                self._follow(response)
        self._drop_connections()
        if not self._goes_on:
            with suppress(Exception):
                self._client.cancel_upload(self._repository, self._address)

    def interrupt(self) -> None:
        """Abort a wait for the registry from another thread: the waiting call fails at once."""
        request = self._request
        if request is not None:
            request.interrupt()

    def _waits_for_digest(self) -> bool:
        """Whether sending has to wait for the next try, which knows the digest."""
        return self._form == "put" and not self._digest

    def _send_in_ranges(self, chunk: memoryview) -> None:
        assert self._size is not None
        while chunk:
            length = min(self._range_bytes, self._size - self._sent)
            if not (self._request or length):
                raise PackagerError(f"more bytes were written than a blob of {self._size} has")
            request = self._request or self._open(length)
            piece = chunk[: self._range_end - self._sent]
            self._send(request, piece)
            chunk = chunk[len(piece) :]
            if self._sent == self._range_end:
                self._end_patch(request)

    def _send_held(self, count: int) -> None:
        request = self._open(count)
        self._send(request, memoryview(bytes(self._held[:count])))
        del self._held[:count]
        self._end_patch(request)

    def _send(self, request: BodyRequest, chunk: memoryview) -> None:
        try:
            request.send(chunk)
        except EarlyAnswer:
            raise self._explained(request) from None
        except Failures as error:
            raise self._explained(request, error) from error
        self._sent += len(chunk)
        self._on_sent(len(chunk))

    def _open(self, length: int | None) -> BodyRequest:
        """Start a request; follow the redirect of a registry that has sent one before."""
        self._body_length = length
        for _ in range(MOST_MOVES):
            request = self._request = self._start(length)
            if not self._client.moved.is_likely(self._address) or not request.answers(EARLY_S):
                return request
            try:
                response = request.farewell()
            except Failures as error:
                raise self._broken(error) from error
            target = self._moved_to(response)
            if not target:
                raise self._failure(response)
            request.close()
            self._address = target
        raise UnexpectedAnswer(self._client.host, "an upload", f"more than {MOST_MOVES} redirects")

    def _start(self, length: int | None) -> BodyRequest:
        """Send the head of a request. Its token is requested now: it cannot be renewed later."""
        url = self._address
        if self._form == "put":
            url = commit_address(url, self._digest)
        access = push(self._repository)
        self._authorization = self._client.authorization(url, access, for_body=True)
        headers = {"Content-Type": _MEDIA_BLOB}
        if self._form == "ranges":
            assert length is not None
            self._range_end = self._sent + length
            headers["Content-Range"] = f"{self._sent}-{self._range_end - 1}"
        if self._authorization:
            headers["Authorization"] = self._authorization
        kept, self._kept = self._kept, None
        try:
            return BodyRequest(
                self._client.transport,
                "PUT" if self._form == "put" else "PATCH",
                url,
                headers,
                # HTTP's own chunks let it be ended in order, wherever it is.
                length if self._form != "stream" else None,
                stall_timeout_s=STALL_TIMEOUT_S,
                reuse=kept,
            )
        except Failures as error:
            raise self._interrupted(_reason(error)) from error

    def _moved_to(self, response: http.client.HTTPResponse) -> str:
        """Return where an answer sends the bytes that it did not take; "" where it does not."""
        location = response.headers.get("Location")
        if response.status not in MOVED or not location:
            return ""
        self._client.moved.add(self._address)
        return self._client.resolve(self._address, location)

    def _end_patch(self, request: BodyRequest) -> None:
        """Wait until the registry has received the body, and store the URL to continue at."""
        try:
            response = request.finish(ANSWER_TIMEOUT_S)
            if response.status not in SENT:
                raise self._failure(response)
            read_answer(response)
        except Failures as error:
            request.close()
            raise self._broken(error) from error
        except PackagerError:
            request.close()
            raise
        finally:
            self._request = None
        before = self._address
        self._follow(response)
        if self._form != "ranges":
            request.close()
            self._client.forms.accept(self._form)
            return
        if response.will_close or origin_of(before) != origin_of(self._address):
            request.close()
        else:
            self._kept = request.connection
        self._check_range(response)

    def _follow(self, response: http.client.HTTPResponse) -> None:
        location = response.headers.get("Location")
        if location:
            self._address = self._client.resolve(self._address, location)

    def _check_range(self, response: http.client.HTTPResponse) -> None:
        """Find out when the registry took a range for the whole blob, or lost a part of it."""
        finished = self._sent == self._size
        if response.status == 201 and not finished and self._client.forms.refuse("ranges", 405, ()):
            raise self._interrupted("the registry takes a range for all of it")
        last = header_number(response.headers.get("Range", "").rpartition("-")[2])
        if last is not None and last + 1 != self._sent:
            raise self._interrupted(f"the registry has {last + 1} bytes of it")

    def _end_put(self, request: BodyRequest, digest: str) -> None:
        try:
            response = request.finish(COMMIT_TIMEOUT_S)
        except Failures as error:
            if not self._client.has_blob(self._repository, digest, self._sent):
                raise self._broken(error) from error
            return
        is_moved = response.status in MOVED and "Location" in response.headers
        if response.status not in CLOSE_UPLOAD.taken or is_moved:
            raise self._failure(response)
        stored = response.headers.get("Docker-Content-Digest", "")
        try:
            self._client.settle_upload(
                self._repository, digest, self._sent, response.status, stored
            )
        except ServiceLimited:
            raise
        except Unavailable as error:
            raise self._interrupted(error.message) from error

    def _end_upload(self, digest: str) -> None:
        try:
            self._client.commit_upload(self._repository, self._address, digest, self._sent)
        except (AccessDenied, OutputFailed, ContentMismatch, ServiceLimited):
            raise
        except PackagerError as error:
            if self._client.has_blob(self._repository, digest, self._sent):
                return
            if isinstance(error, Unavailable | NotFound):
                raise self._interrupted(error.message, _wish_s(error)) from error
            raise

    def _explained(self, request: BodyRequest, error: Exception | None = None) -> PackagerError:
        """The registry stopped reading. It may have sent the reason before it closed."""
        try:
            return self._failure(request.farewell())
        except Failures as silence:
            return self._broken(error or silence)

    def _failure(self, response: http.client.HTTPResponse) -> PackagerError:
        """What an answer that takes no bytes means: send again, or give up."""
        try:
            target = self._moved_to(response)
        except PackagerError as unusable:
            return unusable
        if target:
            return self._goes_on_at(target)
        body = b""
        with suppress(*Failures):
            body = read_answer(response)
        access = push(self._repository)
        status, error = response.status, read_error(body)
        method = "PUT" if self._form == "put" else "PATCH"
        kind = self._client.kind_of(self._address)
        refusal = find_refusal(kind, method, status, error)
        is_final = refusal is not None and refusal.kind != "passing"
        if status == 413 and not is_final:
            if self._client.forms.refuse_length(self._body_length):
                return self._interrupted("the registry takes shorter bodies only (413)")
            return refused_by_size(self._client.host, self._size or self._sent)
        if status == 401 and not is_final and kind == "registry":
            challenge = response.headers.get("WWW-Authenticate", "")
            try:
                given = self._authorization
                if self._client.auth.answer(challenge, access, given, for_body=True):
                    return self._interrupted("the registry wants a new token")
            except PackagerError as denied:
                return denied
        if not is_final:
            if self._client.forms.refuse(self._form, status, error.codes):
                return self._interrupted(f"the registry does not take blobs like this ({status})")
            if refusal or status in TRANSIENT or status in _SESSION_LOST or status < 300:
                wish_s = retry_after_s(response.headers)
                return self._interrupted(f"the registry answered {status}{error.shown}", wish_s)
        what = f"the bytes of an upload to {self._repository!r}"
        return self._client.failure(status, body, access, what, method=method, url=self._address)

    def _goes_on_at(self, address: str) -> UploadInterrupted:
        """Keep the address for the next try, unless bytes of this one are there already."""
        if self._form != "ranges" or self._range_end == self._body_length:
            self._goes_on = True
            bound = self._digest if self._form == "put" else ""  # which stands in the address
            self._client.moved.keep(self._repository, bound, address)
        return self._interrupted("the registry wants its bytes at another address")

    def _broken(self, error: Exception) -> UploadInterrupted:
        """The connection broke while a body was sent, without a reason."""
        if not isinstance(error, TimeoutError):
            self._client.auth.doubt()
        return self._interrupted(_reason(error))

    def _interrupted(self, reason: str, wish_s: float = 0.0) -> UploadInterrupted:
        error = UploadInterrupted(self._client.host, self._sent, self._size, reason)
        error.retry_after_s = wish_s
        return error

    def _drop_connections(self) -> None:
        if self._request is not None:
            self._request.close()
            self._request = None
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _range_bytes(client: RegistryClient, size: int | None) -> int:
    chunk = client.forms.chunk_bytes()
    return chunk if size is not None else min(chunk, max(_LONGEST_HELD, client.forms.least_chunk()))


def put_blob(
    client: RegistryClient,
    repository: str,
    data: bytes,
    *,
    is_new: bool = False,
    on_sent: Callable[[int], None] = ignore,
) -> str:
    """Store a small blob, unless it is there; return its digest.

    One that `is_new` is sent without a look: storing it twice does no harm.
    """
    digest = sha256(data)
    for attempt in range(1, ATTEMPTS + 1):
        if (attempt > 1 or not is_new) and client.has_blob(repository, digest, len(data)):
            break
        upload = BlobUpload(
            client,
            repository,
            client.moved.take(repository, digest) or client.start_upload(repository),
            len(data),
            digest=digest,
            is_small=True,
            on_sent=on_sent,
            on_commit=ignore,
        )
        try:
            upload.write(memoryview(data))
            upload.commit(digest)
            break
        except UploadInterrupted as error:
            upload.abort()
            if attempt == ATTEMPTS:
                raise
            client.transport.pause(attempt, error.retry_after_s)
        except BaseException:
            upload.abort()
            raise
    return digest


def _wish_s(error: PackagerError) -> float:
    return error.retry_after_s if isinstance(error, Unavailable) else 0.0


def _reason(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "time-out"
        case OSError(strerror=str() as reason):
            return reason.lower()
    return "the connection was cut"
