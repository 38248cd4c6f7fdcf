"""Images that exist: their layers, what these are for, and how the image was made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packager.core.documents import NotStrict
from packager.core.documents import parse_object as parse_json_object
from packager.core.errors import ProtocolFailed
from packager.core.image import MEDIA_MANIFEST, Descriptor, Platform, SealedImage
from packager.images.oci import OWN, parse_manifest, parse_object, sha256
from packager.images.remote_layers import ROLE

LABELS = OWN
RECORD = "dev.packager.record"
BASE_DIGEST = "org.opencontainers.image.base.digest"
_OURS = re.compile(r"packager: (weights|model|draft|compiled|serving configuration)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLayer:
    """A layer by digest, and what it is for."""

    descriptor: Descriptor
    role: str  # one of `LayerRole`; "layer" in an image that packager did not build
    created_by: str
    diff_id: str  # "" where the configuration does not say

    @property
    def size(self) -> int:
        return self.descriptor.size


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An image as stored: its documents byte for byte, and their content."""

    reference: str
    sealed: SealedImage
    layers: tuple[StoredLayer, ...]
    platform: Platform
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return self.sealed.digest

    @property
    def runtime(self) -> Mapping[str, Any]:
        """Entry point, environment, labels, as the specification spells them."""
        return _mapping(self.config.get("config")) if self.is_runnable else {}

    @property
    def is_runnable(self) -> bool:
        """Return whether an engine can start it; False for artifacts such as a ModelPack."""
        return "rootfs" in self.config

    @property
    def labels(self) -> Mapping[str, str]:
        labels = _mapping(self.runtime.get("Labels"))
        return {name: str(value) for name, value in labels.items()}

    @property
    def base_digest(self) -> str:
        annotations = _mapping(self.manifest.get("annotations"))
        return str(annotations.get(BASE_DIGEST) or self.labels.get(BASE_DIGEST) or "")

    @property
    def record(self) -> Mapping[str, Any]:
        """What packager wrote down when it built the image; empty when it did not."""
        try:
            return parse_json_object(self.labels.get(RECORD, "{}").encode())
        except NotStrict:
            return {}


def parse_stored(reference: str, manifest: bytes, config: bytes) -> StoredImage:
    """Read an image's documents, which may be anyone's."""
    parsed = parse_manifest(reference, manifest)
    settings = parse_object(config, "image configuration")
    config_descriptor = parsed.config
    if (sha256(config), len(config)) != (config_descriptor.digest, config_descriptor.size):
        raise ProtocolFailed(
            f"the configuration of {reference!r} is another than it says",
            hint="the image is damaged: have it built or pushed again",
        )
    return StoredImage(
        reference=reference,
        sealed=SealedImage(
            config=config,
            manifest=manifest,
            config_descriptor=config_descriptor,
            manifest_descriptor=Descriptor(
                media_type=str(parsed.document.get("mediaType") or MEDIA_MANIFEST),
                digest=sha256(manifest),
                size=len(manifest),
            ),
            layers=parsed.layers,
        ),
        layers=_layers(parsed.layers, settings),
        platform=Platform(
            str(settings.get("os", "linux")), str(settings.get("architecture", "amd64"))
        ),
        manifest=parsed.document,
        config=settings,
    )


def _layers(
    descriptors: Sequence[Descriptor], config: Mapping[str, Any]
) -> tuple[StoredLayer, ...]:
    count = len(descriptors)
    found = _mapping(config.get("rootfs")).get("diff_ids")
    diff_ids = [str(diff_id) for diff_id in found] if isinstance(found, list) else []
    history = config.get("history")
    entries = [_mapping(entry) for entry in (history if isinstance(history, list) else ())]
    made = [str(entry.get("created_by", "")) for entry in entries if not entry.get("empty_layer")]
    diff_ids = diff_ids if len(diff_ids) == count else [""] * count
    made = made if len(made) == count else [""] * count
    roles = [_role(layer, line) for layer, line in zip(descriptors, made, strict=True)]
    unknown = "base" if any(roles) else "layer"
    return tuple(
        StoredLayer(descriptor=layer, role=role or unknown, created_by=line, diff_id=diff_id)
        for layer, role, line, diff_id in zip(descriptors, roles, made, diff_ids, strict=True)
    )


def _role(layer: Descriptor, created_by: str) -> str:
    """Return the role that packager recorded for the layer; "" without one."""
    named = _mapping(layer.annotations).get(ROLE)
    if named:
        return str(named)
    found = _OURS.match(created_by)
    return (found[1] if found[1] != "serving configuration" else "config") if found else ""


def _mapping(found: object) -> Mapping[str, Any]:
    """An object of an untrusted document; empty if it has another type."""
    return found if isinstance(found, dict) else {}
