"""Digests of a model's files, for cache keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from packager.core.events import EventSink, StepEvent, ignore, working
from packager.core.image import Blob
from packager.core.model import ModelFile, ModelFiles
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex, fingerprint_of

_SMALL_BYTES = 16_000_000  # read within moments: no progress is reported


def pin_files(
    model: ModelFiles,
    index: DigestIndex,
    reader: BlobReader | None,
    on_event: EventSink = ignore,
) -> ModelFiles:
    """Return the files with sha256: from their source, from the index, or by reading them once.

    Without a reader, unread files stay without a digest.
    """
    files = tuple(_known(file, index) for file in model.files)
    unread = [file for file in files if not file.sha256]
    if reader is None or not unread:
        return replace(model, files=files)
    size = sum(file.size for file in unread)
    tell = on_event if size > _SMALL_BYTES else ignore
    read: dict[str, ModelFile] = {}
    with working(tell, "hash", f"{len(unread)} files of {model.ref.name}"):
        before = 0
        for file in unread:
            read[file.path] = _read(file, index, reader, tell, before, size)
            before += file.size
    return replace(model, files=tuple(read.get(file.path, file) for file in files))


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


def _known(file: ModelFile, index: DigestIndex) -> ModelFile:
    """Return the file with its sha256 where its source or the index has it."""
    if file.sha256:
        return file
    known = index.get(_blob_of(file))
    if known and known.proven:
        return replace(file, sha256=known.digest.removeprefix("sha256:"))
    return file


def _read(
    file: ModelFile,
    index: DigestIndex,
    reader: BlobReader,
    on_event: EventSink,
    before: int,
    size: int,
) -> ModelFile:
    """Hash a file, and report it as bytes `before` and after of all `size` that are read."""
    blob = _blob_of(file)
    was, started_ns = fingerprint_of(blob), index.now_ns()
    digest, done = hashlib.sha256(), before
    detail = f"reading {file.path}"
    for chunk in reader.chunks(blob):
        digest.update(chunk)
        done += len(chunk)
        on_event(StepEvent(step="hash", state="running", detail=detail, done=done, size=size))
    index.put(blob, f"sha256:{digest.hexdigest()}", was, started_ns)
    return replace(file, sha256=digest.hexdigest())


def _blob_of(file: ModelFile) -> Blob:
    return file.content if isinstance(file.content, Blob) else Blob((file.content,))
