"""Entries of the artifact cache as OCI artifacts, in registries and layouts.

The entry's document is the artifact's configuration, byte for byte and with its signatures; every
blob is a layer, annotated with the path it is for. So a registry shows, copies and mirrors entries
as it does images. This is for transport, not a store: a client cannot repair files that a registry
damaged. Every downloaded file is compared with the entry before any is published.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from artifact_cache.entry import MAX_STORED_BYTES, Entry, Output, entry_bytes, parse_entry
from artifact_cache.errors import MalformedEntry
from artifact_cache.files import said
from artifact_cache.key import KIND_PATTERN
from artifact_cache.store import CacheStore, StoredEntry
from artifact_cache.stores.archive import Imported, publish_gathered
from packager.core.errors import NotFound, ProtocolFailed
from packager.core.files.atomic import read_regular
from packager.core.image import (
    MEDIA_MANIFEST,
    BaseImage,
    Blob,
    Descriptor,
    FileRange,
    ImageRef,
    ImageSpec,
    Layer,
    Platform,
    RuntimeConfig,
    SealedImage,
)
from packager.core.ports import ImageSink
from packager.core.references import ImageTarget, LayoutTarget
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.oci import canonical_json, parse_index, sha256
from packager.images.opened import OpenImage
from packager.images.tee import write_image

MEDIA_ENTRY = "application/vnd.packager.cache.entry.v1+json"
MEDIA_BLOB = "application/vnd.packager.cache.blob.v1"
TITLE = "org.opencontainers.image.title"  # the annotation by which other tools name a file
REF_NAME = "org.opencontainers.image.ref.name"
MAX_INDEX_BYTES = 4 * 1024**2
_KEY_DIGITS = 16
_TAG = re.compile(rf"{KIND_PATTERN.strip('^$')}-[0-9a-f]{{{_KEY_DIGITS}}}")


def not_an_entry(reference: str, reason: str) -> ProtocolFailed:
    """Return an error: the reference does not hold a cache entry."""
    return ProtocolFailed(
        f"{reference!r} is not an entry of the artifact cache: {reason}",
        hint="name an artifact that was exported from a cache",
        code="NotAnEntry",
    )


def tag_of(entry: Entry) -> str:
    """Return an entry's default tag: its kind and the start of its key."""
    return f"{entry.kind}-{entry.key[:_KEY_DIGITS]}"


def entries_of_layout(source: ImageTarget) -> tuple[ImageTarget, ...]:
    """Return one target per entry of a layout without a tag; else the target itself."""
    if not isinstance(source, LayoutTarget) or source.tag is not None:
        return (source,)
    index = source.directory / "index.json"
    try:
        data = read_regular(index, MAX_INDEX_BYTES)
    except OSError as error:
        raise NotFound(
            f"{source.text!r} is not a layout: {said(error)}",
            hint="name a directory with an index.json",
        ) from error
    try:
        listed = parse_index(data)
    except ProtocolFailed as error:
        raise not_an_entry(
            source.text, f"its index.json cannot be read: {error.message}"
        ) from error
    named = [(one.get("annotations") or {}).get(REF_NAME) for one in listed]
    tags = [tag for tag in named if isinstance(tag, str) and _TAG.fullmatch(tag)]
    if not tags:
        raise not_an_entry(source.text, "its index.json names none")
    return tuple(source.with_tag(tag) for tag in tags)


def export_entry(stored: StoredEntry, sink: ImageSink, scratch: Path) -> ImageRef:
    """Write an entry to where `sink` leads, and name it there.

    `scratch` is an empty directory for the files on their way, best on the
    disk of the store: then they are not copied.
    """
    files = scratch / "files"
    files.mkdir()
    stored.extract(files)
    image, sealed = describe_artifact(stored.entry, files)
    written = write_image(
        image,
        [sink],
        reader=BlobReader(),
        index=DigestIndex(scratch / "digests"),
        sealed=sealed,
    )
    return written.refs[0]


