"""Connections to registries, made when the first one is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from packager.catalog.registries import traits_of
from packager.cli.wiring.settings import Settings, once, user_rows
from packager.core.image import RemoteRange

if TYPE_CHECKING:
    from packager.images.registry.clients import RegistryClients


Clients = Callable[[], "RegistryClients"]


def registry_clients(settings: Settings) -> Clients:
    """Return the run's registry clients, created when a registry is first needed."""

    @cache
    def clients() -> RegistryClients:
        from packager.images.registry.clients import RegistryClients
        from packager.images.registry.credentials import Answers, find_credentials

        own = user_rows(settings).registries
        return RegistryClients(
            insecure_hosts=settings.insecure_registries,
            ca_file=str(settings.ca_file or ""),
            find_credentials=partial(
                find_credentials, on_warning=once(settings.on_warning), answers=Answers()
            ),
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
