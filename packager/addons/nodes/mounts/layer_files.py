"""Layers as files that the kernel can mount: proven, open, and with an index where they are tars.

A layer's file is opened once; what was proven is what is mounted, whatever happens to its name
meanwhile.  The index of a tar is made from the tar's headers at each mount and has no name: what
an earlier run, or anybody, left on a disk is never mounted.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from packager.addons.nodes.node_cache.entry_check import OnBytes, find_entry, verify_entry
from packager.addons.nodes.node_cache.fill import check_diff_id, native_size
from packager.addons.nodes.node_cache.places import entry_path
from packager.core.errors import NotFound, PackagerError
from packager.core.files.atomic import explain_disk_errors
from packager.core.files.opening import identity_of, open_checked
from packager.core.image import MEDIA_EROFS, Blob, FileRange, Inline
from packager.core.units import MIB
from packager.images.digest_index import DigestIndex, fingerprint_of
from packager.images.erofs.metadata import make_index
from packager.images.erofs.nodes import LayerTree
from packager.images.erofs.scan import TarScanner
from packager.images.opened import OpenImage
from packager.images.rootfs.unpacking import is_compressed, layer_broken
from packager.images.stored import StoredLayer

_HEADERS = 4096  # what is read at once of a tar whose contents are passed over
_PROVEN_ENTRY = Inline(b"packager: an entry of a node cache, of the layer with this diffID\0")


def layer_compressed(image: str, digest: str) -> PackagerError:
    """Return an error: a layer that would have to be unpacked before it can be mounted."""
    return PackagerError(
        f"layer {digest} is compressed and cannot be mounted where it lies",
        hint=f"unpack it once: `packager node-cache {image} CACHE`, "
        "then mount with --node-cache CACHE",
        code="LayerCompressed",
        exit_code=65,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFile:
    """Open files of one layer, which the kernel mounts."""

    layer: StoredLayer
    metadata: int  # descriptor of the file system
    device: int | None = None  # descriptor of the tar that its data are in
    proven: bool  # False: its bytes were not compared with its digest


@contextmanager
def layer_in_layout(
    source: OpenImage,
    layer: StoredLayer,
    index: DigestIndex,
    *,
    scratch: Path,
    verify: bool,
    on_bytes: OnBytes,
) -> Iterator[LayerFile]:
    """Open a layer of a layout, and make its index in the directory `scratch`."""
    descriptor = layer.descriptor
    if is_compressed(descriptor.media_type):
        raise layer_compressed(source.image.reference, descriptor.digest)
    check_diff_id(layer)
    place = _file_of(source, layer)
    blob = Blob((FileRange(path=str(place), offset=0, length=layer.size),))
    with open_checked(str(place)) as file:
        opened = file.fileno()
        if os.fstat(opened).st_size != layer.size:
            raise layer_broken(descriptor.digest, "its file has another size than its image says")
        is_known = _is_known(index, blob, descriptor.digest, place, opened)
        hashes = verify and not is_known
        scanner = TarScanner() if descriptor.media_type != MEDIA_EROFS else None
        if hashes:
            _prove(opened, blob, layer, index, scanner, on_bytes)
        elif scanner is not None:
            _scan_headers(opened, layer.size, scanner)
        proven = hashes or is_known
        if scanner is None:
            yield LayerFile(layer=layer, metadata=opened, proven=proven)
            return
        with _index_file(scanner.finish(), descriptor.digest, scratch) as made:
            yield LayerFile(layer=layer, metadata=made, device=opened, proven=proven)


@contextmanager
def layer_in_node_cache(
    directory: Path, layer: StoredLayer, index: DigestIndex, *, verify: bool, on_bytes: OnBytes
) -> Iterator[LayerFile]:
    """Open a layer's entry of a node cache."""
    check_diff_id(layer)
    path = entry_path(directory, layer.diff_id)
    found = find_entry(path, native_size(layer))
    if found is None:
        state = "is damaged" if path.exists() else "is not there"
        raise NotFound(
            f"the entry of layer {layer.diff_id} in the node cache {str(directory)!r} {state}",
            hint="fill it with `packager node-cache IMAGE DIRECTORY`",
        )
    content = FileRange(path=str(path), offset=0, length=found.size)
    blob = Blob((_PROVEN_ENTRY, content))
    with open_checked(str(path)) as file:
        opened = file.fileno()
        is_known = _is_known(index, blob, layer.diff_id, path, opened)
        if verify and not is_known:
            started_ns, before = index.now_ns(), fingerprint_of(blob)
            if not (
                verify_entry(found, layer.diff_id, native_size(layer), on_bytes)
                and identity_of(os.fstat(opened)) == found.identity
            ):
                raise layer_broken(
                    layer.diff_id, f"its entry in the node cache {str(directory)!r} is damaged"
                )
            index.put(blob, layer.diff_id, before, started_ns)
        yield LayerFile(layer=layer, metadata=opened, proven=verify or is_known)


def _file_of(source: OpenImage, layer: StoredLayer) -> Path:
    match source.locate(layer.descriptor).segments:
        case (FileRange(path=path),):
            return Path(path)
    raise NotFound(
        f"layer {layer.descriptor.digest} of {source.image.reference!r} is not on this machine",
        hint="copy the image with `packager copy IMAGE oci:DIR`, and mount that",
    )


def _is_known(index: DigestIndex, blob: Blob, digest: str, path: Path, file: int) -> bool:
    """Return whether the open file was proven to have the digest, and was not touched since."""
    known = index.get(blob)
    with suppress(OSError):
        is_same = identity_of(path.stat()) == identity_of(os.fstat(file))
        return known is not None and known.proven and known.digest == digest and is_same
    return False


def _prove(
    file: int,
    blob: Blob,
    layer: StoredLayer,
    index: DigestIndex,
    scanner: TarScanner | None,
    on_bytes: OnBytes,
) -> None:
    """Hash the file, and look at its headers on the way."""
    started_ns, before = index.now_ns(), fingerprint_of(blob)
    identity = identity_of(os.fstat(file))
    hashed = hashlib.sha256()
    done = 0
    while chunk := os.pread(file, MIB, done):
        hashed.update(chunk)
        if scanner is not None:
            scanner.feed(chunk)
        done += len(chunk)
        on_bytes(done)
    digest, found = layer.descriptor.digest, f"sha256:{hashed.hexdigest()}"
    if found != digest:
        raise layer_broken(digest, f"its file has the digest {found}")
    if identity_of(os.fstat(file)) != identity:
        raise layer_broken(digest, "its file changed while it was read")
    index.put(blob, digest, before, started_ns)


def _scan_headers(file: int, size: int, scanner: TarScanner) -> None:
    """Read a tar's headers, and pass over what is between them."""
    position = 0
    while position < size:
        piece = os.pread(file, min(_HEADERS, size - position), position)
        if not piece:
            return
        scanner.feed(piece)
        position += len(piece)
        passed = min(scanner.skippable, size - position)
        scanner.skip(passed)
        position += passed


@contextmanager
def _index_file(tree: LayerTree, digest: str, directory: Path) -> Iterator[int]:
    """Write the metadata of a tar into a file without a name; yield its descriptor."""
    data = make_index(tree, digest.removeprefix("sha256:"))
    with explain_disk_errors(directory), tempfile.TemporaryFile(dir=directory) as file:
        file.write(data)
        file.flush()
        yield file.fileno()
