"""Blobs of a registry as segments: `registry://HOST/REPOSITORY@sha256:…`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from packager.core.image import Blob, RemoteRange
from packager.images.registry.clients import RegistryClients
from packager.images.registry.reference import parse_reference

SCHEME = "registry"


class RegistryReader:
    """Fetches `registry` segments when they are needed."""

    scheme = SCHEME

    def __init__(
        self,
        *,
        insecure_hosts: Collection[str] = (),
        clients: RegistryClients | None = None,
    ) -> None:
        self._clients = clients or RegistryClients(insecure_hosts=insecure_hosts)

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        """Yield the segment's bytes; the digest is checked when it is the whole blob."""
        reference = parse_reference(segment.url.removeprefix(f"{SCHEME}://"))
        return self._clients.at(reference.host).read_blob(
            reference.repository,
            reference.pointer,
            offset=segment.offset,
            length=segment.length,
        )


def registry_blob(name: str, digest: str, size: int) -> Blob:
    """A whole blob of the repository `HOST/REPOSITORY`."""
    return Blob((RemoteRange(url=f"{SCHEME}://{name}@{digest}", offset=0, length=size),))
