"""Writing an image: each layer is read at most once, whatever the number of sinks.

Layers go out in parallel, largest first.  A layer whose digest is already
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
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal, Protocol, runtime_checkable

from packager.adapters.blobs import BlobReader
from packager.adapters.digest_index import DigestIndex, fingerprint_of
from packager.adapters.packing import MEDIA_PACKED, Packer, codec, is_worth_it
from packager.adapters.remote.addresses import is_in_order
from packager.core.events import EventSink, ImageEvent, LayerEvent, LayerState, ignore
from packager.core.image import (
    Blob,
    Descriptor,
    FileRange,
    ImageSpec,
    Inline,
    Layer,
    RemoteRange,
    SealedImage,
    Written,
)
from packager.core.units import MIB
from packager.errors import NotReproduced, ProtocolFailed, Unavailable
from packager.imaging.claims import Claim, make_claims
from packager.imaging.earlier import EarlierLayers
from packager.imaging.oci import seal
from packager.ports import BlobWriter, ImageSink

WORKERS = 4
ATTEMPTS = 4
BACKOFF_S = 0.5
HASH_REMOTE_BELOW = 32 * MIB
ORDERLY_S = 3.0  # for workers to stop by themselves, and to cancel what they had begun


@runtime_checkable
class RemembersImages(Protocol):
    """A sink that can say what the images beside the new one are made of."""

    def earlier_layers(self, *, with_claims: bool) -> EarlierLayers:
        """Read their manifests, and claims where these are of use. Never raises for either."""
        ...


@runtime_checkable
class KeepsClaims(Protocol):
    """A sink that can say to later builds, with proof, what the image's layers hold."""

    def keep_claims(self, image: SealedImage, claims: Sequence[Claim]) -> None:
        """Attach claims to an image that was published. Warns where that does not work."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A writer whose waiting can be ended."""

    def interrupt(self) -> None:
        """Make what it waits for fail; from another thread. Never raises."""
        ...


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
        transfer = _Transfer(sinks, reader, index, on_event, sleep, verify)
        layers = transfer.all_layers(image.layers)
        done = replace(image, layers=layers)
        sealed = sealed or seal(done, [_descriptor(layer) for layer in layers])
        if expect_digest and sealed.digest != expect_digest:
            raise NotReproduced(
                f"the record says {expect_digest}, this build gives {sealed.digest}",
                hint="compare the layers of the record with `packager build --format json`",
            )
        blobs = _readable_copies(layers, sinks)
        refs = tuple(sink.publish(sealed, blobs) for sink in sinks)
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
        refs=refs,
        layers_known=transfer.known,
        layers_streamed=transfer.streamed,
    )


