"""Reading what layers hold: known listings, indexes that layers carry, or the layers themselves.

A layer is read as a stream and only its headers are kept: both of its digests are compared, so its
listing is valid for every image that has it.  Of a plain tar on this machine only the headers are
read, each time; so it is for a large remote one, if the image is only listed.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace

from packager.core.events import EventSink, StepEvent, harmless, ignore, working
from packager.core.files.opening import FileUnreadable, identity_of, open_range
from packager.core.image import Blob, FileRange, Inline, Layer, RemoteRange
from packager.core.units import MIB, counted, decimal
from packager.images.rootfs.listing import (
    ListingEntry,
    ListingWriter,
    Subtrees,
    read_listing,
)
from packager.images.rootfs.store import ListingStore
from packager.images.rootfs.tar_reader import TarReader
from packager.images.rootfs.toc import ReadRange, read_toc
from packager.images.rootfs.tree import FileTree
from packager.images.rootfs.unpacking import check_types, is_compressed, layer_broken, unpack

STEP = "base files"  # as progress names it
AT_ONCE = 4
_WINDOW = 64 * 1024  # bytes of a tar that are read for its headers
_SKIPPED_OVER = 64 * MIB  # a plain layer elsewhere, of which only headers may be read

Chunks = Callable[[Blob], Iterator[memoryview]]


class _Cancelled(Exception):
    """Another layer failed, or the build was interrupted."""


class LayerReader:
    """Reads the entries of layers, several at once."""

    def __init__(
        self,
        chunks: Chunks,
        store: ListingStore | None = None,
        on_event: EventSink = ignore,
        *,
        unproven: bool = False,
    ) -> None:
        self._chunks = chunks
        self._unproven = unproven  # take headers of plain layers without the digest of all
        self._store = store
        self._listed: dict[str, bytes] = {}  # listings of this run
        self._tell = harmless(on_event)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._done = self._size = 0

    def tree_of(self, reference: str, layers: Sequence[Layer], wanted: Subtrees = None) -> FileTree:
        """Return the files of an image; raise `PackagerError` for a layer with a wrong digest.

        With `wanted` the tree holds what is at these paths, above and below them.
        """
        tree = FileTree(wanted)
        for layer, entries in zip(layers, self.entries_of(reference, layers, wanted), strict=True):
            try:
                tree.apply(entries)
            except ValueError as error:
                raise layer_broken(layer.digest, str(error)) from error
        return tree

    def entries_of(
        self, reference: str, layers: Sequence[Layer], wanted: Subtrees = None
    ) -> list[Sequence[ListingEntry]]:
        """Return the entries of each layer, in their order; raises as `tree_of`."""
        check_types(layers)
        once = {layer.digest: layer for layer in layers}
        found = {digest: self._known(layer, wanted) for digest, layer in once.items()}
        missing = [once[digest] for digest, entries in found.items() if entries is None]
        if missing:
            with working(self._tell, STEP, reference):
                self._read_all([layer for layer in missing if not self._look(layer)])
            found |= {layer.digest: self._known(layer, wanted) for layer in missing}
        return [found[layer.digest] or () for layer in layers]

    def _known(self, layer: Layer, wanted: Subtrees) -> list[ListingEntry] | None:
        """Return the entries of a layer that was looked at before."""
        name = _name_of(layer)
        for document in (self._listed.get(name), self._store and self._store.get(name)):
            if document:
                with suppress(ValueError):  # damaged: as good as none
                    entries = read_listing(name, document, wanted)
                    self._listed[name] = document
                    return entries
        return None

    def _look(self, layer: Layer) -> bool:
        """Keep a layer's entries where that needs no look at all of it; return whether it did."""
        found: bytes | None = None
        name = _name_of(layer)

        def read(offset: int, length: int) -> bytes:
            return self._range(layer, offset, length)

        if not is_compressed(layer.media_type):
            if (place := _plain_file(layer)) is not None:
                found = _headers_of_file(layer, name, place)
            elif self._unproven and layer.blob.size > _SKIPPED_OVER:
                self._listed[name] = _read_headers(layer, name, read)  # for this run alone
                return True
        if found is None:
            found = read_toc(layer, name, read)
        if found is not None and name == _name_of(layer):  # a file may have been written to
            self._keep(name, found)
        return found is not None

    def _read_all(self, layers: Sequence[Layer]) -> None:
        if not layers:
            return
        self._done, self._size = 0, sum(layer.blob.size for layer in layers)
        detail = f"{counted(len(layers), 'layer')}, {decimal(self._size)}, once"
        self._tell(StepEvent(step=STEP, detail=detail, state="running", size=self._size))
        workers = min(AT_ONCE, len(layers), os.cpu_count() or 1)
        pool = ThreadPoolExecutor(workers, thread_name_prefix="base")
        largest_first = sorted(layers, key=lambda layer: -layer.blob.size)
        self._stop.clear()
        futures = [pool.submit(self._read, layer) for layer in largest_first]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            self._stop.set()  # after a failure or an interrupt; else all have ended
            pool.shutdown(wait=False, cancel_futures=True)
        ended = [one for one in futures if one.done() and not one.cancelled()]
        failures = [error for one in ended if (error := one.exception())]
        if failures:
            raise next((one for one in failures if not isinstance(one, _Cancelled)), failures[0])

    def _read(self, layer: Layer) -> None:
        """Read a layer as a stream; compare both of its digests."""
        found = ListingWriter(_name_of(layer))
        read_compared(layer, self._arriving(layer), TarReader(found, sparse=True, contents=found))
        self._keep(_name_of(layer), found.document())

    def _arriving(self, layer: Layer) -> Iterator[memoryview]:
        """Yield the layer's bytes as they come, counted."""
        for chunk in self._chunks(layer.blob):
            if self._stop.is_set():
                raise _Cancelled
            with self._lock:
                self._done += len(chunk)
            self._tell(StepEvent(step=STEP, state="running", done=self._done, size=self._size))
            yield chunk

    def _range(self, layer: Layer, offset: int, length: int) -> bytes:
        """Return a range of the layer as it travels."""
        match layer.blob.segments:
            case (Inline(data=data),):
                return data[offset : offset + length]
            case (FileRange() | RemoteRange() as segment,):
                part = replace(segment, offset=segment.offset + offset, length=length)
                return b"".join(bytes(chunk) for chunk in self._chunks(Blob((part,))))
        raise ValueError("it lies in several places")

    def _keep(self, name: str, listing: bytes) -> None:
        self._listed[name] = listing
        if self._store:
            self._store.put(name, listing)


