"""Registry limits, checked before the first byte is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from packager.core.findings import Finding
from packager.core.image import Descriptor, ImageSpec, Layer
from packager.core.registry import RegistryTraits
from packager.core.units import MIB, decimal

SURE_MANIFEST = 4 * MIB  # that the distribution specification requires every registry to accept
ASSUMED_BYTES_S = 12.5e6  # a link of 100 Mbit/s, which all uploads share
UPLOADS_AT_ONCE = 4

_SMALLER = "use --max-layer-size with less, or another registry"
_NO_DIGEST = "sha256:" + 64 * "0"


def check_limits(image: ImageSpec, host: str, known: RegistryTraits) -> Iterator[Finding]:
    """Yield a finding for each limit of the registry at `host` that `image` exceeds or may exceed.

    Layers of a base in the same registry are not checked.
    """
    both = [one for layer in image.layers for one in (layer, layer.twin) if one is not None]
    ours = [layer for layer in both if layer.mount_from.partition("/")[0] != host]
    yield from _too_large(ours, known)
    if known.layers and len(image.layers) > known.layers:
        yield Finding(
            "error",
            "registry-layers",
            f"the image has {len(image.layers)} layers, {known.name} takes {known.layers}",
            "use --max-layer-size with more, a base with fewer layers, or another registry",
        )
    longest = known.manifest_bytes or SURE_MANIFEST
    needed = _manifest_bytes(image)
    if needed > longest:
        yield Finding(
            "error",
            "registry-manifest-size",
            f"the manifest has about {decimal(needed)}, registries take {decimal(longest)}",
            "use --max-layer-size with more, so that there are fewer layers",
        )
    yield from _too_slow(ours, known)


def _too_large(layers: Sequence[Layer], known: RegistryTraits) -> Iterator[Finding]:
    over = [layer for layer in layers if known.layer_bytes and layer.size > known.layer_bytes]
    if not over:
        return
    largest = max(over, key=lambda layer: layer.size)
    more = f", and {len(over) - 1} more are too large" if len(over) > 1 else ""
    yield Finding(
        # Compressed it may fit.
        "error" if all(layer.is_sized for layer in over) else "warning",
        "registry-layer-size",
        f"a layer has {decimal(largest.size)} ({largest.created_by or largest.role}), "
        f"{known.name} takes {decimal(known.layer_bytes)}{more}",
        _SMALLER,
    )


def _too_slow(layers: Sequence[Layer], known: RegistryTraits) -> Iterator[Finding]:
    if not (known.upload_s and layers):
        return
    largest = max(layer.size for layer in layers)
    seconds = largest * min(UPLOADS_AT_ONCE, len(layers)) / ASSUMED_BYTES_S
    if seconds > known.upload_s:
        yield Finding(
            "warning",
            "registry-upload-time",
            f"{known.name} cuts an upload off after {known.upload_s / 60:g} minutes; at "
            f"{ASSUMED_BYTES_S * 8 / 1e6:g} Mbit/s a layer of {decimal(largest)} takes "
            f"{seconds / 60:.0f}, beside others",
            _SMALLER,
        )


def _manifest_bytes(image: ImageSpec) -> int:
    """Return the manifest's approximate size; digests are unknown, their length is not."""
    described = [
        Descriptor(
            media_type=layer.media_type,
            digest=_NO_DIGEST,
            size=layer.size,
            annotations=layer.annotations,
        ).to_json()
        for layer in image.layers
    ]
    return len(json.dumps([described, dict(image.annotations)], separators=(",", ":")))
