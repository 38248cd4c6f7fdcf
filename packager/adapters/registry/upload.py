"""One blob on its way into a registry, pushed piece by piece as it is read.

The bytes go out in a single streaming PATCH wherever that works: the digest is
wanted in the closing PUT only, so it can be computed while they travel, and no
registry needs ranges for it.  Nothing is buffered or copied then.

Other registries get several PATCHes that name their ranges, or one PUT of all
of it, which needs the digest beforehand: `forms` chooses.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from contextlib import suppress

from packager.adapters.registry.auth import push
from packager.adapters.registry.body import BodyRequest, EarlyAnswer, Failures, read_answer
from packager.adapters.registry.client import COMMIT_TIMEOUT_S, RegistryClient
from packager.adapters.registry.failures import ContentMismatch, RefusedBySize, error_codes
from packager.adapters.registry.transport import ATTEMPTS, TRANSIENT, origin_of
from packager.core.registry import UploadForm
from packager.core.units import MIB, decimal
from packager.errors import AccessDenied, PackagerError, Unavailable
from packager.imaging.oci import sha256

STALL_TIMEOUT_S = 120.0  # for one piece to leave
ANSWER_TIMEOUT_S = 300.0  # for the registry to store the last of it
_SESSION_LOST = frozenset({404, 409, 416})
_MEDIA_BLOB = "application/octet-stream"
_LONGEST_HELD = 16 * MIB  # of a range, when only holding it back can tell how long it is


class UploadInterrupted(Unavailable):
    """The blob did not arrive; sending all of it again may help."""

    def __init__(self, host: str, sent: int, size: int | None, reason: str) -> None:
        whole = f" of {decimal(size)}" if size is not None else ""
        super().__init__(
            f"the upload to {host!r} broke off after {decimal(sent)}{whole}: {reason}",
            hint="build again: finished layers are not sent again",
        )


class BlobUpload:
    """A `BlobWriter` for one upload that the registry has opened.

    `size` None means that only the last byte tells it.  With a `digest` the
    blob can also go out in the closing PUT.
    """

    def __init__(
        self,
        client: RegistryClient,
        repository: str,
        address: str,
        size: int | None,
        *,
        digest: str = "",
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
        self._form: UploadForm = client.forms.choose(size)
        self._range_bytes = self._length_of_ranges() if self._form == "ranges" else 0
        self._held = bytearray()
        self._sent = 0
        self._request: BodyRequest | None = None
        self._request_end: int | None = None  # how far the blob is when this request ends
        self._kept: http.client.HTTPConnection | None = None  # for the next range
        self._authorization = ""

    def write(self, chunk: memoryview) -> None:
        """Send the next bytes."""
        if self._waits_for_digest():
            self._sent += len(chunk)
        elif self._form != "ranges":
            self._send(chunk)
        elif self._size is not None:
            self._send_in_ranges(chunk)
        else:
            self._held += chunk
            while len(self._held) > self._range_bytes:
                self._send_held(self._range_bytes)

    def commit(self, digest: str) -> None:
        """Close the upload. When the answer is lost, look whether the blob is there."""
        if self._waits_for_digest():
            raise self._interrupted("the registry wants the digest first")
        if self._held:
            self._send_held(len(self._held))
        if self._size is not None and self._sent != self._size:
            raise PackagerError(f"{self._sent} bytes were written for a blob of {self._size}")
        try:
            if self._form == "put":
                self._end_put(digest)
            else:
                if self._request or not self._sent:
                    self._end_request(last=True)
                self._client.commit_upload(self._repository, self._address, digest)
        except (AccessDenied, ContentMismatch, RefusedBySize):
            raise
        except PackagerError as error:
            if self._form != "put" and self._request:
                raise
            if self._client.head_blob(self._repository, digest) != self._sent:
                raise self._as_interrupted(error) from error
        self._drop_connections()
        self._client.forms.accept(self._form)
        self._on_commit(digest)