class _Transfer:
    """One run over all layers. Holds what the worker threads share."""

    def __init__(
        self,
        sinks: Sequence[ImageSink],
        reader: BlobReader,
        index: DigestIndex,
        on_event: EventSink,
        sleep: Callable[[float], object] | None,
        verify: bool,
    ) -> None:
        self._sinks = sinks
        self._reader = reader
        self._index = index
        self._on_event = on_event
        self._verify = verify
        self._earlier_lock = threading.Lock()
        self._earlier: list[EarlierLayers] | None = None
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait  # nobody sleeps on when all is over
        self._feeding_lock = threading.Lock()
        self._feeding: list[Interruptible] = []
        self._count_lock = threading.Lock()
        self._unproven: set[int] = set()  # layers that only the whole of their file can prove
        self._parts: set[int] = set()  # layers that hold parts of one remote file
        self._doubtful: set[int] = set()  # parts that were read without the rest of their file
        self._with_claims = False  # whether they could spare reading a layer
        self.known = 0
        self.streamed = 0

    def all_layers(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """Bring every layer to every sink; give the layers with their digests."""
        order = sending_order(layers)
        self._with_claims = any(layer.content for layer in layers)
        with suppress(Exception):  # a broken progress display never fails a build
            self._on_event(ImageEvent(layers=tuple(layer.size for layer in layers)))
        pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="layer")
        futures = [pool.submit(self._chain, chain, layers) for chain in _chains(layers, order)]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failures = [error for future in done if (error := future.exception())]
            if failures:
                raise next(
                    (error for error in failures if not isinstance(error, _Cancelled)), failures[0]
                )
        except BaseException:
            self._break_off(futures)
            raise
        finally:
            pool.shutdown(wait=False)
        finished = dict(pair for future in futures for pair in future.result())
        return tuple(finished[position] for position in range(len(layers)))

    def proven(self, layers: Sequence[Layer]) -> Iterator[Layer]:
        """Give the finished layers whose digests follow from contents that were held to proof."""
        return (layer for at, layer in enumerate(layers) if at not in self._doubtful)

    def _break_off(self, futures: Sequence[Future[list[tuple[int, Layer]]]]) -> None:
        """Have the workers stop, those too that wait for somebody who is silent.

        One that waits where nothing can end it is left behind: it brings no more
        bytes anywhere, and ends with its time-out, or with the process.
        """
        self._stop.set()
        running = [future for future in futures if not future.cancel()]
        if wait(running, ORDERLY_S).not_done:
            with self._feeding_lock:
                feeding = tuple(self._feeding)
            for writer in feeding:
                writer.interrupt()
            wait(running, ORDERLY_S)

    def _chain(self, positions: Sequence[int], layers: Sequence[Layer]) -> list[tuple[int, Layer]]:
        """Bring layers one after another; one alone, unless they hold parts of one remote file.

        Such parts are right when all are: until the last was read none is known,
        and where one is not known, all are read.
        """
        if len(positions) > 1:
            self._parts.update(positions)
            if self._verify or not all(self._is_proven(layers[at]) for at in positions):
                self._unproven.update(positions)
        finished = [(at, self._layer(at, layers[at])) for at in positions]
        for at, layer in finished:
            if at in self._unproven:
                before = fingerprint_of(layer.blob)
                self._index.put(
                    layer.blob, layer.diff_id or layer.digest, before, self._index.now_ns()
                )
        return finished

    def _is_proven(self, layer: Layer) -> bool:
        known = self._index.get(layer.blob)
        if known is None:
            return self._claimed_digest(layer)[0] != ""
        return known.proven

    def _layer(self, position: int, layer: Layer) -> Layer:
        found = self._with_known_digest(position, self._with_compression(position, layer))
        sent = self._send(position, found)
        if layer.compression != "none" and not layer.digest:
            plain = sent.diff_id or sent.digest
            self._index.put_packed(plain, _how(layer), sent.digest, sent.size)
        return sent

    def _send(self, position: int, layer: Layer) -> Layer:
        pending: Sequence[ImageSink] = self._sinks
        for attempt in range(ATTEMPTS):
            if self._stop.is_set():
                raise _Cancelled
            writers = _open_writers(layer, pending)
            if layer.digest and not writers:
                if attempt == 0:
                    self._count(known=1)
                    self._report(position, layer, layer.size, self._how_known(layer))
                return layer
            if self._is_whole(layer, writers):
                _commit(writers.values(), layer.digest)
                self._count(known=1)
                self._report(position, layer, layer.size, "known")
                return layer
            if attempt == 0:
                self._count(streamed=1)
            with self._interruptible(writers.values()):
                layer, broken = self._pump(position, layer, writers)
            if not broken:
                self._report(position, layer, layer.size, "written")
                return layer
            if attempt + 1 == ATTEMPTS:
                raise next(iter(broken.values()))
            self._report(position, layer, 0, "again")
            backoff_s = BACKOFF_S * 2**attempt * (0.5 + random.random())
            self._sleep(max(backoff_s, *(error.retry_after_s for error in broken.values())))
            pending = tuple(broken)
        raise AssertionError("unreachable: the last attempt returns or raises")

    @contextmanager
    def _interruptible(self, writers: Iterable[BlobWriter]) -> Iterator[None]:
        """Let `_break_off` reach the writers for as long as they are fed."""
        reachable = [writer for writer in writers if isinstance(writer, Interruptible)]
        with self._feeding_lock:
            self._feeding += reachable
        try:
            yield
        finally:
            with self._feeding_lock:
                self._feeding = [one for one in self._feeding if one not in reachable]

    def _is_whole(self, layer: Layer, writers: Mapping[ImageSink, BlobWriter]) -> bool:
        """True when the writers share all bytes with files whose digest is proven.

        The proof is asked for after the bytes were shared: it holds for files that
        have not been touched since they were hashed.  Files out of the artifact
        cache have no such proof, since the index knows them by their digest: they are
        read, to be compared with it.
        """
        complete = all(getattr(writer, "complete", False) for writer in writers.values())
        if not layer.digest or not complete or self._verify or _is_cached(layer.blob):
            return False
        known = self._index.get(layer.blob)
        return known is not None and known.proven and known.digest == layer.digest

    def _with_known_digest(self, position: int, layer: Layer) -> Layer:
        """Find the digest without sending a byte, where that is likely to spare the sending."""
        if layer.digest or layer.compression == "zstd":
            return layer
        is_alone = position not in self._unproven
        if is_alone:
            known = self._index.get(layer.blob)
            if known is not None and known.proven and not self._verify:
                return replace(layer, digest=known.digest)
            claimed, key_id = ("", "") if known is not None else self._claimed_digest(layer)
            if claimed and not self._verify:
                return replace(layer, digest=claimed, believed=key_id)
        if (is_alone and (known is not None or claimed)) or self._is_likely_there(layer):
            layer, _ = self._pump(position, layer, {}, "hashing")
        return layer

    def _with_compression(self, position: int, layer: Layer) -> Layer:
        """Decide whether to compress; what came of it before is remembered."""
        if layer.compression == "none" or layer.digest:
            return layer
        known = self._index.get(layer.blob)
        if known and known.proven and not self._verify and position not in self._unproven:
            packed = self._index.get_packed(known.digest, _how(layer))
            if packed is not None:
                return _packed(layer, known.digest, *packed)
        helps = layer.compression == "zstd" or is_worth_it(layer.blob, self._reader)
        return replace(layer, compression="zstd" if helps else "none")

    def _claimed_digest(self, layer: Layer) -> tuple[str, str]:
        """The digest that is proven for every output which has the bytes, and the key's id.

        Where one needs them they are read anyway: then it is their digest that counts.
        """
        if not layer.content or layer.role == "base" or not self._sinks:
            return "", ""
        found = self._earlier_layers()
        digests = {earlier.digest_of(layer) for earlier in found}
        claimed = digests.pop() if len(digests) == 1 else ""
        if not claimed:
            return "", ""
        with suppress(ProtocolFailed):  # a blob of another size than is claimed
            writers = _open_writers(replace(layer, digest=claimed), self._sinks)
            for writer in writers.values():
                writer.abort()
            return ("", "") if writers else (claimed, found[0].key_id)
        return "", ""

    def _is_likely_there(self, layer: Layer) -> bool:
        """Whether to read the layer once more than needed, should it not be there.

        What we made ourselves costs no reading.  A large remote file comes over the
        network, as the layer would go: every output must seem to have it.
        """
        if all(isinstance(segment, Inline) for segment in layer.blob.segments):
            return True
        alike = [earlier.has_alike(layer) for earlier in self._earlier_layers()]
        if layer.size > HASH_REMOTE_BELOW and not _is_local(layer.blob):
            return bool(alike) and all(alike)
        return any(alike)

    def _earlier_layers(self) -> list[EarlierLayers]:
        """What each sink remembers; asked for the first layer that is not known."""
        with self._earlier_lock:
            if self._earlier is None:
                self._earlier = [
                    _remembered(sink, with_claims=self._with_claims) for sink in self._sinks
                ]
            return self._earlier

    def _pump(
        self,
        position: int,
        layer: Layer,
        writers: Mapping[ImageSink, BlobWriter],
        state: Literal["streaming", "hashing"] = "streaming",
    ) -> tuple[Layer, dict[ImageSink, Unavailable]]:
        """Read the layer once: hash it, compress it if it shall be, and feed every writer.

        Gives the layer with its digest, and the sinks whose transfer broke off.
        """
        started_ns = self._index.now_ns()
        before = fingerprint_of(layer.blob)
        hashed = hashlib.sha256()
        packer = Packer(layer.blob.size) if layer.compression == "zstd" else None
        alive = dict(writers)
        broken: dict[ImageSink, Unavailable] = {}
        done = 0
        try:
            for chunk in self._reader.chunks(layer.blob):
                if self._stop.is_set():
                    raise _Cancelled
                hashed.update(chunk)
                _feed(packer.pack(chunk) if packer else chunk, alive, broken)
                done += len(chunk)
                self._report(position, layer, done, state)
            plain = digest = "sha256:" + hashed.hexdigest()
            if packer:
                _feed(packer.finish(), alive, broken)
                digest = packer.digest
            if layer.digest and layer.digest != digest:
                raise ProtocolFailed(
                    f"a layer of {layer.size} bytes has digest {digest}, expected {layer.digest}",
                    hint="the base image or the source is damaged; fetch it again",
                )
            # Before any output has it: who is killed in between must find it there.
            if position in self._parts - self._unproven:
                self._doubtful.add(position)
            elif position not in self._unproven:
                self._index.put(layer.blob, plain, before, started_ns)
            for sink, writer in list(alive.items()):
                try:
                    writer.commit(digest)
                except Unavailable as error:
                    broken[sink] = error
                    writer.abort()
                alive.pop(sink)
        except BaseException:
            for writer in alive.values():
                writer.abort()
            raise
        size = packer.size if packer else layer.size
        return _packed(layer, plain, digest, size), broken

    def _how_known(self, layer: Layer) -> LayerState:
        mounted = any(layer.digest in getattr(sink, "mounted", ()) for sink in self._sinks)
        return "mounted" if mounted else "known"

    def _report(self, position: int, layer: Layer, done: int, state: LayerState) -> None:
        with suppress(Exception):  # a broken progress display never fails a build
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


