"""A base image from a registry: manifest and configuration only, a few kilobytes."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from packager.adapters.registry.client import RegistryClients
from packager.adapters.registry.reader import registry_blob
from packager.adapters.registry.reference import parse_reference
from packager.core.image import BaseImage, Platform
from packager.errors import ProtocolFailed
from packager.imaging.oci import choose_platform, offered_platforms, parse_base

_LONGEST_CONFIG = 8 * 1024 * 1024


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
    if "manifests" in _document(reference, manifest):
        offered = offered_platforms(manifest)
        chosen = choose_platform(manifest, platform)
        manifest = client.get_manifest(parsed.repository, chosen.digest).data
    digest = _config_digest(reference, manifest)
    config = client.get_blob(parsed.repository, digest, _LONGEST_CONFIG)
    return RegistryImage(manifest=manifest, config=config, offered=offered)


def _document(reference: str, data: bytes) -> dict[str, Any]:
    """Parse a manifest or index. One that is both would mean different images to different tools
    (CVE-2021-41190)."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ProtocolFailed(f"the manifest of {reference!r} is not JSON") from error
    if not isinstance(document, dict) or {"manifests", "layers"} <= document.keys():
        raise ProtocolFailed(f"the manifest of {reference!r} is neither a manifest nor an index")
    return document


def _config_digest(reference: str, manifest: bytes) -> str:
    config = _document(reference, manifest).get("config")
    digest = config.get("digest") if isinstance(config, dict) else None
    if not isinstance(digest, str) or not digest.startswith("sha256:"):
        raise ProtocolFailed(
            f"the manifest of {reference!r} names no configuration",
            hint="push the image again with a current tool; schema 1 is not supported",
        )
    return digest
