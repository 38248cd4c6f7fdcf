"""Routes of requests to a server: directly to its address, or through a proxy or API.

A proxy may use other paths than the server, need new credentials for every request, and wrap
answers. A route hides these differences from clients.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from packager.cli.serving.address import parse_address
from packager.core.text import remember_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """Address and headers of one request. Headers may hold credentials."""

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How connections are made."""

    tls: ssl.SSLContext | None = None  # None: the client's default
    server_name: str = ""  # in the certificate, where it is not the address
    proxy: str = field(default="", repr=False)  # may have a password


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """How to read one answer: its content type, and the function that unwraps its bytes.

    `unwrap` raises `BrokenStream` for an answer that says that it was broken off.
    """

    content_type: str
    unwrap: Callable[[bytes], bytes] | None = None  # None: they are as the server sent them


class BrokenStream(Exception):
    """The proxy reports that the answer is incomplete, and why."""


class Route(Protocol):
    """The route to one server, used from several threads, once for each request."""

    @property
    def shown(self) -> str:
        """Return its name in reports, without anything secret."""
        ...

    @property
    def connection(self) -> Connection:
        """Return how connections are made."""
        ...

    @property
    def model(self) -> str:
        """Return the model name for requests; "": the server's model list has it."""
        ...

    def request(self, method: str, path: str, body: bytes, *, streams: bool) -> Outgoing | None:
        """Return the address for the server's `path`; None where the route does not support it."""
        ...

    def answer(self, headers: Mapping[str, str]) -> Incoming:
        """Return how an answer with status 200 and these headers is read."""
        ...


class AddressRoute:
    """A server reached directly at its own address."""

    connection = Connection()
    model = ""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """Parse an address with its user and password; raise `UsageError` where it is none."""
        self.shown, of_user = parse_address(url)
        self._headers = {
            **{name.lower(): value for name, value in (headers or {}).items()},
            **of_user,
        }
        remember_headers(self._headers)

    def request(
        self,
        method: str,  # noqa: ARG002
        path: str,
        body: bytes,  # noqa: ARG002
        *,
        streams: bool,  # noqa: ARG002
    ) -> Outgoing | None:
        """Return the path below the address, with what user and password come to."""
        return Outgoing(url=self.shown + path, headers=self._headers)

    def answer(self, headers: Mapping[str, str]) -> Incoming:
        """Return the answer's own type."""
        return Incoming(content_type=headers.get("content-type", ""))