def _remembered(sink: ImageSink, *, with_claims: bool) -> EarlierLayers:
    if isinstance(sink, RemembersImages):
        return sink.earlier_layers(with_claims=with_claims)
    return EarlierLayers()


def sending_order(layers: Sequence[Layer]) -> list[int]:
    """Positions of the layers, the largest first: none of them is left alone at the end."""
    return sorted(range(len(layers)), key=lambda position: -layers[position].size)


def _chains(layers: Sequence[Layer], order: Sequence[int]) -> list[list[int]]:
    """Positions by what must go one after another, in the order of their first in `order`."""
    chains: dict[str, list[int]] = {}  # by remote file
    found: dict[int, list[int]] = {}
    for position, layer in enumerate(layers):
        files = [
            segment.url
            for segment in layer.blob.segments
            if isinstance(segment, RemoteRange) and is_in_order(segment)
        ]
        chain = next((chains[file] for file in files if file in chains), [])
        chain.append(position)
        chains.update(dict.fromkeys(files, chain))
        found[position] = chain
    once = {found[position][0]: found[position] for position in order}
    return list(once.values())


def _feed(
    chunk: memoryview,
    alive: dict[ImageSink, BlobWriter],
    broken: dict[ImageSink, Unavailable],
) -> None:
    """Give the chunk to every writer; move those that break off from `alive` to `broken`."""
    if not chunk:
        return
    for sink, writer in list(alive.items()):
        try:
            writer.write(chunk)
        except Unavailable as error:
            alive.pop(sink).abort()
            broken[sink] = error


