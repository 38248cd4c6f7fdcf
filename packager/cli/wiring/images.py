"""Services for existing images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packager.cli.plugins.contexts import ReadContext
from packager.cli.wiring.attached import sign_each, sign_everywhere
from packager.cli.wiring.bases import layer_reader
from packager.cli.wiring.outputs import (
    attach_to_all,
    refuse_trees,
    sink_context,
    sinks_for,
    traits_of,
    write_out,
)
from packager.cli.wiring.policies import open_allowed
from packager.cli.wiring.registries import RegistryBlobs, registry_clients
from packager.cli.wiring.settings import Settings, digests_file
from packager.core.image import Attached, ImageSpec, Platform, SealedImage, Written
from packager.core.references import ImageTarget, RegistryTarget
from packager.images.blobs import BlobReader
from packager.images.opened import OpenImage
from packager.images.seen_blobs import SeenBlobs
from packager.images.stored import StoredImage

if TYPE_CHECKING:
    from packager.core.record import Transfer
    from packager.images.rootfs.tree import FileTree
    from packager.images.signatures.keys import ImageSigner

_TITLE = "org.opencontainers.image.title"  # label


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageServices:
    """Services for existing images."""

    open: Callable[[ImageTarget, Platform], OpenImage]
    files: Callable[[OpenImage], FileTree]  # as a container sees them; reads layers
    write: Callable[[ImageSpec, SealedImage], tuple[Written, Transfer]]
    seen: Callable[[ImageTarget, Sequence[str]], Mapping[str, tuple[str, ...]]]  # by digest
    attach: Callable[[SealedImage, Sequence[Attached]], None]  # where outputs keep artifacts
    # Sign an image, and documents about it by their media types, in every output.
    sign: Callable[[ImageSigner, StoredImage, Mapping[str, bytes]], None]
    # Sign an index in every output, each by its repository; "" for a layout.
    sign_index: Callable[[Callable[[str], Sequence[Attached]], SealedImage], None]
    runnable_only: tuple[str, ...] = ()  # outputs that take no artifacts


def image_services_for(settings: Settings) -> ImageServices:
    """Return the services that open and copy images; raises for unusable outputs."""
    refuse_trees(settings.outputs, "copy")
    clients = registry_clients(settings)
    reader = BlobReader((RegistryBlobs(clients),))
    context = sink_context(settings, reader, clients)
    sinks = sinks_for(settings.outputs, context)
    keys = context.claim_keys() if any(sink.keeps_claims for sink in sinks) else None
    read = ReadContext(clients=clients, claim_key=keys.find() if keys else None)
    return ImageServices(
        open=lambda target, platform: open_allowed(target, platform, read, settings),
        files=lambda opened: layer_reader(settings, reader, unproven=True).tree_of(
            opened.image.reference, opened.layers
        ),
        write=lambda image, sealed: write_out(image, sinks, reader, settings, sealed=sealed),
        attach=lambda image, artifacts: attach_to_all(sinks, image, artifacts),
        sign=lambda signer, image, documents: sign_everywhere(
            signer,
            sinks,
            image.sealed,
            documents,
            otherwise=image.labels.get(_TITLE, "image"),
        ),
        sign_index=lambda made, image: sign_each(sinks, made, image),
        seen=lambda target, digests: _seen_in(target, digests, digests_file(settings)),
        runnable_only=tuple(
            output.text for output in settings.outputs if not traits_of(output).takes_artifacts
        ),
    )


def _seen_in(
    target: ImageTarget, digests: Sequence[str], state_file: Path
) -> dict[str, tuple[str, ...]]:
    """Return the other repositories of the image's registry that have these blobs."""
    if not isinstance(target, RegistryTarget):
        return {}
    image, seen = target.image, SeenBlobs(state_file)
    return {
        digest: tuple(
            f"{image.host}/{name}"
            for name in seen.repositories(image.host, digest)
            if name != image.repository
        )
        for digest in digests
    }
