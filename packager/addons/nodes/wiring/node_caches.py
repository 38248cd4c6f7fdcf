"""Services for what becomes of images on nodes: node caches and mounts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packager.cli.plugins.contexts import ReadContext
from packager.cli.wiring.policies import open_allowed
from packager.cli.wiring.registries import RegistryBlobs, registry_clients
from packager.cli.wiring.settings import Settings, digests_file, state_dir
from packager.core.image import Platform
from packager.core.references import ImageTarget
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.opened import OpenImage


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeImageServices:
    """Services for images on this machine as a node."""

    open: Callable[[ImageTarget, Platform], OpenImage]
    reader: BlobReader
    index: DigestIndex  # of files whose content was proven before
    mounts: Path  # where it is remembered what is mounted


def node_image_services_for(settings: Settings) -> NodeImageServices:
    """Return the services that open images, read their layers and remember mounts."""
    clients = registry_clients(settings)
    read = ReadContext(clients=clients)

    return NodeImageServices(
        open=lambda target, platform: open_allowed(target, platform, read, settings),
        reader=BlobReader((RegistryBlobs(clients),)),
        index=DigestIndex(digests_file(settings)),
        mounts=state_dir(settings.environment) / "mounts",
    )
