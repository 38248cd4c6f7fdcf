"""Digests of a model's files: what a key says went into a step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from packager.adapters.blobs import BlobReader
from packager.adapters.digest_index import DigestIndex, fingerprint_of
from packager.core.events import EventSink, StepEvent, ignore
from packager.core.image import Blob
from packager.core.model import ModelFile, ModelFiles

_SMALL_BYTES = 16_000_000  # read at once, nearly: nobody is told


def pin_files(
    model: ModelFiles,
    index: DigestIndex,
    reader: BlobReader | None,
    on_event: EventSink = ignore,
) -> ModelFiles:
    """Give every file its sha256, from its source, from the index, or by reading it once.

    Without a reader nothing is read: files that nobody has read stay without.
    """
    pinned = tuple(_pinned(file, index, reader, on_event) for file in model.files)
    return replace(model, files=pinned)


def digest_of(blob: Blob, index: DigestIndex, read: Callable[[Blob], Iterable[memoryview]]) -> str:
    """Return the sha256 of a local blob, from the index or by reading it once."""
    known = index.get(blob)
    if known and known.proven:
        return known.digest.removeprefix("sha256:")
    before, started_ns = fingerprint_of(blob), index.now_ns()
    digest = hashlib.sha256()
    for chunk in read(blob):
        digest.update(chunk)
    index.put(blob, f"sha256:{digest.hexdigest()}", before, started_ns)
    return digest.hexdigest()


def _pinned(
    file: ModelFile, index: DigestIndex, reader: BlobReader | None, on_event: EventSink
) -> ModelFile:
    if file.sha256:
        return file
    blob = file.content if isinstance(file.content, Blob) else Blob((file.content,))
    known = index.get(blob)
    if known and known.proven:
        return replace(file, sha256=known.digest.removeprefix("sha256:"))
    if reader is None:
        return file
    before, started_ns = fingerprint_of(blob), index.now_ns()
    digest, done = hashlib.sha256(), 0
    detail = f"reading {file.path}"
    for chunk in reader.chunks(blob):
        digest.update(chunk)
        done += len(chunk)
        if file.size > _SMALL_BYTES:
            on_event(
                StepEvent(step="model", state="running", detail=detail, done=done, size=file.size)
            )
    index.put(blob, f"sha256:{digest.hexdigest()}", before, started_ns)
    return replace(file, sha256=digest.hexdigest())
