"""What a bundle holds: images by digest, files by SHA-256 and size; large ones in parts.

The manifest is written last: a directory without it is not a bundle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from packager.core.documents import NotStrict, parse_model
from packager.core.errors import ModelRefused, NotFound
from packager.core.files.atomic import read_regular
from packager.core.strict_models import StrictDocument
from packager.images.layout.parts import part_path

BUNDLE_SCHEMA = 1
MANIFEST = "bundle.json"
SIGNATURE = "bundle.sigstore.json"
IMAGES, CACHE = "images", "cache"  # layouts
WHEELS = "wheels"
CATALOG = "catalog"
PART_BYTES = 4_000_000_000  # FAT32 holds a byte less than 4 GiB
LEAST_PART_BYTES = 1_000_000
MOST_BYTES = 64 * 1024 * 1024  # of the manifest

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# Relative, without `.`, `..` or anything that another system reads differently.
RelativePath = Annotated[
    str,
    StringConstraints(pattern=r"^[\w+@=-][\w.+@=-]*(/[\w+@=-][\w.+@=-]*){0,15}$", max_length=512),
]


class BundledPart(StrictDocument):
    """One of the files that a large one was cut into."""

    sha256: Sha256
    size: int = Field(ge=1)


class BundledFile(StrictDocument):
    """A file; with parts, it lies in `PATH.part-000` and so on."""

    path: RelativePath
    sha256: Sha256
    size: int = Field(ge=0)
    parts: tuple[BundledPart, ...] = ()

    @property
    def is_blob(self) -> bool:
        """Return whether it is a blob of a layout, which is named by its digest."""
        return Path(self.path).parts[1:3] == ("blobs", "sha256")


class BundledImage(StrictDocument):
    """An image, with the name that it had."""

    name: str = Field(min_length=1, max_length=512)  # `models/tiny:1`, without a host
    tag: str = Field(pattern=r"^image-[0-9]{1,4}$")  # its name in the layout
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    attached: int = Field(ge=0)  # how many artifacts and signature tags go with it


class Bundle(StrictDocument):
    """The manifest of a bundle."""

    schema_version: int = BUNDLE_SCHEMA
    packager_version: str
    images: tuple[BundledImage, ...]
    files: tuple[BundledFile, ...]
    # Blobs that earlier bundles have: these are not among the files.
    earlier: tuple[Sha256, ...] = ()

    @property
    def blobs(self) -> frozenset[str]:
        """Return the SHA-256 of all blobs, those of earlier bundles included."""
        held = {
            one.sha256 for one in self.files if Path(one.path).parts[1:3] == ("blobs", "sha256")
        }
        return frozenset(held | set(self.earlier))

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(one.size for one in self.files)


def files_of(bundle: Bundle) -> Iterator[tuple[str, str, int]]:
    """Yield path, SHA-256 and size of every file on the disk: parts instead of what was cut."""
    for one in bundle.files:
        for number, part in enumerate(one.parts):
            yield part_path(Path(one.path), number).as_posix(), part.sha256, part.size
        if not one.parts:
            yield one.path, one.sha256, one.size


def read_bundle(directory: Path) -> Bundle:
    """Read the manifest of a directory; raises `NotFound` or `ModelRefused`."""
    place = directory / MANIFEST
    try:
        data = read_regular(place, MOST_BYTES)
    except OSError as error:
        raise NotFound(
            f"{str(directory)!r} is not a complete bundle: {MANIFEST} cannot be read",
            hint="name the directory that `packager bundle create` printed, with all of its files",
        ) from error
    return parse_bundle(data, str(place))


def parse_bundle(data: bytes, name: str) -> Bundle:
    """Parse a manifest; raises `ModelRefused` for what is not one of this version."""
    try:
        bundle = parse_model(Bundle, data, max_bytes=MOST_BYTES)
    except NotStrict as error:
        raise _refused(name, str(error)) from error
    if bundle.schema_version != BUNDLE_SCHEMA:
        raise _refused(name, f"it has version {bundle.schema_version}, not {BUNDLE_SCHEMA}")
    paths = [path for path, _, _ in files_of(bundle)]
    if len(set(map(str.lower, paths))) < len(paths) or MANIFEST in paths:
        raise _refused(name, "it names a file twice")
    for one in bundle.files:
        if one.parts and sum(part.size for part in one.parts) != one.size:
            raise _refused(name, f"the parts of {one.path!r} have another size")
        if one.is_blob and Path(one.path).name != one.sha256:
            raise _refused(name, f"blob {Path(one.path).name!r} has another digest")
    return bundle


def _refused(name: str, why: str) -> ModelRefused:
    return ModelRefused(
        f"{name!r} is refused: {why}",
        hint="copy the bundle again from where it was made",
        code="BundleRefused",
    )
