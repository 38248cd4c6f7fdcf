"""Small images in layouts, of tars that a test makes, packed and described as it wants."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from packager.core.image import MEDIA_LAYER, Platform
from packager.images.oci import sha256
from packager.images.opened import OpenImage, open_layout
from packager.images.target import parse_layout_target
from tests.support import tars

GZIP, ZSTD = MEDIA_LAYER + "+gzip", MEDIA_LAYER + "+zstd"
LINUX = {"os": "linux", "architecture": "amd64"}
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True, kw_only=True)
class MadeLayer:
    """A layer as an image describes it, truly unless a test says otherwise."""

    data: bytes  # as it travels
    content: bytes  # the tar
    media_type: str = MEDIA_LAYER
    role: str = "weights"
    stated_digest: str = ""  # a lie
    stated_diff_id: str = ""  # a lie
    stated_size: int | None = None  # a lie

    @property
    def digest(self) -> str:
        return self.stated_digest or sha256(self.data)

    @property
    def diff_id(self) -> str:
        return self.stated_diff_id or sha256(self.content)

    @property
    def path(self) -> str:
        """Where it lies in a node cache, as containerd looks it up."""
        name = self.diff_id.removeprefix("sha256:")
        return f"sha256/{name[:2]}/{name}.erofs"


def tar_of(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    """Make a tar as others do: nothing in it is aligned to more than 512 bytes."""
    return tars.tar_of(*(tars.file(name, data, mode=mode) for name, data in files.items()))


def plain(content: bytes, role: str = "weights") -> MadeLayer:
    return MadeLayer(data=content, content=content, role=role)


def packed(content: bytes, packing: str) -> bytes:
    """Return an archive as it travels."""
    if packing == "zstd":
        return zstandard.ZstdCompressor().compress(content)
    return gzip.compress(content, mtime=0) if packing == "gzip" else content


def gzipped(content: bytes, role: str = "base") -> MadeLayer:
    return MadeLayer(data=packed(content, "gzip"), content=content, media_type=GZIP, role=role)


def zstandarded(content: bytes, role: str = "base") -> MadeLayer:
    return MadeLayer(data=packed(content, "zstd"), content=content, media_type=ZSTD, role=role)


def write_layout(
    root: Path, layers: Sequence[MadeLayer], settings: Mapping[str, Any] = LINUX
) -> Path:
    """Write an image into a layout without asking anybody whether it is valid."""
    rootfs = {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}
    config = json.dumps({**settings, "rootfs": rootfs}).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": sha256(config), "size": len(config)},
            "layers": [_described(layer) for layer in layers],
        }
    ).encode()
    index = {
        "schemaVersion": 2,
        "manifests": [{"mediaType": _MANIFEST, "digest": sha256(manifest), "size": len(manifest)}],
    }
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for data in (config, manifest):
        (blobs / sha256(data).removeprefix("sha256:")).write_bytes(data)
    for layer in layers:
        (blobs / layer.digest.removeprefix("sha256:")).write_bytes(layer.data)
    (root / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (root / "index.json").write_text(json.dumps(index))
    return root


def opened(root: Path) -> OpenImage:
    return open_layout(parse_layout_target(f"oci:{root}"), Platform())


def _described(layer: MadeLayer) -> dict[str, object]:
    stated: dict[str, object] = {
        "mediaType": layer.media_type,
        "digest": layer.digest,
        "size": len(layer.data) if layer.stated_size is None else layer.stated_size,
    }
    if layer.role != "base":
        stated["annotations"] = {"dev.packager.role": layer.role}
    return stated
