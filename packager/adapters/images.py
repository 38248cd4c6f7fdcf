"""Opening an image by reference: a registry's, a layout's (`oci:`), an engine's (`docker:`).

Only documents are read; layers stay where they are until a sink needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packager.core.image import Blob, Descriptor, Platform
from packager.imaging.claims import Claim, ClaimKey, judge
from packager.imaging.stored import StoredImage, parse_stored

if TYPE_CHECKING:
    from packager.adapters.registry.client import RegistryClients


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenImage:
    """An image and where its layers can be read."""

    image: StoredImage
    locate: Callable[[Descriptor], Blob]  # raises `NotFound` for a layer that is not there
    mount_from: str = ""  # `HOST/REPOSITORY` whose registry can take layers over by itself
    offered: tuple[str, ...] = ()  # platforms, where the reference stands for several images
    claims: tuple[Claim, ...] = ()  # about its layers, proven with the key at hand


def open_image(
    reference: str,
    platform: Platform,
    clients: Callable[[], RegistryClients],
    key: ClaimKey | None = None,
) -> OpenImage:
    """Find an image; of several platforms' images, the one for `platform`.

    With a key, the claims about its layers that the key proves are read too.
    """
    if reference.startswith("docker:"):
        from packager.adapters.bases.docker import DockerBase

        return _from_layout(reference, f"oci:{DockerBase().take_out(reference)}", platform)
    if reference.startswith("oci:"):
        return _from_layout(reference, reference, platform)
    return _from_registry(reference, platform, clients(), key)


def _from_layout(reference: str, layout: str, platform: Platform) -> OpenImage:
    from packager.adapters.bases.layout import read_documents

    found = read_documents(layout, platform)
    return OpenImage(
        image=parse_stored(reference, found.manifest, found.config),
        locate=found.locate,
        mount_from=found.mount_from,
        offered=found.offered,
    )


def _from_registry(
    reference: str, platform: Platform, clients: RegistryClients, key: ClaimKey | None
) -> OpenImage:
    from packager.adapters.bases.registry import read_documents
    from packager.adapters.registry.claims import fetch_claims
    from packager.adapters.registry.reader import registry_blob
    from packager.adapters.registry.reference import parse_reference

    parsed = parse_reference(reference)
    name = parsed.name
    found = read_documents(reference, platform, clients)
    image = parse_stored(reference, found.manifest, found.config)
    claims: set[Claim] = set()
    if key is not None:
        client = clients.at(parsed.host)
        for document in fetch_claims(client, parsed.repository, image.digest, key.id):
            if judge(document, key, name) == "proven":
                claims.update(document.claims)
    return OpenImage(
        image=image,
        claims=tuple(sorted(claims)),
        locate=lambda descriptor: registry_blob(name, descriptor.digest, descriptor.size),
        mount_from=name,
        offered=found.offered,
    )
