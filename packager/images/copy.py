"""Copying an image that exists, or a view of it, without making anything anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from packager.core.errors import UsageError
from packager.core.image import (
    Attached,
    BaseImage,
    ImageSpec,
    Layer,
    LayerRole,
    RuntimeConfig,
    SealedImage,
    Written,
)
from packager.core.record import Transfer
from packager.images.opened import OpenImage, Warn
from packager.images.stored import StoredImage, StoredLayer
from packager.images.views import OWN_LAYERS

Write = Callable[[ImageSpec, SealedImage], tuple[Written, Transfer]]
Attach = Callable[[SealedImage, Sequence[Attached]], None]


def copy_image(
    source: OpenImage,
    write: Write,
    *,
    runnable_only: Sequence[str] = (),
    view: Callable[[StoredImage], StoredImage] | None = None,
) -> tuple[Written, Transfer]:
    """Write the image, or `view` of it; documents and layers keep their bytes.

    `runnable_only` are the outputs that take no artifact.
    What its layers hold is claimed anew only where the source's claims were proven.
    A layer that a destination has, or can take over from the source's
    repository, is not read.
    """
    image = view(source.image) if view else source.image
    if runnable_only and not image.is_runnable:
        raise UsageError(
            f"{runnable_only[0]!r} cannot hold {image.reference!r}: "
            "it is an artifact, not an image to run",
            hint="copy it to a registry or an oci: layout",
        )
    return write(describe_copy(source, image), image.sealed)


def copy_attached(source: OpenImage, written: Written, attach: Attach, warn: Warn) -> int:
    """Attach to the copy what is attached to the source; return how many artifacts there are.

    Referrers and signature tags of anybody are taken along, one after the other: each may be
    large. A view is another image, to which they do not refer.
    """
    if written.image.digest != source.image.digest:
        return 0
    count = 0
    for artifact in source.read_attached("", warn):
        attach(written.image, (artifact,))
        count += 1
    return count


def describe_copy(source: OpenImage, image: StoredImage) -> ImageSpec:
    """Return the image for sinks, which need sizes and platform in advance."""
    base = BaseImage(
        reference=image.reference,
        digest=image.digest,
        platform=image.platform,
        layers=(),
        config=image.config,
    )
    return ImageSpec(
        base=base,
        layers=tuple(_layer(source, layer) for layer in image.layers),
        runtime=RuntimeConfig(),
        created="",
    )


def _layer(source: OpenImage, layer: StoredLayer) -> Layer:
    roles: dict[str, LayerRole] = {role: role for role in get_args(LayerRole)}
    proven = {(claim.role, claim.size, claim.digest): claim.content for claim in source.claims}
    return Layer(
        role=roles.get(layer.role, "base"),
        blob=OWN_LAYERS.get(layer.descriptor.digest) or source.locate(layer.descriptor),
        media_type=layer.descriptor.media_type,
        digest=layer.descriptor.digest,
        diff_id=layer.diff_id,
        created_by=layer.created_by if layer.created_by.startswith("packager: ") else "",
        content=proven.get((layer.role, layer.size, layer.descriptor.digest), ""),
        mount_from="" if layer.descriptor.digest in OWN_LAYERS else source.mount_from,
        annotations=layer.descriptor.annotations,
    )
