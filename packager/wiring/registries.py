"""Connections to registries, made when the first one is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from packager.catalog.registries import traits_of
from packager.core.image import RemoteRange
from packager.wiring.settings import Settings, user_rows

if TYPE_CHECKING:
    from packager.images.registry.clients import RegistryClients


Clients = Callable[[], "RegistryClients"]


def registry_clients(settings: Settings) -> Clients:
    """Return the run's registry clients, created when a registry is first needed."""

    @cache
    def clients() -> RegistryClients:
        from packager.images.registry.clients import RegistryClients

        own = user_rows(settings).registries
        return RegistryClients(
            insecure_hosts=settings.insecure_registries,
            ca_file=str(settings.ca_file or ""),
            traits_of=lambda host: traits_of(host, own),
        )

    return clients


class RegistryBlobs:
    """Reads blobs of registries; loads the client when the first one is read."""

    scheme = "registry"

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        """Yield the segment's bytes."""
        from packager.images.registry.reader import RegistryReader

        return RegistryReader(clients=self._clients()).read(segment)
