"""Choice of the upload strategy that a registry supports: from its traits, headers or failures.

The first form of the registry's traits is tried.  One that is refused is not
tried again in the same run, so that a refusal costs one layer at most.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from packager.core.registry import RegistryTraits, UploadForm
from packager.core.units import MIB

DEFAULT_CHUNK = 100 * MIB  # of one range, by default
# Tried one after the other below an unknown limit: that of common proxies is 100 MB.
_SHORTER = (64 * MIB, 8 * MIB)

# Codes of the specification about the upload or its bytes, not about the form.
_ABOUT_THE_UPLOAD = (
    "BLOB_UPLOAD_UNKNOWN",
    "BLOB_UPLOAD_INVALID",
    "DIGEST_INVALID",
    "SIZE_INVALID",
    "NAME_INVALID",
    "NAME_UNKNOWN",
    "DENIED",
)
_NEVER_TAKEN = frozenset({405, 411, 501})
_PERHAPS_NOT_TAKEN = frozenset({400, 404, 415, 416})


class UploadForms:
    """Upload strategies that one registry supports. Thread-safe."""

    def __init__(self, traits: RegistryTraits) -> None:
        self._traits = traits
        self._lock = threading.Lock()
        self._left = list(traits.forms)
        self._proven: set[UploadForm] = set()
        self._least_chunk = 0
        self._longest_chunk = 0
        self._longest_body = 0  # found out

    def choose(self, size: int | None) -> UploadForm:
        """The form for a blob of `size` bytes; None: size unknown."""
        with self._lock:
            limit = self._body_limit()
            too_long = limit and (size is None or size > limit)
            if too_long and "ranges" in self._left:
                return "ranges"
            return self._left[0]

    def choose_small(self, size: int | None) -> UploadForm:
        """Return the form for a small blob of known digest: one request, where it is taken."""
        with self._lock:
            if "put" in self._left:
                return "put"
        return self.choose(size)

    def chunk_bytes(self) -> int:
        """Return the number of bytes to send in one range."""
        with self._lock:
            limits = (self._body_limit(), self._traits.chunk_bytes)
            chunk = min((limit for limit in limits if limit), default=DEFAULT_CHUNK)
            return max(chunk, self._least_chunk)

    def least_chunk(self) -> int:
        """Return the minimum size in bytes of every range but the last."""
        with self._lock:
            return self._least_chunk

    def hear(self, headers: Mapping[str, str]) -> None:
        """Read the registry's chunk limits from the headers that open an upload."""
        with self._lock:
            self._least_chunk = _length(headers, "OCI-Chunk-Min-Length") or self._least_chunk
            self._longest_chunk = _length(headers, "OCI-Chunk-Max-Length") or self._longest_chunk

    def accept(self, form: UploadForm) -> None:
        """Record that the registry accepted a blob in this form."""
        with self._lock:
            self._proven.add(form)

    def refuse(self, form: UploadForm, status: int, codes: Collection[str]) -> bool:
        """Return whether the response rejects this form of upload and another form is left."""
        with self._lock:
            if status not in _NEVER_TAKEN and (
                status not in _PERHAPS_NOT_TAKEN
                or form in self._proven
                or any(code in codes for code in _ABOUT_THE_UPLOAD)
            ):
                return False
            if form not in self._left:
                return True  # another layer has found out before
            if len(self._left) == 1:
                return False
            self._left.remove(form)
            return True

    def refuse_length(self, length: int | None) -> bool:
        """Record that a body of `length` bytes is too long.

        Return whether shorter ranges are left to try.

        They are ranges, so that the registry gets the blob piece by piece.
        """
        with self._lock:
            left = (size for size in _SHORTER if length is None or size < length)
            shorter = next(left, 0)
            if "ranges" not in self._left or shorter <= self._least_chunk:
                return False
            self._longest_body = min(self._longest_body or shorter, shorter)
            return True

    def _body_limit(self) -> int:
        limits = (self._longest_chunk, self._longest_body, self._traits.body_bytes)
        return min((limit for limit in limits if limit), default=0)


def _length(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "").strip()
    return int(text) if text.isdecimal() and len(text) < 16 else 0