def import_entry(
    target: ImageTarget,
    store: CacheStore,
    scratch: Path,
    *,
    open_image: Callable[[ImageTarget], OpenImage],
    reader: BlobReader,
) -> Imported:
    """Publish the entry that an artifact holds, after all of it was compared.

    `scratch` is an empty directory with room for its files.
    """
    found = open_image(target)
    entry = _entry_of(target.text, found)
    sizes = {output.sha256: output.size for output in entry.outputs}
    for layer in found.image.layers:
        digest = layer.descriptor.digest.removeprefix("sha256:")
        _gather(reader, found.locate(layer.descriptor), digest, sizes[digest], scratch)
    return publish_gathered([entry], store, scratch)


def describe_artifact(entry: Entry, files: Path) -> tuple[ImageSpec, SealedImage]:
    """Describe the artifact of an entry whose files are in a directory."""
    layers = tuple(
        Layer(
            role="compiled",
            blob=_file(files / output.path, output),
            media_type=MEDIA_BLOB,
            digest=f"sha256:{output.sha256}",
            diff_id=f"sha256:{output.sha256}",
            annotations={TITLE: output.path},
        )
        for output in {output.sha256: output for output in reversed(entry.outputs)}.values()
    )
    layers = tuple(sorted(layers, key=lambda layer: layer.annotations[TITLE]))
    config = entry_bytes(entry)
    sealed = _sealed(config, layers)
    base = BaseImage(
        reference=f"cache:{tag_of(entry)}",
        digest=sealed.digest,
        platform=Platform(),
        layers=(),
        config={},
    )
    return ImageSpec(base=base, layers=layers, runtime=RuntimeConfig(), created=""), sealed


def _sealed(config: bytes, layers: tuple[Layer, ...]) -> SealedImage:
    descriptor = Descriptor(media_type=MEDIA_ENTRY, digest=sha256(config), size=len(config))
    descriptors = tuple(
        Descriptor(
            media_type=layer.media_type,
            digest=layer.digest,
            size=layer.size,
            annotations=layer.annotations,
        )
        for layer in layers
    )
    manifest = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_MANIFEST,
            "artifactType": MEDIA_ENTRY,
            "config": descriptor.to_json(),
            "layers": [layer.to_json() for layer in descriptors],
        }
    )
    return SealedImage(
        config=config,
        manifest=manifest,
        config_descriptor=descriptor,
        manifest_descriptor=Descriptor(
            media_type=MEDIA_MANIFEST, digest=sha256(manifest), size=len(manifest)
        ),
        layers=descriptors,
    )


def _file(path: Path, output: Output) -> Blob:
    content = FileRange(path=str(path), offset=0, length=output.size, sha256=output.sha256)
    return Blob((content,))


def _entry_of(reference: str, found: OpenImage) -> Entry:
    """Read the entry, and hold the manifest to it: the same blobs, each once, of the same size."""
    image = found.image
    if image.manifest.get("artifactType") != MEDIA_ENTRY:
        kind = image.manifest.get("artifactType") or "an image"
        raise not_an_entry(reference, f"it is {kind!r}")
    if len(image.sealed.config) > MAX_STORED_BYTES:
        raise not_an_entry(reference, "its document is too large")
    try:
        entry = parse_entry(image.sealed.config)
    except MalformedEntry as error:
        raise not_an_entry(reference, error.message) from error
    named = {f"sha256:{output.sha256}": output.size for output in entry.outputs}
    there: Mapping[str, int] = {
        layer.descriptor.digest: layer.descriptor.size for layer in image.layers
    }
    if there != named or len(image.layers) != len(named):
        raise not_an_entry(reference, "its layers are not the files that its document names")
    return entry


def _gather(reader: BlobReader, blob: Blob, digest: str, size: int, scratch: Path) -> None:
    """Write a blob's bytes to a file named by their digest, after verifying it."""
    hashed = hashlib.sha256()
    left = size
    with (scratch / digest).open("xb") as file:
        for chunk in reader.chunks(blob):
            left -= len(chunk)
            if left < 0:
                break
            hashed.update(chunk)
            file.write(chunk)
    if left or hashed.hexdigest() != digest:
        raise ProtocolFailed(
            f"layer sha256:{digest} holds other bytes than its digest says",
            hint="ask the registry directly, or export the entry again",
        )
    (scratch / digest).chmod(0o444)  # so that it can be linked from here on
