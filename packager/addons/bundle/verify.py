"""Reading a bundle as a stranger's: every file against the manifest, nothing else beside them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packager.addons.bundle.create import hash_file
from packager.addons.bundle.manifest import (
    IMAGES,
    MANIFEST,
    SIGNATURE,
    Bundle,
    files_of,
    read_bundle,
)
from packager.addons.bundle.signing import check_signed
from packager.core.errors import ModelRefused, PackagerError
from packager.core.events import EventSink, working
from packager.core.files.atomic import read_regular
from packager.core.image import Descriptor
from packager.images.oci import LONGEST_DOCUMENT, is_index, parse_manifest, parse_object, sha256
from packager.images.signatures.verifying import PublicKey

MOST_FAULTS = 20


def verify_bundle(
    directory: Path,
    on_event: EventSink,
    *,
    keys: Sequence[PublicKey] = (),
    is_read: bool = True,
) -> Bundle:
    """Return the manifest of a bundle whose files are what it says.

    With `keys`, one of them must have signed it: asked before anything else of it is read.
    Without `is_read`, names and sizes are compared, and digests when the files are used.
    Raises `ModelRefused` with every fault, up to twenty.
    """
    bundle = read_bundle(directory)
    if keys:
        check_signed(directory, keys)
    faults = list(_faults(directory, bundle, on_event, is_read=is_read))
    faults += _incomplete(directory, bundle) if not faults else ()
    if faults:
        more = f" and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
        raise ModelRefused(
            f"the bundle {str(directory)!r} is not what its manifest says: "
            f"{'; '.join(faults[:MOST_FAULTS])}{more}",
            hint="copy these files again from where the bundle was made",
            code="BundleDamaged",
        )
    return bundle


def _faults(
    directory: Path, bundle: Bundle, on_event: EventSink, *, is_read: bool
) -> Iterator[str]:
    wanted = {path: (digest, size) for path, digest, size in files_of(bundle)}
    found = dict(_on_disk(directory))
    yield from (f"{path!r} is not in the manifest" for path in sorted(found.keys() - wanted.keys()))
    yield from (f"{path!r} is missing" for path in sorted(wanted.keys() - found.keys()))
    for path in sorted(wanted.keys() & found.keys()):
        digest, size = wanted[path]
        mode, has = found[path]
        if not stat.S_ISREG(mode):
            yield f"{path!r} is not a file"
        elif has != size:
            yield f"{path!r} has {has:,} bytes, not {size:,}"
        elif is_read:
            with working(on_event, "compare", path):
                same = hash_file(directory / path) == digest
            if not same:
                yield f"{path!r} has other bytes"


def _on_disk(directory: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield what is in a directory but the manifest, with its type and size; links stay links."""
    waiting = [directory]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                path = Path(entry.path).relative_to(directory).as_posix()
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif path not in (MANIFEST, SIGNATURE):
                    status = entry.stat(follow_symlinks=False)
                    yield path, (status.st_mode, status.st_size)


def _incomplete(directory: Path, bundle: Bundle) -> Iterator[str]:
    """Yield which blobs of which images are nowhere: neither here nor in an earlier bundle."""
    here, known = {one.sha256: one.size for one in bundle.files}, bundle.blobs
    for image in bundle.images:
        for one in _needed(directory, image.digest, here):
            name = one.digest.removeprefix("sha256:")
            if name not in known:
                yield f"{image.name!r} lacks blob {name}"


def _needed(directory: Path, digest: str, here: Mapping[str, int]) -> Iterator[Descriptor]:
    """Yield the blobs of an image, and of the images of an index."""
    name = digest.removeprefix("sha256:")
    try:
        place = directory / IMAGES / "blobs" / "sha256" / name
        document = read_regular(place, min(here.get(name, 0), LONGEST_DOCUMENT))
        if sha256(document) != digest:
            return
        if is_index(digest, document):
            for one in parse_object(document, digest).get("manifests", ()):
                yield from _needed(directory, str(one.get("digest")), here)
            return
        manifest = parse_manifest(digest, document)
        yield from (manifest.config, *manifest.layers)
    except (OSError, PackagerError, AttributeError):
        yield Descriptor(media_type="", digest=digest, size=0)
