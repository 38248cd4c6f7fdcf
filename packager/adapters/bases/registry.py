"""A base image from a registry: manifest and configuration only, a few kilobytes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from packager.adapters.registry.client import RegistryClients
from packager.adapters.registry.reader import registry_blob
from packager.adapters.registry.reference import parse_reference
from packager.core.image import BaseImage, Platform
from packager.imaging.oci import (
    LONGEST_DOCUMENT,
    choose_platform,
    is_index,
    offered_platforms,
    parse_base,
    parse_manifest,
)


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

    def facts(self, reference: str, platform: Platform) -> BaseImage:
        """Fetch the manifest for `platform`, and the configuration it names."""
        parsed = parse_reference(reference)
        found = read_documents(reference, platform, self._clients)
        return parse_base(
            reference,
            found.manifest,
            found.config,
            locate=lambda layer: registry_blob(parsed.name, layer.digest, layer.size),
            mount_from=parsed.name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryImage:
    """An image of a registry, by its documents."""

    manifest: bytes
    config: bytes
    offered: tuple[str, ...] = ()  # platforms, where the name stands for several images


def read_documents(reference: str, platform: Platform, clients: RegistryClients) -> RegistryImage:
    """Fetch an image's manifest and configuration."""
    parsed = parse_reference(reference)
    client = clients.at(parsed.host)
    manifest = client.get_manifest(parsed.repository, parsed.pointer).data
    offered: tuple[str, ...] = ()
    if is_index(reference, manifest):
        offered = offered_platforms(manifest)
        chosen = choose_platform(manifest, platform)
        manifest = client.get_manifest(parsed.repository, chosen.digest).data
    config = parse_manifest(reference, manifest).config
    limit = min(config.size, LONGEST_DOCUMENT)
    data = client.get_blob(parsed.repository, config.digest, limit)
    return RegistryImage(manifest=manifest, config=data, offered=offered)
