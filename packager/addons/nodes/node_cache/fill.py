"""Filling a node cache from an image: each layer is read once, as a stream.

What is written is checked before it gets its name: the digest of the layer as it travels, and the
digest of its uncompressed tar, which is the name.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packager.addons.nodes.node_cache.entry_check import (
    FoundEntry,
    find_entry,
    is_foreign_entry,
    verify_entry,
)
from packager.addons.nodes.node_cache.entry_file import (
    EntryFile,
    Interrupted,
    open_entry,
    remove_leftovers,
)
from packager.addons.nodes.node_cache.places import entry_path
from packager.core.errors import OutputFailed
from packager.core.events import EventSink, ImageEvent, LayerEvent, LayerState, StepEvent, ignore
from packager.core.files.atomic import explain_disk_errors
from packager.core.files.opening import Identity
from packager.core.image import MEDIA_EROFS, MEDIA_LAYER, FileRange
from packager.core.units import counted, decimal
from packager.images.blobs import BlobReader
from packager.images.erofs.metadata import HEAD, make_blob
from packager.images.erofs.nodes import LayerNotMountable
from packager.images.erofs.scan import TarScanner
from packager.images.erofs.superblock import parse_superblock
from packager.images.erofs.verity import verity_size
from packager.images.oci import is_digest
from packager.images.opened import OpenImage
from packager.images.rootfs.unpacking import is_compressed, layer_broken, unpack
from packager.images.selection import LayerChoice, choose_layers
from packager.images.stored import StoredLayer

EntryState = Literal["made", "kept", "passed over"]
GROWTH = 3  # estimated growth of a compressed layer of a base, for the space that is reported
_TARS = (
    MEDIA_LAYER,
    "application/vnd.docker.image.rootfs.diff.tar",
    MEDIA_LAYER + "+gzip",
    MEDIA_LAYER + "+zstd",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FillOptions:
    """What is put into the cache, and how."""

    layers: LayerChoice = "all"
    dm_verity: bool = False
    verify: bool = False  # read entries that are there
    strict: bool = False  # a layer that cannot be shown is an error
    at_once: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """What became of one layer."""

    layer: StoredLayer
    state: EntryState
    path: Path
    size: int = 0  # bytes of the entry
    read: int = 0  # bytes of the layer that were read
    shared: int = 0  # bytes of the entry that the disk holds for the layout, too
    root_hash: str = ""
    note: str = ""  # why it was passed over, or made anew


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCacheReport:
    """What a cache holds of an image now."""

    image: str
    digest: str
    directory: Path
    entries: tuple[CacheEntry, ...]

    @property
    def bytes_read(self) -> int:
        return sum(entry.read for entry in self.entries)

    @property
    def bytes_written(self) -> int:
        return sum(entry.size - entry.shared for entry in self.entries if entry.state == "made")


def fill_node_cache(
    source: OpenImage,
    directory: Path,
    reader: BlobReader,
    options: FillOptions,
    on_event: EventSink = ignore,
) -> NodeCacheReport:
    """Make the entries of an image's layers that are not there yet.

    Safe beside other processes that fill the same directory.  Raises `PackagerError` for a layer
    that is not what the image says, and `OutputFailed`; entries that were complete stay.
    """
    directory = directory.absolute()
    with explain_disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    remove_leftovers(directory)
    wanted = _by_diff_id(choose_layers(source.image, options.layers))
    filling = _Filling(source, directory, reader, options, on_event, wanted)
    filling.check_space()
    on_event(ImageEvent(layers=tuple(layer.size for layer in wanted)))
    return NodeCacheReport(
        image=source.image.reference,
        digest=source.image.digest,
        directory=directory,
        entries=filling.run(),
    )


def native_size(layer: StoredLayer) -> int:
    """Return the bytes of a layer that is a file system itself; 0 of a tar."""
    return layer.size if layer.descriptor.media_type == MEDIA_EROFS else 0


def check_diff_id(layer: StoredLayer) -> None:
    """Refuse a layer whose image names no uncompressed digest, or another than it can have."""
    digest, diff_id = layer.descriptor.digest, layer.diff_id
    if not is_digest(diff_id):
        raise layer_broken(digest, "its image names no digest of its content (diffID)")
    if layer.descriptor.media_type in (*_TARS[:2], MEDIA_EROFS) and diff_id != digest:
        raise layer_broken(digest, f"it is not compressed, and its image says {diff_id} of it")


def _by_diff_id(layers: Sequence[StoredLayer]) -> tuple[StoredLayer, ...]:
    """Check the names of entries before they become paths; take each once."""
    for layer in layers:
        check_diff_id(layer)
    return tuple({layer.diff_id: layer for layer in layers}.values())


class _Filling:
    """One run over the layers of one image."""

    def __init__(
        self,
        source: OpenImage,
        directory: Path,
        reader: BlobReader,
        options: FillOptions,
        on_event: EventSink,
        layers: Sequence[StoredLayer],
    ) -> None:
        self._source = source
        self._directory = directory
        self._reader = reader
        self._options = options
        self._on_event = on_event
        self._layers = layers
        self._stop = threading.Event()

    def check_space(self) -> None:
        """Raise where the disk is too small for what is missing, before anything is read."""
        missing = [
            layer
            for layer in self._layers
            if self._find(layer) is None and not self._has_foreign(layer)
        ]
        if not missing:
            return
        # What is not packed has its size; what is, has no less than that.
        certain = sum(layer.size for layer in missing)
        likely = sum(_likely_size(layer, self._options.dm_verity) for layer in missing)
        with explain_disk_errors(self._directory):
            disk = os.statvfs(self._directory)
        free = disk.f_bavail * disk.f_frsize
        if certain > free:
            raise OutputFailed(
                f"about {decimal(likely)} are needed in {str(self._directory)!r} for "
                f"{counted(len(missing), 'layer')}, and {decimal(free)} are free",
                hint="free some space, choose another directory, or take --layers weights alone",
            )
        self._on_event(
            StepEvent(
                step="space",
                state="finished",
                detail=f"about {decimal(likely)} for {counted(len(missing), 'layer')}, "
                f"{decimal(free)} are free",
            )
        )

    def run(self) -> tuple[CacheEntry, ...]:
        """Make every entry; at the first failure stop the others and raise it."""
        pool = ThreadPoolExecutor(max(1, self._options.at_once), thread_name_prefix="layer")
        futures: list[Future[CacheEntry]] = []
        try:
            futures = [
                pool.submit(self._entry, number, layer) for number, layer in enumerate(self._layers)
            ]
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            if not all(future.done() and not future.exception() for future in futures):
                self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        failures = [future.exception() for future in futures if not future.cancelled()]
        for failure in sorted(failures, key=lambda error: isinstance(error, Interrupted)):
            if failure is not None:
                raise failure
        return tuple(future.result() for future in futures)

    def _find(self, layer: StoredLayer) -> FoundEntry | None:
        found = find_entry(entry_path(self._directory, layer.diff_id), native_size(layer))
        if found is None or (self._options.dm_verity and not found.root_hash):
            return None
        return found

    def _has_foreign(self, layer: StoredLayer) -> bool:
        if self._options.verify or native_size(layer):
            return False
        path = entry_path(self._directory, layer.diff_id)
        return is_foreign_entry(path, needs_tree=self._options.dm_verity)

    def _entry(self, number: int, layer: StoredLayer) -> CacheEntry:
        path = entry_path(self._directory, layer.diff_id)
        found = self._find(layer)
        bad: Identity = ()
        if found is not None and self._options.verify and not self._verify(number, layer, found):
            bad = found.identity
            found = None
        if found is not None:
            self._tell(number, layer, layer.size, "known")
            return _kept(layer, found)
        if self._has_foreign(layer):
            self._tell(number, layer, layer.size, "known")
            note = "another tool made the entry, so that nobody can prove it; --verify replaces it"
            return CacheEntry(
                layer=layer, state="kept", path=path, size=path.stat().st_size, note=note
            )
        if layer.descriptor.media_type not in (*_TARS, MEDIA_EROFS):
            return self._passed_over(layer, LayerNotMountable("it is no tar that is known here"))

        def is_there() -> bool:
            other = self._find(layer)
            return other is not None and other.identity != bad

        file = open_entry(path, is_there, self._stop)
        if file is None:
            found = self._find(layer)
            assert found is not None, "it was there, and entries are not removed"
            self._tell(number, layer, layer.size, "known")
            return _kept(layer, found)
        with file:
            try:
                is_native = native_size(layer) > 0
                block = (self._write_native if is_native else self._write_tar)(number, layer, file)
            except LayerNotMountable as error:
                return self._passed_over(layer, error)
            tree = file.add_verity(block) if self._options.dm_verity else None
            size = file.commit(tree)
        self._tell(number, layer, layer.size, "written")
        return CacheEntry(
            layer=layer,
            state="made",
            path=path,
            size=size,
            read=layer.size,
            shared=file.shared,
            root_hash=tree.root_hash if tree else "",
            note="the entry that was there was damaged" if bad else "",
        )

    def _write_tar(self, number: int, layer: StoredLayer, file: EntryFile) -> int:
        """Write a tar and what makes it a file system; return the size of blocks."""
        descriptor = layer.descriptor
        blob = self._source.locate(descriptor)
        packed = is_compressed(descriptor.media_type)
        match blob.segments:
            case (FileRange() as content_of_file,) if not packed:
                is_shared = file.share(content_of_file)
            case _:
                is_shared = False
        chunks = file.read_tar(layer.size) if is_shared else self._reader.chunks(blob)
        hashed = hashlib.sha256()
        travelling = self._travelling(number, layer, chunks, hashed)
        content = hashlib.sha256() if packed else hashed
        scanner = TarScanner()
        for chunk in unpack(travelling, descriptor.media_type, descriptor.digest, layer.size):
            if packed:
                content.update(chunk)
            scanner.feed(chunk)
            if not is_shared:
                file.write(chunk)
        for _ in travelling:
            pass  # behind the end of what is compressed: the digest is that of all
        _check(descriptor.digest, hashed, descriptor.digest, "its digest")
        _check(descriptor.digest, content, layer.diff_id, "the digest of its content (diffID)")
        surrounding = make_blob(scanner.finish())
        file.write_whole(surrounding)
        return surrounding.block_size

    def _write_native(self, number: int, layer: StoredLayer, file: EntryFile) -> int:
        """Write a layer that is a file system as it is, up to whole blocks."""
        file.begin_at(0)
        hashed = hashlib.sha256()
        chunks = self._reader.chunks(self._source.locate(layer.descriptor))
        head = bytearray()
        for chunk in self._travelling(number, layer, chunks, hashed):
            head += chunk[: HEAD - len(head)]
            file.write(chunk)
        digest = layer.descriptor.digest
        _check(digest, hashed, digest, "its digest")
        superblock = parse_superblock(bytes(head))
        if superblock is None or superblock.size > layer.size:
            raise LayerNotMountable("it is no EROFS file system, as its type says")
        if self._options.dm_verity:
            file.write(bytes(-layer.size % superblock.block_size))
        return superblock.block_size

    def _travelling(
        self,
        number: int,
        layer: StoredLayer,
        chunks: Iterable[memoryview],
        hashed: hashlib._Hash,
    ) -> Iterator[memoryview]:
        """Yield the layer's bytes as they come, hashed and counted."""
        done = 0
        for chunk in chunks:
            if self._stop.is_set():
                raise Interrupted
            hashed.update(chunk)
            done += len(chunk)
            if done > layer.size:
                raise layer_broken(layer.descriptor.digest, "it is longer than its image says")
            yield chunk
            self._tell(number, layer, done, "streaming")

    def _verify(self, number: int, layer: StoredLayer, found: FoundEntry) -> bool:
        try:
            return verify_entry(
                found,
                layer.diff_id,
                native_size(layer),
                lambda done: self._hashing(number, layer, done),
            )
        except OSError:
            return False  # a disk that cannot be read: the entry is made anew

    def _hashing(self, number: int, layer: StoredLayer, done: int) -> None:
        if self._stop.is_set():
            raise Interrupted
        self._tell(number, layer, min(done, layer.size), "hashing")

    def _passed_over(self, layer: StoredLayer, error: LayerNotMountable) -> CacheEntry:
        if self._options.strict:
            raise error
        return CacheEntry(
            layer=layer,
            state="passed over",
            path=entry_path(self._directory, layer.diff_id),
            note=error.message,
        )

    def _tell(self, number: int, layer: StoredLayer, done: int, state: LayerState) -> None:
        self._on_event(
            LayerEvent(
                layer=number,
                label=layer.created_by or layer.role,
                size=layer.size,
                done=done,
                state=state,
                digest=layer.descriptor.digest,
            )
        )


def _kept(layer: StoredLayer, found: FoundEntry) -> CacheEntry:
    return CacheEntry(
        layer=layer, state="kept", path=found.path, size=found.size, root_hash=found.root_hash
    )


def _check(layer: str, hashed: hashlib._Hash, expected: str, what: str) -> None:
    found = f"sha256:{hashed.hexdigest()}"
    if found != expected:
        raise layer_broken(layer, f"{what} is {found}, its image says {expected}")


def _likely_size(layer: StoredLayer, dm_verity: bool) -> int:
    size = layer.size * (GROWTH if is_compressed(layer.descriptor.media_type) else 1)
    return size + (verity_size(size, 4096) if dm_verity else 0)