def _name_of(layer: Layer) -> str:
    """Return what a layer's listing is kept by: its digest, or the state of the file that it is."""
    place = _plain_file(layer)
    if place is None or is_compressed(layer.media_type):
        return layer.digest
    with open_range(place) as file:
        state = [layer.digest, place.path, place.offset, *identity_of(os.fstat(file.fileno()))]
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _plain_file(layer: Layer) -> FileRange | None:
    """Return the file of this machine that is the layer; None of any other layer."""
    match layer.blob.segments:
        case (FileRange() as place,):
            return place
    return None


def _headers_of_file(layer: Layer, name: str, place: FileRange) -> bytes:
    try:
        with open_range(place) as file:
            number, start = file.fileno(), place.offset
            return _read_headers(layer, name, lambda at, size: os.pread(number, size, start + at))
    except OSError as error:
        raise FileUnreadable(place.path, error) from error


def _read_headers(layer: Layer, name: str, read: ReadRange) -> bytes:
    """Return the listing of a tar by its headers, passing over what is between them."""
    found, size, at = ListingWriter(name), layer.blob.size, 0
    reader = TarReader(found, sparse=True, contents=found)
    try:
        while at < size and (piece := read(at, min(_WINDOW, size - at))):
            reader.feed(piece)
            passed = min(reader.skippable, size - at - len(piece))
            reader.skip(passed)
            at += len(piece) + passed
        reader.finish()
    except ValueError as error:
        raise layer_broken(layer.digest, str(error)) from error
    return found.document()


def read_compared(layer: Layer, chunks: Iterable[memoryview], reader: TarReader) -> None:
    """Read a layer as a stream; raise `LayerBroken` where one of its two digests is another."""
    travelling, content = hashlib.sha256(), hashlib.sha256()

    def arriving() -> Iterator[memoryview]:
        taken = 0
        for chunk in chunks:
            taken += len(chunk)
            if taken > layer.blob.size:
                raise layer_broken(layer.digest, "it is longer than its image says")
            travelling.update(chunk)
            yield chunk

    coming = arriving()
    packed = is_compressed(layer.media_type)
    try:
        for piece in unpack(coming, layer.media_type, layer.digest, layer.blob.size):
            if packed:
                content.update(piece)
            reader.feed(piece)
        for _ in coming:
            pass  # behind the end of what is compressed: the digest is that of all
        _compare(layer, layer.digest, travelling, "digest")
        if packed:
            _compare(layer, layer.diff_id, content, "digest of its content (diffID)")
        reader.finish()
    except ValueError as error:
        raise layer_broken(layer.digest, str(error)) from error


def _compare(layer: Layer, stated: str, hashed: hashlib._Hash, what: str) -> None:
    found = f"sha256:{hashed.hexdigest()}"
    if stated and found != stated:
        raise layer_broken(layer.digest, f"its {what} is {found}, its image says {stated}")
