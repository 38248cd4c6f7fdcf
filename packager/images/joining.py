"""One index of the images of several platforms, whose manifests keep their bytes.

Layers carry no platform: weights that are the same bytes are one blob, which registries store, and
outputs are sent, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from packager.core.errors import UsageError
from packager.core.image import (
    MEDIA_INDEX,
    Descriptor,
    ImageSpec,
    SealedImage,
    SealedIndex,
    Written,
)
from packager.core.record import Transfer
from packager.core.version import __version__
from packager.images.copy import Write, describe_copy
from packager.images.oci import canonical_json, sha256
from packager.images.opened import OpenImage
from packager.images.sbom.components import Component, Sbom
from packager.images.sbom.cyclonedx import MEDIA_CYCLONEDX, cyclonedx_document
from packager.images.signatures.statements import MEDIA_IN_TOTO, SLSA, statement

BUILD_TYPE = "https://packager.dev/build-types/index/v1"


def join_images(sources: Sequence[OpenImage], write: Write) -> tuple[Written, Transfer]:
    """Write the images and an index of them; equal images give equal bytes, in any order."""
    _refuse_unfit(sources)
    ordered = in_order(sources)
    return write(_described(ordered), index_of(ordered))


def in_order(sources: Sequence[OpenImage]) -> list[OpenImage]:
    """Return images in the order of an index: amd64 first, for clients that ask for nothing."""
    return sorted(sources, key=lambda one: str(one.image.platform))


def index_of(sources: Sequence[OpenImage]) -> SealedImage:
    """Return the first image with an index of all: what a client takes that knows no platform."""
    document = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_INDEX,
            "manifests": [
                {
                    **one.image.sealed.manifest_descriptor.to_json(),
                    "platform": {
                        "architecture": one.image.platform.architecture,
                        "os": one.image.platform.os,
                    },
                }
                for one in sources
            ],
        }
    )
    descriptor = Descriptor(media_type=MEDIA_INDEX, digest=sha256(document), size=len(document))
    first, *others = (one.image.sealed for one in sources)
    return replace(
        first, index=SealedIndex(document=document, descriptor=descriptor, others=tuple(others))
    )


def documents_of(sources: Sequence[OpenImage], index: SealedImage, name: str) -> dict[str, bytes]:
    """Return the SBOM and the provenance of an index: each image by digest, with its own."""
    parts = tuple(
        Component(
            ref=f"image:{one.image.platform}",
            type="container",
            name=name,
            version=one.image.digest,
            sha256=one.image.digest.removeprefix("sha256:"),
            about=(("packager:platform", str(one.image.platform)),),
        )
        for one in sources
    )
    sbom = Sbom(
        subject=Component(ref="index", type="container", name=name, version=index.digest),
        components=parts,
        complete=("index",),
        incomplete=tuple(one.ref for one in parts),  # each has an SBOM of its own
        version=__version__,
    )
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"platforms": [str(one.image.platform) for one in sources]},
            "resolvedDependencies": [
                {
                    "name": str(one.image.platform),
                    "digest": {"sha256": one.image.digest.removeprefix("sha256:")},
                }
                for one in sources
            ],
        },
        "runDetails": {
            "builder": {
                "id": "https://packager.dev/builders/join@v1",
                "version": {"packager": __version__},
            }
        },
    }
    return {
        MEDIA_CYCLONEDX: cyclonedx_document(sbom),
        MEDIA_IN_TOTO: statement(SLSA, predicate, [(name, index.digest)]),
    }


def shared_bytes(sources: Sequence[OpenImage]) -> int:
    """Count the bytes of layers that more than the first image has, each once."""
    first, *others = (
        {one.digest: one.size for one in each.image.sealed.layers} for each in sources
    )
    both = {digest: size for other in others for digest, size in other.items() if digest in first}
    return sum(both.values())


def _described(sources: Sequence[OpenImage]) -> ImageSpec:
    """Describe the layers of all images, those that several have once."""
    specs = [describe_copy(one, one.image) for one in sources]
    layers = {layer.digest: layer for spec in specs for layer in spec.layers}
    return replace(specs[0], layers=tuple(layers.values()))


def _refuse_unfit(sources: Sequence[OpenImage]) -> None:
    if why := next(_faults(sources), ""):
        raise UsageError(why, hint="name one image of each platform: `packager inspect` shows it")


def _faults(sources: Sequence[OpenImage]) -> Iterator[str]:
    for one in sources:
        if not one.image.is_runnable:
            yield f"{one.image.reference!r} is an artifact, not an image to run"
    by_platform: dict[str, OpenImage] = {}
    for one in sources:
        platform = str(one.image.platform)
        if platform in by_platform:
            other = by_platform[platform].image.reference
            yield f"{other!r} and {one.image.reference!r} are both for {platform}"
        by_platform[platform] = one
    if len(sources) < 2:
        yield "an index of one image says nothing that its manifest does not"
