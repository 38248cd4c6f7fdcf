"""A base image from a registry: manifest and configuration only, a few kilobytes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from packager.core.image import BaseImage, Platform
from packager.core.references import ImageTarget, RegistryTarget
from packager.images.oci import (
    LONGEST_DOCUMENT,
    is_index,
    parse_base,
    parse_manifest,
    sha256,
)
from packager.images.registry.clients import RegistryClients
from packager.images.registry.reader import registry_blob
from packager.images.target import registry_of
from packager.images.variants import choose_platform, offered_platforms


class RegistryBase:
    """Pins a reference by digest. Layers stay there until a sink needs their bytes."""

    name = "registry"

    def __init__(
        self,
        *,
        insecure_hosts: Collection[str] = (),
        clients: RegistryClients | None = None,
    ) -> None:
        self._clients = clients or RegistryClients(insecure_hosts=insecure_hosts)

    def facts(self, target: ImageTarget, platform: Platform) -> BaseImage:
        """Fetch the manifest for `platform`, and the configuration it names."""
        named = registry_of(target)
        found = read_documents(named, platform, self._clients)
        return parse_base(
            target.text,
            found.manifest,
            found.config,
            locate=lambda layer: registry_blob(named.image.name, layer.digest, layer.size),
            mount_from=named.image.name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryImage:
    """An image of a registry, by its documents."""

    manifest: bytes
    config: bytes
    offered: tuple[str, ...] = ()  # platforms, if the name refers to several images
    index: str = ""  # digest of what lists them


def read_documents(
    target: RegistryTarget, platform: Platform, clients: RegistryClients
) -> RegistryImage:
    """Fetch an image's manifest and configuration."""
    parsed = target.image
    client = clients.at(parsed.host)
    manifest = client.get_manifest(parsed.repository, parsed.pointer).data
    offered: tuple[str, ...] = ()
    index = ""
    if is_index(target.text, manifest):
        index = sha256(manifest)
        offered = offered_platforms(manifest)
        chosen = choose_platform(manifest, platform)
        manifest = client.get_manifest(parsed.repository, chosen.digest).data
    config = parse_manifest(target.text, manifest).config
    limit = min(config.size, LONGEST_DOCUMENT)
    data = client.get_blob(parsed.repository, config.digest, limit)
    return RegistryImage(manifest=manifest, config=data, offered=offered, index=index)
