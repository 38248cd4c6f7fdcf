"""Small images as documents, made by our own writer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from packager.core.image import (
    MEDIA_LAYER,
    BaseImage,
    Blob,
    Descriptor,
    ImageSpec,
    Inline,
    Layer,
    Platform,
    RuntimeConfig,
    SealedImage,
)
from packager.images.oci import seal, sha256
from packager.images.stored import StoredImage, parse_stored

RECORD = {
    "model": {"source": "hub", "name": "org/tiny", "revision": "c0ffee"},
    "precision": "bf16",
    "request": {"quantize": "awq"},
    "shape": {"max_batch": 8},
}
_HISTORY = {"base": "", "config": "packager: serving configuration"}


def layer(role: str, content: str, *, media_type: str = MEDIA_LAYER) -> Layer:
    data = content.encode()
    return Layer(
        role=role,  # type: ignore[arg-type]
        blob=Blob((Inline(data),)),
        media_type=media_type,
        digest=sha256(data),
        diff_id=sha256(b"unpacked " + data),
        created_by=_HISTORY.get(role, f"packager: {role} {content} (9 B)"),
        annotations={} if role == "base" else {"dev.packager.role": role},
    )


BASE = layer("base", "debian")
SHARDS = (layer("weights", "shard 1"), layer("weights", "shard 2"))
SMALL, DRAFT = layer("model", "tokenizer"), layer("draft", "eagle")
SERVING = (BASE, *SHARDS, SMALL, DRAFT, layer("config", "settings"))


def image(
    layers: Sequence[Layer] = SERVING,
    *,
    record: Mapping[str, object] = RECORD,
    env: Mapping[str, str] = {},
    annotated: bool = True,
    name: str = "registry.test/tiny:1",
    created: str = "1970-01-01T00:00:00Z",
) -> StoredImage:
    base = BaseImage(
        reference="base",
        digest="sha256:" + "b" * 64,
        platform=Platform(),
        layers=tuple(found for found in layers if found.role == "base"),
        config={"os": "linux", "architecture": "amd64"},
    )
    if not annotated:
        layers = [replace(found, annotations={}) for found in layers]
    spec = ImageSpec(
        base=base,
        layers=tuple(layers),
        runtime=RuntimeConfig(
            entrypoint=("serve",), env=env, labels={"dev.packager.record": json.dumps(record)}
        ),
        created=created,
    )
    sealed = sealed_as_described(spec)
    return parse_stored(name, sealed.manifest, sealed.config)


def sealed_as_described(image: ImageSpec) -> SealedImage:
    """Seal an image whose layers are described by what they say of themselves."""
    described = [
        Descriptor(
            media_type=found.media_type,
            digest=found.digest,
            size=found.size,
            annotations=found.annotations,
        )
        for found in image.layers
    ]
    return seal(image, described)