def _how(layer: Layer) -> str:
    return f"{layer.compression} {codec()}"


def _packed(layer: Layer, plain: str, digest: str, size: int) -> Layer:
    """Give the layer its digests; `plain` is that of the tar."""
    if digest == plain or layer.compression == "none":
        return replace(layer, digest=digest, compression="none", believed="")
    return replace(
        layer,
        digest=digest,
        believed="",
        diff_id=plain,
        packed_size=size,
        media_type=MEDIA_PACKED,
        compression="zstd",
    )


def _open_writers(layer: Layer, sinks: Sequence[ImageSink]) -> dict[ImageSink, BlobWriter]:
    writers: dict[ImageSink, BlobWriter] = {}
    try:
        for sink in sinks:
            writer = sink.writer(layer)
            if writer is not None:
                writers[sink] = writer
    except BaseException:
        for writer in writers.values():
            writer.abort()
        raise
    return writers


def _commit(writers: Iterable[BlobWriter], digest: str) -> None:
    waiting = list(writers)
    try:
        while waiting:
            waiting[0].commit(digest)
            waiting.pop(0)
    except BaseException:
        for writer in waiting:
            writer.abort()
        raise


def _readable_copies(layers: Sequence[Layer], sinks: Sequence[ImageSink]) -> dict[str, Blob]:
    """Say where each layer can be read from now, preferring a copy on this machine.

    A sink that serves the image onwards then does not read the weights again.
    A copy in a registry is no gain: the weights are nearer.
    """
    copies = {}
    for layer in layers:
        located = (sink.locate(layer.digest) for sink in sinks)
        here = (blob for blob in located if blob is not None and _is_local(blob))
        copies[layer.digest] = next(here, layer.blob)
    return copies


def _is_cached(blob: Blob) -> bool:
    return any(isinstance(part, FileRange) and part.sha256 for part in blob.segments)


def _is_local(blob: Blob) -> bool:
    return not any(isinstance(segment, RemoteRange) for segment in blob.segments)


def _descriptor(layer: Layer) -> Descriptor:
    return Descriptor(
        media_type=layer.media_type,
        digest=layer.digest,
        size=layer.size,
        annotations=layer.annotations,
    )
