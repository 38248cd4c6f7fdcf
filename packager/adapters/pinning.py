"""Digests of a model's files: what a key says went into a step."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from packager.adapters.blobs import BlobReader
from packager.adapters.digest_index import DigestIndex, fingerprint_of
from packager.core.image import Blob
from packager.core.model import ModelFile, ModelFiles


def pin_files(model: ModelFiles, index: DigestIndex, reader: BlobReader | None) -> ModelFiles:
    """Give every file its sha256, from its source, from the index, or by reading it once.

    Without a reader nothing is read: files that nobody has read stay without.
    """
    return replace(model, files=tuple(_pinned(file, index, reader) for file in model.files))


def _pinned(file: ModelFile, index: DigestIndex, reader: BlobReader | None) -> ModelFile:
    if file.sha256:
        return file
    blob = file.content if isinstance(file.content, Blob) else Blob((file.content,))
    known = index.get(blob)
    if known and known.proven:
        return replace(file, sha256=known.digest.removeprefix("sha256:"))
    if reader is None:
        return file
    before, started_ns = fingerprint_of(blob), index.now_ns()
    digest = hashlib.sha256()
    for chunk in reader.chunks(blob):
        digest.update(chunk)
    index.put(blob, f"sha256:{digest.hexdigest()}", before, started_ns)
    return replace(file, sha256=digest.hexdigest())
