"""Clients of registries, one a host: base, sink and reader share connections and tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from packager.core.registry import UNKNOWN_REGISTRY, RegistryTraits
from packager.images.registry.client import RegistryClient
from packager.images.registry.credential import FindCredentials
from packager.images.registry.credentials import find_credentials
from packager.images.registry.transport import Transport

TraitsOf = Callable[[str], RegistryTraits]


def _not_known(host: str) -> RegistryTraits:  # noqa: ARG001
    return UNKNOWN_REGISTRY


class RegistryClients:
    """Registry clients, one per host, each made when it is first asked for."""

    def __init__(
        self,
        *,
        insecure_hosts: Collection[str] = (),
        ca_file: str = "",
        find_credentials: FindCredentials = find_credentials,
        traits_of: TraitsOf = _not_known,
        transport: Transport | None = None,
    ) -> None:
        self._traits_of = traits_of
        self._transport = transport or Transport(insecure_hosts=insecure_hosts, ca_file=ca_file)
        self._find = find_credentials
        self._lock = threading.Lock()
        self._clients: dict[str, RegistryClient] = {}

    def at(self, host: str) -> RegistryClient:
        """Return the client for `host`, as a parsed reference spells it."""
        with self._lock:
            if host not in self._clients:
                self._clients[host] = RegistryClient(
                    host,
                    transport=self._transport,
                    find_credentials=self._find,
                    traits=self._traits_of(host),
                )
            return self._clients[host]
