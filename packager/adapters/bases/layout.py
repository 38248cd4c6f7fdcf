"""A base image from an OCI layout directory: `oci:DIR[:TAG]`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from packager.adapters.sinks.layout import REF_NAME, split_layout_reference
from packager.core.image import BaseImage, Blob, Descriptor, FileRange, Platform
from packager.errors import NotFound, ProtocolFailed
from packager.imaging.oci import INDEX_TYPES, choose_platform, parse_base, sha256


class LayoutBase:
    """Reads manifest and configuration; layers stay where they are."""

    name = "oci"

    def facts(self, reference: str, platform: Platform) -> BaseImage:
        """Find the image in the layout, checking the digest of each document on the way."""
        root, manifest, config = read_documents(reference, platform)
        return parse_base(reference, manifest, config, locate=lambda found: find_blob(root, found))


def read_documents(reference: str, platform: Platform) -> tuple[Path, bytes, bytes]:
    """Give the layout's directory, and the image's manifest and configuration."""
    root, tag = split_layout_reference(reference.removeprefix("oci:"))
    if not (root / "oci-layout").is_file() or not (root / "index.json").is_file():
        raise NotFound(
            f"{str(root)!r} is not an OCI layout",
            hint="name a directory that holds `oci-layout` and `index.json`",
        )
    try:
        entry = _choose(root, tag, explicit=reference.endswith(":" + tag))
        document = _read(root, entry["digest"])
        if entry.get("mediaType") in INDEX_TYPES:
            document = _read(root, choose_platform(document, platform).digest)
        config = _read(root, json.loads(document)["config"]["digest"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ProtocolFailed(
            f"the layout {str(root)!r} is damaged", hint="make the layout again"
        ) from error
    return root, document, config


def find_blob(root: Path, descriptor: Descriptor) -> Blob:
    """Where a layer of the layout in `root` can be read."""
    path = root / "blobs" / "sha256" / descriptor.digest.removeprefix("sha256:")
    if not path.is_file() or path.stat().st_size != descriptor.size:
        raise NotFound(
            f"the layout {str(root)!r} lacks layer {descriptor.digest}",
            hint="a layout written without its base cannot be used as one",
        )
    return Blob((FileRange(path=str(path), offset=0, length=descriptor.size),))


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
    path = root / "blobs" / "sha256" / digest.removeprefix("sha256:")
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"the layout {str(root)!r} lacks blob {digest}") from error
    if sha256(data) != digest:
        raise ProtocolFailed(
            f"blob {digest} in {str(root)!r} is damaged", hint="make the layout again"
        )
    return data
