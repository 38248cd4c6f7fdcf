"""Writing an image: each layer is read at most once, whatever the number of sinks.

Layers go out in parallel, largest first.  While an output stores a layer whose last byte it has,
the next one goes out: a registry that syncs four layers at once would be sent nothing meanwhile.
A layer whose digest is already
known is offered by digest, so that sinks which have it take no bytes.  The
others are hashed while they are sent, or before, where an output is likely to
have them.  When a transfer breaks off, only that layer is sent again, and only
to the sink that lost it.  Layers that shall be compressed are so on the way.

Nothing is named before everything is there.
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

from packager.core.events import (
    EventSink,
    ImageEvent,
    LayerEvent,
    LayerState,
    harmless,
    ignore,
    working,
)
from packager.core.image import Blob, Descriptor, ImageSpec, Layer, SealedImage, Written
from packager.core.tree_manifest import write_manifest
from packager.core.units import counted
from packager.errors import NotReproduced, ProtocolFailed, Unavailable
from packager.images.blobs import BlobReader
from packager.images.claims import make_claims
from packager.images.compression import ZstdCompressor
from packager.images.digest_index import DigestIndex, fingerprint_of
from packager.images.known import KnownLayers, compression_of, with_digests
from packager.images.oci import seal
from packager.images.order import chains, is_cached, is_local, sending_order
from packager.images.writers import BrokenOff, commit, feed, open_writers
from packager.ports import (
    BlobWriter,
    ImageSink,
    Interruptible,
    KeepsClaims,
    MountsBlobs,
    Prefilled,
    WritesTree,
)

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
    expect_digest: str = "",
    sealed: SealedImage | None = None,
    verify: bool = False,
    sleep: Callable[[float], object] | None = None,
) -> Written:
    """Write `image` to all `sinks` and name it in each.

    With `expect_digest`, raises `NotReproduced` before anything is named when
    the result would be another image.  With `sealed`, the image exists already:
    its manifest and configuration are written as they are.  With `verify`, all
    of our layers are read: no digest is taken from the index or a claim.
    """
    try:
        for sink in sinks:
            sink.prepare(image)
        with_claims = any(layer.content for layer in image.layers)
        look_ups = KnownLayers(sinks, index, reader, verify=verify, with_claims=with_claims)
        tell = harmless(on_event)
        transfer = _Transfer(sinks, reader, index, look_ups, tell, sleep, verify)
        with working(tell, "layers", _counted_layers(image)):
            layers = transfer.all_layers((*image.layers, *image.beside))[: len(image.layers)]
        done = replace(image, layers=layers)
        sealed = sealed or seal(done, [_descriptor(layer) for layer in layers])
        sealed = replace(sealed, tree=_tree_manifest(image, sinks))
        found = _digest_of(sealed, sinks)
        if expect_digest and found != expect_digest:
            raise NotReproduced(
                f"the record says {expect_digest}, this build gives {found}",
                hint="compare the layers of the record with `packager build --format json`",
            )
        blobs = _readable_copies(layers, sinks)
        with working(tell, "publish", counted(len(sinks), "output")):
            refs = [(sink, sink.publish(sealed, blobs)) for sink in sinks]
    except BaseException:
        for sink in sinks:
            sink.abandon()
        raise
    claims = make_claims(transfer.proven(layers))
    for sink in sinks:
        if isinstance(sink, KeepsClaims):
            sink.keep_claims(sealed, claims)
    return Written(
        image=sealed,
        layers=layers,
        refs=tuple(ref for sink, ref in refs if not isinstance(sink, WritesTree)),
        trees=tuple(ref for sink, ref in refs if isinstance(sink, WritesTree)),
        layers_known=transfer.known,
        layers_streamed=transfer.streamed,
    )


def _tree_manifest(image: ImageSpec, sinks: Sequence[ImageSink]) -> bytes:
    """Return the manifest of the tree that is written beside the image; b"" without one."""
    digests = next((sink.tree_digests for sink in sinks if isinstance(sink, WritesTree)), None)
    if image.tree is None or digests is None:
        return b""
    return write_manifest(image.tree, digests)


def _digest_of(sealed: SealedImage, sinks: Sequence[ImageSink]) -> str:
    """Return the digest that names the build: the image's, else the tree's."""
    if sinks and all(isinstance(sink, WritesTree) for sink in sinks):
        return f"sha256:{hashlib.sha256(sealed.tree).hexdigest()}"
    return sealed.digest


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
    ) -> None:
        self._sinks = sinks
        self._reader = reader
        self._index = index
        self._on_event = on_event
        self._verify = verify
        self._look_ups = look_ups
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait  # nobody sleeps on when all is over
        self._turns = threading.Semaphore(WORKERS)
        self._feeding_lock = threading.Lock()
        self._feeding: list[Interruptible] = []
        self._count_lock = threading.Lock()
        self._unproven: set[int] = set()  # layers that only the whole of their file can prove
        self._parts: set[int] = set()  # layers that hold parts of one remote file
        self._doubtful: set[int] = set()  # parts that were read without the rest of their file
        self.known = 0
        self.streamed = 0

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
        """Yield the finished layers whose digests follow from verified contents."""
        return (layer for at, layer in enumerate(layers) if at not in self._doubtful)

    def _break_off(self, futures: Sequence[Future[list[tuple[int, Layer]]]]) -> None:
        """Stop the workers, also those that wait for a silent peer.

        One that waits where nothing can end it is left behind: it brings no more
        bytes anywhere, and ends with its time-out, or with the process.
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
            if self._verify or not all(self._look_ups.is_proven(layers[at]) for at in positions):
                self._unproven.update(positions)
        finished = [(at, self._layer(at, layers[at])) for at in positions]
        for at, layer in finished:
            if at in self._unproven:
                before = fingerprint_of(layer.blob)
                self._index.put(
                    layer.blob, layer.diff_id or layer.digest, before, self._index.now_ns()
                )
        return finished

    def _layer(self, position: int, layer: Layer) -> Layer:
        is_alone = position not in self._unproven
        with _Turn(self._turns) as turn:
            if self._stop.is_set():
                raise _Cancelled
            found, is_read_first = self._look_ups.look_up(layer, is_alone=is_alone)
            if is_read_first:
                found, _ = self._pump(position, found, {}, "hashing")
            sent = self._send(position, found, turn)
        if layer.compression != "none" and not layer.digest:
            plain = sent.diff_id or sent.digest
            self._index.put_packed(plain, compression_of(layer), sent.digest, sent.size)
        return sent

    def _send(self, position: int, layer: Layer, turn: _Turn) -> Layer:
        pending: Sequence[ImageSink] = self._sinks
        for attempt in range(ATTEMPTS):
            turn.take()
            if self._stop.is_set():
                raise _Cancelled
            writers = open_writers(layer, pending)
            if layer.digest and not writers:
                if attempt == 0:
                    self._count(known=1)
                    self._report(position, layer, layer.size, self._how_known(layer))
                return layer
            if self._is_whole(layer, writers):
                commit(writers.values(), layer.digest)
                self._count(known=1)
                self._report(position, layer, layer.size, "known")
                return layer
            if attempt == 0:
                self._count(streamed=1)
            with self._interruptible(writers.values()):
                layer, broken = self._pump(position, layer, writers, before_commit=turn.end)
            if not broken:
                self._report(position, layer, layer.size, "written")
                return layer
            if attempt + 1 == ATTEMPTS:
                raise next(iter(broken.values()))
            turn.end()
            self._report(position, layer, 0, "again")
            backoff_s = BACKOFF_S * 2**attempt * (0.5 + random.random())
            self._sleep(max(backoff_s, *(error.retry_after_s for error in broken.values())))
            pending = tuple(broken)
        raise AssertionError("unreachable: the last attempt returns or raises")

    @contextmanager
    def _interruptible(self, writers: Iterable[BlobWriter]) -> Iterator[None]:
        """Register the writers as interruptible while they are fed."""
        reachable = [writer for writer in writers if isinstance(writer, Interruptible)]
        with self._feeding_lock:
            self._feeding += reachable
        try:
            yield
        finally:
            with self._feeding_lock:
                self._feeding = [one for one in self._feeding if one not in reachable]

    def _is_whole(self, layer: Layer, writers: Mapping[ImageSink, BlobWriter]) -> bool:
        """Return whether the writers share all bytes with files whose digest is proven.

        The proof is asked for after the bytes were shared: it holds for files that
        have not been touched since they were hashed.  Files out of the artifact
        cache have no such proof, since the index knows them by their digest: they are
        read, to be compared with it.
        """
        complete = all(isinstance(one, Prefilled) and one.complete for one in writers.values())
        if not layer.digest or not complete or self._verify or is_cached(layer.blob):
            return False
        known = self._index.get(layer.blob)
        return known is not None and known.proven and known.digest == layer.digest

    def _pump(
        self,
        position: int,
        layer: Layer,
        writers: Mapping[ImageSink, BlobWriter],
        state: Literal["streaming", "hashing"] = "streaming",
        before_commit: Callable[[], None] = ignore,
    ) -> tuple[Layer, dict[ImageSink, Unavailable]]:
        """Read the layer once: hash it, compress it if it shall be, and feed every writer.

        Gives the layer with its digest, and the sinks whose transfer broke off.
        """
        started_ns = self._index.now_ns()
        before = fingerprint_of(layer.blob)
        hashed = hashlib.sha256()
        compressor = ZstdCompressor(layer.blob.size) if layer.compression == "zstd" else None
        plain: dict[ImageSink, BlobWriter] = {}
        alive: dict[ImageSink, BlobWriter] = {}
        for sink, writer in writers.items():
            (plain if isinstance(sink, WritesTree) else alive)[sink] = writer
        broken: dict[ImageSink, Unavailable] = {}
        done = 0
        try:
            for chunk in self._reader.chunks(layer.blob):
                if self._stop.is_set():
                    raise _Cancelled
                hashed.update(chunk)
                feed(chunk, plain, broken)
                feed(compressor.compress(chunk) if compressor else chunk, alive, broken)
                done += len(chunk)
                self._report(position, layer, done, state)
            uncompressed = digest = "sha256:" + hashed.hexdigest()
            if compressor:
                feed(compressor.flush(), alive, broken)
                digest = compressor.digest
            if layer.digest and layer.digest != digest:
                raise ProtocolFailed(
                    f"a layer of {layer.size} bytes has digest {digest}, expected {layer.digest}",
                    hint="the base image or the source is damaged; fetch it again",
                )
            # Before any output has it: who is killed in between must find it there.
            if position in self._parts - self._unproven:
                self._doubtful.add(position)
            elif position not in self._unproven:
                self._index.put(layer.blob, uncompressed, before, started_ns)
            before_commit()
            alive |= plain
            plain.clear()
            for sink, writer in list(alive.items()):
                try:
                    writer.commit(digest)
                except Unavailable as error:
                    broken[sink] = error
                    writer.abort()
                alive.pop(sink)
        except BaseException:
            for writer in {**alive, **plain}.values():
                writer.abort()
            raise
        size = compressor.size if compressor else layer.size
        return with_digests(layer, uncompressed, digest, size), broken

    def _how_known(self, layer: Layer) -> LayerState:
        mounted = any(
            layer.digest in sink.mounted for sink in self._sinks if isinstance(sink, MountsBlobs)
        )
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


class _Turn:
    """Turn to read a layer; it ends when every output has the last byte."""

    def __init__(self, turns: threading.Semaphore) -> None:
        self._turns = turns
        self._is_held = False

    def __enter__(self) -> _Turn:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def take(self) -> None:
        """Block until fewer than `WORKERS` layers are being read, unless this one has its turn."""
        if not self._is_held:
            self._turns.acquire()
            self._is_held = True

    def end(self) -> None:
        """Release the turn, so that the next layer can be read."""
        if self._is_held:
            self._is_held = False
            self._turns.release()


def _cause(futures: Iterable[Future[Any]]) -> BaseException:
    """Return the failure of the layer that failed first, not what it cost other layers."""
    ended = [future for future in futures if future.done() and not future.cancelled()]
    failures = [error for future in ended if (error := future.exception())]
    own = (one for one in failures if not isinstance(one, (_Cancelled, BrokenOff)))
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


def _descriptor(layer: Layer) -> Descriptor:
    return Descriptor(
        media_type=layer.media_type,
        digest=layer.digest,
        size=layer.size,
        annotations=layer.annotations,
    )
