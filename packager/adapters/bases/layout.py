"""A base image from an OCI layout directory: `oci:DIR[:TAG]`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.adapters.sinks.layout import (
    REF_NAME,
    REGISTRY,
    SPARSE_BASE,
    split_layout_reference,
)
from packager.core.image import BaseImage, Blob, Descriptor, FileRange, Platform
from packager.errors import NotFound, ProtocolFailed
from packager.imaging.oci import INDEX_TYPES, choose_platform, offered_platforms, parse_base, sha256


class LayoutBase:
    """Reads manifest and configuration; layers stay where they are."""

    name = "oci"

    def facts(self, reference: str, platform: Platform) -> BaseImage:
        """Find the image in the layout, checking the digest of each document on the way."""
        found = read_documents(reference, platform)
        return parse_base(
            reference,
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
    offered: tuple[str, ...] = ()  # platforms, where the name stands for several images
    base_from: str = ""  # where the base's layers are, in a layout written without them

    @property
    def mount_from(self) -> str:
        """`HOST/REPOSITORY` that holds the base's layers; "" where none is known to."""
        is_registry = self.base_from.startswith(REGISTRY)
        return self.base_from.removeprefix(REGISTRY) if is_registry else ""

    def locate(self, descriptor: Descriptor) -> Blob:
        """Where a layer can be read: here, or in the registry that holds the base."""
        path = _path(self.root, descriptor.digest)
        if path.is_file() and path.stat().st_size == descriptor.size:
            return Blob((FileRange(path=str(path), offset=0, length=descriptor.size),))
        if self.mount_from:
            from packager.adapters.registry.reader import registry_blob

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


def read_documents(reference: str, platform: Platform) -> LayoutImage:
    """Find an image in a layout."""
    root, tag = split_layout_reference(reference.removeprefix("oci:"))
    if not (root / "oci-layout").is_file() or not (root / "index.json").is_file():
        raise NotFound(
            f"{str(root)!r} is not an OCI layout",
            hint="name a directory that holds `oci-layout` and `index.json`",
        )
    try:
        entry = _choose(root, tag, explicit=reference.endswith(":" + tag))
        document = _read(root, entry["digest"])
        offered: tuple[str, ...] = ()
        if entry.get("mediaType") in INDEX_TYPES:
            offered = offered_platforms(document)
            document = _read(root, choose_platform(document, platform).digest)
        config = _read(root, json.loads(document)["config"]["digest"])
        base_from = str((entry.get("annotations") or {}).get(SPARSE_BASE, ""))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ProtocolFailed(
            f"the layout {str(root)!r} is damaged", hint="make the layout again"
        ) from error
    return LayoutImage(
        root=root, manifest=document, config=config, offered=offered, base_from=base_from
    )


def _choose(root: Path, tag: str, *, explicit: bool) -> dict[str, Any]:
    manifests: list[dict[str, Any]] = json.loads((root / "index.json").read_bytes())["manifests"]
    names = [(entry.get("annotations") or {}).get(REF_NAME, "") for entry in manifests]
    if tag in names:
        return manifests[names.index(tag)]
    if len(manifests) == 1 and not explicit:
        return manifests[0]
    raise NotFound(
        f"the layout {str(root)!r} has no image {tag!r}",
        hint=f"it has {', '.join(sorted(filter(None, names))) or 'no named image'}",
    )


def _read(root: Path, digest: str) -> bytes:
    path = _path(root, digest)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"the layout {str(root)!r} lacks blob {digest}") from error
    if sha256(data) != digest:
        raise ProtocolFailed(
            f"blob {digest} in {str(root)!r} is damaged", hint="make the layout again"
        )
    return data


def _path(root: Path, digest: str) -> Path:
    return root / "blobs" / "sha256" / digest.removeprefix("sha256:")
