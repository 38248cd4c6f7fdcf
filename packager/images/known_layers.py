"""Lookup of layers before they are read: digests, compressed forms, and which outputs have them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from packager.core.image import BY_CACHE, Inline, Layer
from packager.core.ports import ImageSink, LayerHints
from packager.core.units import MIB
from packager.images.blobs import BlobReader
from packager.images.compression import MEDIA_COMPRESSED, codec, is_worth_it
from packager.images.digest_index import DigestIndex
from packager.images.order import is_local
from packager.images.remote_layers import RemoteLayerIndex
from packager.images.writers import all_have

HASH_REMOTE_BELOW = 32 * MIB


class KnownLayers:
    """Look-ups for the layers of one image, shared by the threads that send them."""

    def __init__(
        self,
        sinks: Sequence[ImageSink],
        index: DigestIndex,
        reader: BlobReader,
        *,
        verify: bool,
        with_claims: bool,
    ) -> None:
        self._sinks = sinks
        self._index = index
        self._reader = reader
        self._verify = verify
        self._with_claims = with_claims  # whether they could spare reading a layer
        self._earlier_lock = threading.Lock()
        self._earlier: list[LayerHints] | None = None

    def is_proven(self, layer: Layer) -> bool:
        """Check whether the layer's digest follows from contents that were held to proof."""
        known = self._index.get(layer.blob)
        if known is None:
            return self._claimed_digest(layer)[0] != ""
        return known.proven

    def look_up(self, layer: Layer, *, is_alone: bool) -> tuple[Layer, bool]:
        """Return the layer with what is known of it, and whether to hash it before sending.

        `is_alone` is False for parts of one remote file that only the whole of it can prove.
        """
        layer = self._with_compression(layer, is_alone=is_alone)
        if layer.digest or layer.compression == "zstd":
            return layer, False
        known, claimed = None, ""
        if is_alone:
            known = self._index.get(layer.blob)
            if known is not None and known.proven and not self._verify:
                return replace(layer, digest=known.digest), False
            claimed, key_id = ("", "") if known is not None else self._claimed_digest(layer)
            if claimed and not self._verify:
                return replace(layer, digest=claimed, believed=key_id), False
        return layer, known is not None or claimed != "" or self._is_likely_there(layer)

    def _with_compression(self, layer: Layer, *, is_alone: bool) -> Layer:
        """Decide whether to compress; what came of it before is remembered."""
        if layer.compression == "none" or layer.digest:
            return layer
        known = self._index.get(layer.blob)
        if known and known.proven and not self._verify and is_alone:
            packed = self._index.get_packed(known.digest, compression_of(layer))
            if packed is not None:
                return with_digests(layer, known.digest, *packed)
        helps = layer.compression == "zstd" or is_worth_it(layer.blob, self._reader)
        return replace(layer, compression="zstd" if helps else "none")

    def _claimed_digest(self, layer: Layer) -> tuple[str, str]:
        """The digest that is proven for every output which has the bytes, and by what.

        That is the artifact cache, or the key of that id.  Where an output needs the bytes they are
        read anyway: then it is their digest that counts.
        """
        if not layer.content or layer.role == "base" or not self._sinks:
            return "", ""
        if layer.kept and all_have(layer, layer.kept, self._sinks):
            return layer.kept, BY_CACHE
        found = self._earlier_layers()
        digests = {earlier.digest_of(layer) for earlier in found}
        claimed = digests.pop() if len(digests) == 1 else ""
        if not claimed or not all_have(layer, claimed, self._sinks):
            return "", ""
        return claimed, found[0].key_id

    def _is_likely_there(self, layer: Layer) -> bool:
        """Whether to read the layer once more than needed, should it not be there.

        What we made ourselves costs no reading.  A large remote file comes over the
        network, as the layer would go: every output must seem to have it.
        """
        if all(isinstance(segment, Inline) for segment in layer.blob.segments):
            return True
        alike = [earlier.has_similar(layer) for earlier in self._earlier_layers()]
        if layer.size > HASH_REMOTE_BELOW and not is_local(layer.blob):
            return bool(alike) and all(alike)
        return any(alike)

    def _earlier_layers(self) -> list[LayerHints]:
        """Return the layers that each sink knows; requested for the first unknown layer."""
        with self._earlier_lock:
            if self._earlier is None:
                self._earlier = [
                    _remembered(sink, with_claims=self._with_claims) for sink in self._sinks
                ]
            return self._earlier


def _remembered(sink: ImageSink, *, with_claims: bool) -> LayerHints:
    earlier = sink.earlier_layers(with_claims=with_claims)
    return RemoteLayerIndex() if earlier is None else earlier


def compression_of(layer: Layer) -> str:
    """Return how a layer is compressed, as the digest index names it."""
    return f"{layer.compression} {codec()}"


def with_digests(layer: Layer, plain: str, digest: str, size: int) -> Layer:
    """Return the layer with its digests; `plain` is that of the tar."""
    if digest == plain or layer.compression == "none":
        return replace(layer, digest=digest, compression="none", believed="")
    return replace(
        layer,
        digest=digest,
        believed="",
        diff_id=plain,
        compressed_size=size,
        media_type=MEDIA_COMPRESSED,
        compression="zstd",
    )
