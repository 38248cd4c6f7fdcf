"""Making a bundle: each weight is read once and written once; a killed run goes on."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from packager.addons.bundle.manifest import (
    CACHE,
    CATALOG,
    IMAGES,
    MANIFEST,
    SIGNATURE,
    WHEELS,
    Bundle,
    BundledFile,
    BundledImage,
    BundledPart,
)
from packager.addons.bundle.sink import NEW, BundleSink
from packager.core.errors import Unavailable, UsageError
from packager.core.events import EventSink, working
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.image import Platform
from packager.core.references import ImageTarget, LayoutTarget, RegistryTarget
from packager.core.text import json_text
from packager.core.version import __version__
from packager.images.copy import Write, copy_attached, copy_image
from packager.images.layout.parts import parts_of
from packager.images.opened import OpenImage

Copy = Callable[[BundleSink], Write]  # what writes an image to one sink
_FOLDERS = {IMAGES, CACHE, WHEELS, CATALOG, SIGNATURE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """A bundle that is being made."""

    directory: Path
    part_bytes: int
    since: Bundle | None
    on_event: EventSink
    on_warning: Callable[[str], None]
    cut: dict[str, tuple[BundledPart, ...]] = field(default_factory=dict)

    @property
    def earlier(self) -> frozenset[str]:
        """Return the blobs that are left out."""
        return self.since.blobs if self.since else frozenset()

    def sink(self, layout: str, tag: str) -> BundleSink:
        """Return the sink of one image of a layout."""
        return BundleSink(
            self.directory / layout,
            tag,
            part_bytes=self.part_bytes,
            earlier=self.earlier,
            cut=self.cut,
        )


@contextmanager
def begun(making: Making) -> Iterator[None]:
    """Make the directory, or take that of a run that was killed; hold its lock until the end.

    Raises `UsageError` for a directory of another kind, `Unavailable` where another run writes it.
    """
    directory = making.directory
    if (directory / MANIFEST).exists():
        raise UsageError(
            f"{str(directory)!r} is a complete bundle",
            hint="name a new directory, and this one's bundle.json with --since for what changed",
        )
    with explain_disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        if {one.name for one in directory.iterdir() if not one.name.endswith(".tmp")} - _FOLDERS:
            raise UsageError(
                f"{str(directory)!r} holds other files", hint="name a new directory for the bundle"
            )
        lock = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Unavailable(
                f"another run makes a bundle in {str(directory)!r}", hint="wait until it ends"
            ) from error
        for leftover in (*directory.rglob(".*.tmp"), *directory.rglob(f"{NEW}-*")):
            leftover.unlink()
        yield
    finally:
        os.close(lock)


def add_images(
    making: Making,
    targets: Sequence[ImageTarget],
    platform: Platform,
    open_image: Callable[[ImageTarget, Platform], OpenImage],
    writes_to: Copy,
) -> tuple[BundledImage, ...]:
    """Write images with what is attached to them; return their rows of the manifest."""
    found = []
    for number, target in enumerate(targets):
        tag = f"image-{number}"
        opened = open_image(target, platform)
        sink = making.sink(IMAGES, tag)
        written, _ = copy_image(opened, writes_to(sink))
        attached = copy_attached(opened, written, sink.attach, making.on_warning)
        digest = written.image.digest
        found.append(BundledImage(name=name_of(target), tag=tag, digest=digest, attached=attached))
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"two images are named {twice!r}", hint="name each image once")
    return tuple(found)


def name_of(target: ImageTarget) -> str:
    """Return the name that an image gets in any registry: without a host, with a tag."""
    if isinstance(target, RegistryTarget):
        name, tag = target.image.repository, target.image.tag
    elif isinstance(target, LayoutTarget):
        name, tag = target.directory.resolve().name.lower(), target.tag
    else:
        name, _, tag = target.rest.rpartition("/")[2].partition(":")
    return f"{name}:{tag or 'latest'}"


def finish(
    making: Making, images: Sequence[BundledImage], sign: Callable[[Bundle, bytes], None]
) -> Bundle:
    """Write the manifest over everything in the directory; blobs are not read again.

    `sign` gets the manifest before it is written: an unsigned bundle is never taken for complete.
    """
    with working(making.on_event, "manifest", MANIFEST), explain_disk_errors(making.directory):
        bundle = Bundle(
            packager_version=__version__,
            images=tuple(images),
            files=tuple(_files(making)),
            earlier=tuple(sorted(making.earlier)),
        )
        data = f"{json_text(bundle.model_dump(mode='json'))}\n".encode()
        sign(bundle, data)
        write_atomically(making.directory / MANIFEST, data)
    return bundle


def _files(making: Making) -> Iterator[BundledFile]:
    """Yield the rows of all files, by path; parts belong to their blob's row."""
    seen: set[Path] = set()
    for folder, _, names in sorted(os.walk(making.directory)):
        for name in sorted(names):
            path = Path(folder, name.partition(".part-")[0])
            if path in seen or path.parent == making.directory:
                continue
            seen.add(path)
            relative = path.relative_to(making.directory)
            is_blob = relative.parts[1:3] == ("blobs", "sha256")
            files = parts_of(path)
            size = sum(file.stat().st_size for file in files)
            parts: tuple[BundledPart, ...] = ()
            if len(files) > 1:
                parts = making.cut.get(path.name) or tuple(map(_part, files))
            digest = path.name if is_blob else hash_file(path)
            yield BundledFile(path=relative.as_posix(), sha256=digest, size=size, parts=parts)


def _part(file: Path) -> BundledPart:
    return BundledPart(sha256=hash_file(file), size=file.stat().st_size)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
