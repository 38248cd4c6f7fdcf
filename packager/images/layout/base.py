"""A base image from an OCI layout directory: `oci:DIR[:TAG][@DIGEST]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.core.errors import NotFound, ProtocolFailed
from packager.core.events import ignore
from packager.core.files.atomic import read_regular
from packager.core.image import Attached, BaseImage, Blob, Descriptor, Platform
from packager.core.references import DEFAULT_TAG, ImageTarget, LayoutTarget
from packager.core.suggestions import guessed
from packager.images.layout.artifacts import REF_NAME, is_artifact, read_attached
from packager.images.layout.parts import blob_at
from packager.images.layout.sink import REGISTRY, SPARSE_BASE
from packager.images.oci import (
    LONGEST_DOCUMENT,
    is_index,
    parse_base,
    parse_descriptor,
    parse_index,
    parse_manifest,
    sha256,
    shorten_list,
)
from packager.images.target import layout_of
from packager.images.variants import choose_platform, offered_platforms

_HINT = "name a directory that holds `oci-layout` and `index.json`"


class LayoutBase:
    """Reads manifest and configuration; layers stay where they are."""

    name = "oci"

    def facts(self, target: ImageTarget, platform: Platform) -> BaseImage:
        """Find the image in the layout, checking the digest of each document on the way."""
        found = read_documents(layout_of(target), platform)
        return parse_base(
            target.text,
            found.manifest,
            found.config,
            locate=found.locate,
            mount_from=found.mount_from,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutImage:
    """An image of a layout, by its documents."""

    root: Path
    manifest: bytes
    config: bytes
    offered: tuple[str, ...] = ()  # platforms, if the name refers to several images
    base_from: str = ""  # where the base's layers are, in a layout written without them
    entries: tuple[Mapping[str, Any], ...] = ()  # of `index.json`
    entry: Mapping[str, Any]  # the image's

    @property
    def index(self) -> str:
        """Return the digest of the index that lists the image; "" without one."""
        digest = str(self.entry.get("digest"))
        return "" if digest == sha256(self.manifest) else digest

    def attached(
        self, artifact_type: str = "", on_warning: Callable[[str], None] = ignore
    ) -> Iterator[Attached]:
        """Yield what is attached to the image; warn of what cannot be read."""
        return self._attached_to(sha256(self.manifest), artifact_type, on_warning)

    def index_attached(
        self, artifact_type: str, on_warning: Callable[[str], None]
    ) -> Iterator[Attached]:
        """Yield what is attached to the index that lists the image."""
        return self._attached_to(self.index, artifact_type, on_warning)

    def _attached_to(
        self, subject: str, artifact_type: str, on_warning: Callable[[str], None]
    ) -> Iterator[Attached]:
        def read(digest: str, most: int) -> bytes:
            return _checked(self.root, digest, most)

        yield from read_attached(self.entries, self.entry, subject, artifact_type, read, on_warning)

    @property
    def mount_from(self) -> str:
        """`HOST/REPOSITORY` that holds the base's layers; "" where none is known to."""
        is_registry = self.base_from.startswith(REGISTRY)
        return self.base_from.removeprefix(REGISTRY) if is_registry else ""

    def locate(self, descriptor: Descriptor) -> Blob:
        """Return where a layer can be read: this layout, or the registry that holds the base."""
        blob = blob_at(_path(self.root, descriptor.digest))
        if blob is not None and blob.length == descriptor.size:
            return blob
        if self.mount_from:
            from packager.images.registry.reader import registry_blob

            return registry_blob(self.mount_from, descriptor.digest, descriptor.size)
        if self.base_from:
            raise NotFound(
                f"the layout {str(self.root)!r} was written without its base {self.base_from!r}, "
                f"and lacks layer {descriptor.digest}",
                hint="build it again without --sparse-base",
            )
        raise NotFound(
            f"the layout {str(self.root)!r} lacks layer {descriptor.digest}",
            hint="make the layout again",
        )


def _layouts_beside(root: Path) -> list[str]:
    """Return the names of layouts in the directory where one is looked for."""
    try:
        return sorted(found.parent.name for found in root.parent.glob("*/oci-layout"))
    except OSError:
        return []


def read_documents(target: LayoutTarget, platform: Platform) -> LayoutImage:
    """Find an image in a layout."""
    root = target.directory
    if not (root / "oci-layout").is_file() or not (root / "index.json").is_file():
        shown = repr(str(root))
        raise NotFound(
            f"{shown} is not an OCI layout" if root.exists() else f"there is no directory {shown}",
            hint=guessed(root.name, _layouts_beside(root), _HINT),
        )
    entries = parse_index(_bytes(root, root / "index.json", LONGEST_DOCUMENT))
    entry = _choose(root, entries, target)
    document = _read(root, parse_descriptor(entry))
    offered: tuple[str, ...] = ()
    if is_index(target.text, document):
        offered = offered_platforms(document)
        document = _read(root, choose_platform(document, platform))
    config = _read(root, parse_manifest(target.text, document).config)
    base_from = (entry.get("annotations") or {}).get(SPARSE_BASE, "")
    return LayoutImage(
        root=root,
        manifest=document,
        config=config,
        offered=offered,
        base_from=base_from if isinstance(base_from, str) else "",
        entries=tuple(entries),
        entry=entry,
    )


def _choose(
    root: Path, entries: Sequence[Mapping[str, Any]], target: LayoutTarget
) -> Mapping[str, Any]:
    """Find the image of a digest or tag; without them `latest`, or the only image that there is."""
    tag = target.digest or target.tag or DEFAULT_TAG
    if len(entries) > 1:
        entries = [entry for entry in entries if not is_artifact(entry)] or entries
    names = [(entry.get("annotations") or {}).get(REF_NAME, "") for entry in entries]
    ids = [entry.get("digest") for entry in entries] if target.digest else names
    if tag in ids:
        return entries[ids.index(tag)]
    if len(entries) == 1 and not target.is_tagged:
        return entries[0]
    named = sorted(name for name in names if isinstance(name, str) and name)
    raise NotFound(
        f"the layout {str(root)!r} has no image {tag!r}",
        hint=f"it has {shorten_list(named) or 'no named image'}",
    )


def _read(root: Path, wanted: Descriptor) -> bytes:
    """Read a document of the layout; its digest must be the one that names it."""
    return _checked(root, wanted.digest, min(wanted.size, LONGEST_DOCUMENT))


def _checked(root: Path, digest: str, most: int) -> bytes:
    """Read a small blob whose digest must be the one that names it."""
    data = _bytes(root, _path(root, digest), most)
    if sha256(data) != digest:
        raise ProtocolFailed(
            f"blob {digest} in {str(root)!r} is damaged", hint="make the layout again"
        )
    return data


def _bytes(root: Path, path: Path, most: int) -> bytes:
    """Read a small regular file; raises where it is longer than stated."""
    try:
        data = read_regular(path, most)
    except FileNotFoundError as error:
        raise NotFound(
            f"the layout {str(root)!r} lacks {path.name!r}", hint="copy or build it again"
        ) from error
    except OSError as error:
        raise ProtocolFailed(
            f"{path.name!r} in {str(root)!r} cannot be read: {error.strerror}",
            hint="make the layout again",
        ) from error
    if len(data) > most:
        raise ProtocolFailed(
            f"{path.name!r} in {str(root)!r} is longer than {most} bytes",
            hint="make the layout again",
        )
    return data


def _path(root: Path, digest: str) -> Path:
    return root / "blobs" / "sha256" / digest.removeprefix("sha256:")
