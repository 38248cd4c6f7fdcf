"""Digests of the files in a layer, computed while the layer passes.

A file whose source states its SHA-256, or that was hashed before and not changed since, is not
hashed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from packager.core.image import Blob, Inline, TreePart
from packager.images.digest_index import DigestIndex, Fingerprint, fingerprint_of


class FileDigests:
    """Takes a layer's chunks in order; hashes the files in it that nobody has hashed."""

    def __init__(self, parts: Sequence[TreePart], index: DigestIndex) -> None:
        wanted = [
            part for part in parts if not known_digest(part.file.blob, part.file.sha256, index)
        ]
        self._waiting = sorted(wanted, key=lambda part: -part.offset)
        self._position = 0
        self._hashed = hashlib.sha256()
        self._before: Fingerprint | None = None
        self._index = index
        self._started_ns = index.now_ns()
        self._found: list[tuple[Blob, str, Fingerprint | None]] = []
        self._begin()

    def feed(self, chunk: memoryview) -> None:
        """Hash what of the next bytes belongs to files."""
        end = self._position + len(chunk)
        while self._waiting:
            part = self._waiting[-1]
            stop = part.offset + part.file.size
            if part.offset >= end:
                break
            start = max(part.offset - self._position, 0)
            self._hashed.update(chunk[start : stop - self._position])
            if stop > end:
                break
            self._found.append((part.file.blob, self._hashed.hexdigest(), self._before))
            self._waiting.pop()
            self._begin()
        self._position = end

    def keep(self) -> Mapping[Blob, str]:
        """Remember the digests of a layer that passed whole; return them, in hexadecimal."""
        for blob, digest, before in self._found:
            self._index.put(blob, f"sha256:{digest}", before, self._started_ns)
        return {blob: digest for blob, digest, _ in self._found}

    def _begin(self) -> None:
        self._hashed = hashlib.sha256()
        if self._waiting:
            self._before = fingerprint_of(self._waiting[-1].file.blob)


def known_digest(blob: Blob, stated: str, index: DigestIndex) -> str:
    """Return the SHA-256 of a file as far as it is known without reading it; "" else.

    `stated` is what its source proves.
    """
    if stated:
        return stated
    if all(isinstance(segment, Inline) for segment in blob.segments):
        data = b"".join(one.data for one in blob.segments if isinstance(one, Inline))
        return hashlib.sha256(data).hexdigest()
    found = index.get(blob)
    return found.digest.removeprefix("sha256:") if found is not None and found.proven else ""
