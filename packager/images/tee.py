"""Writing an image: each layer is read at most once, whatever the number of sinks.

Layers go out in parallel, largest first.  While an output stores a layer whose last byte it has,
the next one goes out: a registry that syncs four layers at once would be sent nothing meanwhile. A
layer whose digest is already known is offered by digest, so that sinks which have it take no bytes.
The others are hashed while they are sent, or before, if an output is likely to have them.  When a
transfer breaks off, only that layer is sent again, and only to the sink that lost it.  Layers are
compressed while they are sent, and those with a twin feed both blobs from one read.

Names are written after all content.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from packager.core.errors import NotReproduced, Unavailable
from packager.core.events import (
    EventSink,
    ImageEvent,
    LayerEvent,
    LayerState,
    harmless,
    ignore,
    working,
)
from packager.core.image import Blob, ImageSpec, Layer, SealedImage, Written
from packager.core.ports import (
    BlobWriter,
    ImageSink,
)
from packager.core.units import counted
from packager.images.blobs import BlobReader, not_kept
from packager.images.claims import make_claims
from packager.images.companion_blobs import TwinStream, check_digest, open_both, with_twin_digest
from packager.images.compression import ZstdCompressor
from packager.images.digest_index import DigestIndex, fingerprint_of
from packager.images.file_digests import FileDigests
from packager.images.known_layers import KnownLayers, compression_of, with_digests
from packager.images.order import chains, is_cached, is_local, sending_order
from packager.images.read_slots import ReadSlot
from packager.images.variants import form_for, named_digest, seal_forms, tree_manifest
from packager.images.writers import WriteBrokenOff, commit, commit_each, feed

WORKERS = 4  # layers that are read at once; as many more may be being stored
ATTEMPTS = 4
BACKOFF_S = 0.5
ORDERLY_S = 3.0  # for workers to stop by themselves, and to cancel what they had begun


class _Cancelled(Exception):
    """Another layer failed; this one stops."""


def write_image(
    image: ImageSpec,
    sinks: Sequence[ImageSink],
    *,
    reader: BlobReader,
    index: DigestIndex,
    on_event: EventSink = ignore,
    expect_digests: Sequence[str] = (),
    sealed: SealedImage | None = None,
    verify: bool = False,
    may_compute: bool = True,
    sleep: Callable[[float], object] | None = None,
) -> Written:
    """Write `image` to all `sinks` and name it in each.

    With `expect_digests`, raises `NotReproduced` before anything is named when
    the result would be another image: the second is that of the plain form, for
    outputs that take no other.  With `sealed`, the image exists already: its
    manifest and configuration are written as they are.  With `verify`, all of
    our layers are read: no digest is taken from the index or a claim.  Raises
    `NotCached` where weights would have to be computed, unless `may_compute`.
    """
    if not any(sink.keeps_index for sink in sinks):
        image = replace(image, layers=tuple(replace(one, twin=None) for one in image.layers))
    try:
        for sink in sinks:
            sink.prepare(image)
        with_claims = any(layer.content for layer in image.layers)
        look_ups = KnownLayers(sinks, index, reader, verify=verify, with_claims=with_claims)
        tell = harmless(on_event)
        transfer = _Transfer(sinks, reader, index, look_ups, tell, sleep, verify, may_compute)
        with working(tell, "layers", _counted_layers(image)):
            layers = transfer.all_layers((*image.layers, *image.beside))[: len(image.layers)]
        done = replace(image, layers=layers)
        sealed = sealed or seal_forms(done)
        sealed = replace(sealed, tree=tree_manifest(image, sinks))
        found = named_digest(sealed, sinks)
        if expect_digests and found not in expect_digests:
            raise NotReproduced(
                f"the record says {expect_digests[0]}, this build gives {found}",
                hint="compare the layers of the record with `packager build --format json`",
            )
        blobs = _readable_copies(layers, sinks)
        with working(tell, "publish", counted(len(sinks), "output")):
            refs = [(sink, sink.publish(form_for(sink, sealed), blobs)) for sink in sinks]
    except BaseException:
        for sink in sinks:
            sink.abandon()
        raise
    claims = make_claims(transfer.proven(layers))
    for sink in sinks:
        sink.keep_claims(sealed, claims)
    return Written(
        image=sealed,
        layers=layers,
        refs=tuple(ref for sink, ref in refs if sink.tree_digests is None),
        trees=tuple(ref for sink, ref in refs if sink.tree_digests is not None),
        layers_known=transfer.known,
        layers_streamed=transfer.streamed,
        files=transfer.files,
        claims=claims,
    )


def _counted_layers(image: ImageSpec) -> str:
    """Return how many layers and files pass, as progress shows it."""
    counts = ((len(image.layers), "layer"), (len(image.beside), "file"))
    return ", ".join(counted(*one) for one in counts if one[0]) or "no layers"


class _Transfer:
    """One transfer of all layers; holds the state that worker threads share."""

    def __init__(
        self,
        sinks: Sequence[ImageSink],
        reader: BlobReader,
        index: DigestIndex,
        look_ups: KnownLayers,
        on_event: EventSink,
        sleep: Callable[[float], object] | None,
        verify: bool,
        may_compute: bool,
    ) -> None:
        self._may_compute = may_compute
        self._sinks = sinks
        self._reader = reader
        self._index = index
        self._on_event = on_event
        self._verify = verify
        self._look_ups = look_ups
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait  # wake all waiting threads at the end
        self._turns = threading.Semaphore(WORKERS)
        self._feeding_lock = threading.Lock()
        self._feeding: list[BlobWriter] = []
        self._count_lock = threading.Lock()
        self._unproven: set[int] = set()  # layers that only the whole of their file can prove
        self._parts: set[int] = set()  # layers that hold parts of one remote file
        self._doubtful: set[int] = set()  # parts that were read without the rest of their file
        self.known = 0
        self.streamed = 0
        self.files: dict[Blob, str] = {}  # SHA-256 of files that passed

    def all_layers(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """Transfer every layer to every sink; return the layers with their digests."""
        order = sending_order(layers)
        self._on_event(ImageEvent(layers=tuple(layer.size for layer in layers)))
        pool = ThreadPoolExecutor(2 * WORKERS, thread_name_prefix="layer")
        futures = [pool.submit(self._chain, chain, layers) for chain in chains(layers, order)]
        whole = False
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            whole = not any(future.exception() for future in done)
        finally:
            if not whole:
                self._break_off(futures)
            pool.shutdown(wait=False)
        if not whole:
            raise _cause(futures)
        finished = dict(pair for future in futures for pair in future.result())
        return tuple(finished[position] for position in range(len(layers)))

    def proven(self, layers: Sequence[Layer]) -> Iterator[Layer]:
        """Yield the finished layers, and twins, whose digests follow from verified contents."""
        for at, layer in enumerate(layers):
            if at not in self._doubtful:
                yield from filter(None, (layer, layer.twin))

    def _break_off(self, futures: Sequence[Future[list[tuple[int, Layer]]]]) -> None:
        """Stop the workers, also those that wait for a silent peer.

        A worker in an uninterruptible wait is left behind: it writes no more bytes, and ends with
        its time-out or the process.
        """
        self._stop.set()
        self._turns.release(2 * WORKERS)  # who waits for a turn shall see that all is over
        running = [future for future in futures if not future.cancel()]
        if wait(running, ORDERLY_S).not_done:
            with self._feeding_lock:
                feeding = tuple(self._feeding)
            for writer in feeding:
                writer.interrupt()
            wait(running, ORDERLY_S)

    def _chain(self, positions: Sequence[int], layers: Sequence[Layer]) -> list[tuple[int, Layer]]:
        """Transfer layers one after another: a single layer, or all parts of one remote file.

        Such parts are right when all are: until the last was read none is known,
        and where one is not known, all are read.
        """
        if len(positions) > 1:
            self._parts.update(positions)
            if self._verify or not all(self._is_proven(layers[at]) for at in positions):
                self._unproven.update(positions)
        finished = [(at, self._layer(at, layers[at])) for at in positions]
        for at, layer in finished:
            for one in filter(None, (layer, layer.twin) if at in self._unproven else ()):
                before = fingerprint_of(one.blob)
                self._index.put(one.blob, one.diff_id or one.digest, before, self._index.now_ns())
        return finished

    def _is_proven(self, layer: Layer) -> bool:
        return all(map(self._look_ups.is_proven, filter(None, (layer, layer.twin))))

    def _layer(self, position: int, layer: Layer) -> Layer:
        is_alone = position not in self._unproven
        with ReadSlot(self._turns) as turn:
            if self._stop.is_set():
                raise _Cancelled
            found, is_read_first = self._look_up(layer, is_alone=is_alone)
            if is_read_first:
                found, *_ = self._pump(position, found, {}, {}, "hashing")
            sent = self._send(position, found, turn)
        if layer.compression != "none" and not layer.digest:
            plain = sent.diff_id or sent.digest
            self._index.put_packed(plain, compression_of(layer), sent.digest, sent.size)
        return sent

    def _look_up(self, layer: Layer, *, is_alone: bool) -> tuple[Layer, bool]:
        """Return the layer with what is known of it and its twin, and whether to hash it first.

        A layer on this machine is read twice rather than sent twice; one that is elsewhere is
        read first only where that gives every digest that is missing.
        """
        found, is_first = self._look_ups.look_up(layer, is_alone=is_alone)
        if layer.twin is None:
            return found, is_first
        twin, is_twin_first = self._look_ups.look_up(layer.twin, is_alone=is_alone)
        both = ((found, is_first), (twin, is_twin_first))
        wanted = [first for one, first in both if not one.digest]
        enough = any(wanted) if is_local(layer.blob) else all(wanted)
        return replace(found, twin=twin), bool(wanted) and enough

    def _send(self, position: int, layer: Layer, turn: ReadSlot) -> Layer:
        pending: Sequence[ImageSink] = self._sinks
        twin_pending: Sequence[ImageSink] = self._sinks
        for attempt in range(ATTEMPTS):
            turn.take()
            if self._stop.is_set():
                raise _Cancelled
            writers, twins = open_both(layer, pending, twin_pending)
            is_known = bool(layer.digest) and (layer.twin is None or bool(layer.twin.digest))
            if is_known and not writers and not twins:
                if attempt == 0:
                    self._count(known=1)
                    self._report(position, layer, layer.size, self._how_known(layer))
                return layer
            self._commit_whole(layer, writers, twins)
            if is_known and not writers and not twins:
                self._count(known=1)
                self._report(position, layer, layer.size, "known")
                return layer
            if attempt == 0:
                self._count(streamed=1)
            with self._interruptible((*writers.values(), *twins.values())):
                layer, broken, twins_broken = self._pump(
                    position, layer, writers, twins, before_commit=turn.end
                )
            if not (errors := (*broken.values(), *twins_broken.values())):
                self._report(position, layer, layer.size, "written")
                return layer
            if attempt + 1 == ATTEMPTS:
                raise errors[0]
            turn.end()
            self._report(position, layer, 0, "again")
            backoff_s = BACKOFF_S * 2**attempt * (0.5 + random.random())
            self._sleep(max(backoff_s, *(error.retry_after_s for error in errors)))
            pending, twin_pending = tuple(broken), tuple(twins_broken)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _commit_whole(
        self,
        layer: Layer,
        writers: dict[ImageSink, BlobWriter],
        twins: dict[ImageSink, BlobWriter],
    ) -> None:
        """Commit, and take out, the writers that have all bytes already."""
        both = [(layer, writers, twins)]
        if layer.twin is not None:
            both.append((layer.twin, twins, writers))
        for one, own, others in both:
            if own and self._is_whole(one, own):
                whole = list(own.values())
                own.clear()
                try:
                    commit(whole, one.digest)
                except BaseException:
                    for writer in others.values():
                        writer.abort()
                    raise

    @contextmanager
    def _interruptible(self, writers: Iterable[BlobWriter]) -> Iterator[None]:
        """Register the writers as interruptible while they are fed."""
        fed = list(writers)
        with self._feeding_lock:
            self._feeding += fed
        try:
            yield
        finally:
            with self._feeding_lock:
                self._feeding = [one for one in self._feeding if one not in fed]

    def _is_whole(self, layer: Layer, writers: Mapping[ImageSink, BlobWriter]) -> bool:
        """Return whether the writers share all bytes with files whose digest is proven.

        The proof is checked after the bytes were shared: it holds for files that
        have not been touched since they were hashed.  Files out of the artifact
        cache have no such proof, since the index knows them by their digest: they are
        read, to be compared with it.
        """
        complete = all(one.complete for one in writers.values())
        if not layer.digest or not complete or self._verify or is_cached(layer.blob):
            return False
        known = self._index.get(layer.blob)
        return known is not None and known.proven and known.digest == layer.digest

    def _pump(
        self,
        position: int,
        layer: Layer,
        writers: Mapping[ImageSink, BlobWriter],
        twins: Mapping[ImageSink, BlobWriter],
        state: Literal["streaming", "hashing"] = "streaming",
        before_commit: Callable[[], None] = ignore,
    ) -> tuple[Layer, dict[ImageSink, Unavailable], dict[ImageSink, Unavailable]]:
        """Read the layer once: hash it, compress it if it shall be, and feed every writer.

        Gives the layer with its digests, and the sinks whose transfer broke off: of the layer,
        and of its twin.
        """
        started_ns = self._index.now_ns()
        before = fingerprint_of(layer.blob)
        hashed = hashlib.sha256()
        compressor = ZstdCompressor(layer.blob.size) if layer.compression == "zstd" else None
        plain: dict[ImageSink, BlobWriter] = {}
        alive: dict[ImageSink, BlobWriter] = {}
        for sink, writer in writers.items():
            (alive if sink.tree_digests is None else plain)[sink] = writer
        broken: dict[ImageSink, Unavailable] = {}
        twin = TwinStream(layer.twin, twins, verify=self._verify)
        files = FileDigests(layer.parts, self._index)
        done = 0
        try:
            if not self._may_compute and layer.role == "weights" and layer.blob.is_computed:
                raise not_kept(layer.size)
            twin.begin()
            for chunk in self._reader.chunks(layer.blob):
                if self._stop.is_set():
                    raise _Cancelled
                hashed.update(chunk)
                twin.feed(chunk)
                files.feed(chunk)
                feed(chunk, plain, broken)
                feed(compressor.compress(chunk) if compressor else chunk, alive, broken)
                done += len(chunk)
                self._report(position, layer, done, state)
            uncompressed = digest = "sha256:" + hashed.hexdigest()
            if compressor:
                feed(compressor.flush(), alive, broken)
                digest = compressor.digest
            twin_digest = twin.end()
            check_digest(layer, digest)
            if layer.twin is not None and twin_digest:
                check_digest(layer.twin, twin_digest)
            self.files |= files.keep()
            # Before any output has it: who is killed in between must find it there.
            if position in self._parts - self._unproven:
                self._doubtful.add(position)
            elif position not in self._unproven:
                self._index.put(layer.blob, uncompressed, before, started_ns)
                twin.remember(self._index, twin_digest, started_ns)
            before_commit()
            alive |= plain
            plain.clear()
            commit_each(alive, digest, broken)
            commit_each(twin.alive, twin_digest, twin.broken)
        except BaseException:
            for writer in (*alive.values(), *plain.values(), *twin.alive.values()):
                writer.abort()
            raise
        size = compressor.size if compressor else layer.size
        done_layer = with_digests(layer, uncompressed, digest, size)
        return with_twin_digest(done_layer, twin_digest), broken, twin.broken

    def _how_known(self, layer: Layer) -> LayerState:
        mounted = any(layer.digest in sink.mounted for sink in self._sinks)
        return "mounted" if mounted else "known"

    def _report(self, position: int, layer: Layer, done: int, state: LayerState) -> None:
        self._on_event(
            LayerEvent(
                layer=position,
                label=layer.created_by or layer.role,
                size=layer.size,
                done=done,
                state=state,
                digest=layer.digest,
            )
        )

    def _count(self, *, known: int = 0, streamed: int = 0) -> None:
        with self._count_lock:
            self.known += known
            self.streamed += streamed


def _cause(futures: Iterable[Future[Any]]) -> BaseException:
    """Return the failure of the layer that failed first, not what it cost other layers."""
    ended = [future for future in futures if future.done() and not future.cancelled()]
    failures = [error for future in ended if (error := future.exception())]
    own = (one for one in failures if not isinstance(one, (_Cancelled, WriteBrokenOff)))
    return next(own, failures[0])


def _readable_copies(layers: Sequence[Layer], sinks: Sequence[ImageSink]) -> dict[str, Blob]:
    """Return where each layer can be read from now, preferring a copy on this machine.

    A sink that serves the image onwards then does not read the weights again.
    A copy in a registry does not help: the weights are nearer.
    """
    copies = {}
    for layer in layers:
        located = (sink.locate(layer.digest) for sink in sinks)
        here = (blob for blob in located if blob is not None and is_local(blob))
        copies[layer.digest] = next(here, layer.blob)
    return copies
