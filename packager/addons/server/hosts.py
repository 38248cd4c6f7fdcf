"""Addresses on which the server listens, and origins of pages that may send requests.

Every page in the user's browser can reach a server on this machine, so host names of other sites
that resolve to 127.0.0.1 are refused, and so are requests from pages of other origins.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from packager.addons.server.refusals import foreign_host
from packager.core.documents import shorten
from packager.core.errors import UsageError

DEFAULT_PORT = 8470
_READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Listen:
    """An address to listen at; port 0: a free one."""

    host: str  # an address or a name, without brackets
    port: int

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine reaches it."""
        return _is_loopback(self.host)

    @property
    def is_any(self) -> bool:
        """Return whether it means every address of this machine; clients cannot connect to it."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def url(self, scheme: str) -> str:
        """Return its URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


def parse_listen(text: str) -> Listen:
    """Parse HOST:PORT, :PORT or [IPV6]:PORT; raises `UsageError`."""
    wrong = UsageError(
        f"invalid address to listen at: {shorten(text, 80)}",
        hint=f"write HOST:PORT, such as 127.0.0.1:{DEFAULT_PORT}, 0.0.0.0:8443 or [::1]:8470",
    )
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        raise wrong from None
    if port is None or parts.path or parts.query or parts.fragment or parts.username is not None:
        raise wrong
    host = parts.hostname or "127.0.0.1"
    if not all(letter.isalnum() or letter in ".:-_" for letter in host) or not host.isascii():
        raise wrong
    return Listen("127.0.0.1" if host == "localhost" else host, port)


def check_host(header: str | None) -> None:
    """Refuse a request for another name than this machine's; for servers on loopback."""
    if not _names_this_machine(header or ""):
        raise foreign_host(
            "the request's Host is not an address of this machine",
            hint="a server on loopback answers to 127.0.0.1, [::1] and localhost",
        )


@lru_cache(maxsize=64)  # clients send the same one each time
def _names_this_machine(header: str) -> bool:
    try:
        name = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def check_origin(method: str, host: str | None, origin: str | None, fetch_site: str | None) -> None:
    """Refuse requests from pages of another origin; programs send neither of these headers."""
    if origin is not None:
        try:
            same = origin != "null" and urlsplit(origin).netloc.lower() == (host or "").lower()
        except ValueError:
            same = False
        if not same:
            raise foreign_host("the request comes from a page of another origin")
    elif fetch_site in ("cross-site", "same-site") and method not in _READING:
        raise foreign_host("the request comes from a page of another site")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
