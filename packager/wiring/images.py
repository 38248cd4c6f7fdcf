"""Doers for images that exist already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packager import plugins
from packager.adapters.blobs import BlobReader
from packager.adapters.images import OpenImage, open_image
from packager.adapters.seen_blobs import SeenBlobs
from packager.core.image import ImageSpec, Platform, SealedImage, Written
from packager.core.record import Transfer
from packager.imaging.claims import ClaimKey
from packager.wiring.outputs import claim_keys_for, sinks_for, write_out
from packager.wiring.registries import Clients, RegistryBlobs, registry_clients
from packager.wiring.settings import Settings, digests_file, working


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTools:
    """Doers for images that exist already."""

    open: Callable[[str, Platform], OpenImage]
    write: Callable[[ImageSpec, SealedImage], tuple[Written, Transfer]]
    seen: Callable[[str, Sequence[str]], Mapping[str, tuple[str, ...]]]  # reference, digests


def image_tools_for(settings: Settings) -> ImageTools:
    """Choose the doers that open and copy images; outputs that cannot be are refused here."""
    clients = registry_clients(settings)
    keys = claim_keys_for(settings)
    key = keys.find() if keys else None
    reader = BlobReader((RegistryBlobs(clients),))
    sinks = sinks_for(
        settings.outputs,
        reader,
        clients,
        digests_file(settings),
        keys=keys,
        on_warning=settings.on_warning,
        on_event=settings.on_event,
    )
    return ImageTools(
        open=lambda reference, platform: _open_image(reference, platform, clients, key, settings),
        write=lambda image, sealed: write_out(image, sinks, reader, settings, sealed=sealed),
        seen=lambda reference, digests: _seen_in(reference, digests, digests_file(settings)),
    )


def _seen_in(
    reference: str, digests: Sequence[str], state_file: Path
) -> dict[str, tuple[str, ...]]:
    """Other repositories of the image's registry where these blobs were met."""
    from packager.adapters.registry.reference import parse_reference

    if plugins.scheme_of(reference, plugins.SINKS) != "registry":
        return {}
    image, seen = parse_reference(reference), SeenBlobs(state_file)
    return {
        digest: tuple(
            f"{image.host}/{name}"
            for name in seen.repositories(image.host, digest)
            if name != image.repository
        )
        for digest in digests
    }


def _open_image(
    reference: str,
    platform: Platform,
    clients: Clients,
    key: ClaimKey | None,
    settings: Settings,
) -> OpenImage:
    with working("image", reference, settings):
        return open_image(reference, platform, clients, key)
