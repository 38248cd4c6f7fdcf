"""Addresses of registries: origins, redirects, and hosts that are this machine."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, urldefrag, urlencode, urljoin, urlsplit

_ADDRESS = re.compile(r"[!-~]{1,16384}", re.ASCII)  # no blank, no control character, no more


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port: what credentials belong to."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return host if self.port == default else f"{host}:{self.port}"


def origin_of(url: str) -> Origin:
    """Return the origin of an absolute `http` or `https` URL."""
    parts = urlsplit(url)
    default = 443 if parts.scheme == "https" else 80
    return Origin(parts.scheme, parts.hostname or "", parts.port or default)


def join_address(base: str, location: str) -> str:
    """Return the absolute URL of a `Location`; "" where it cannot be one."""
    try:
        return urldefrag(urljoin(base, location)).url
    except ValueError:  # `http://[::1`
        return ""


def split_address(url: str) -> SplitResult | None:
    """Split an untrusted URL; None for one that cannot be requested."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is not a number up to 65535
    except ValueError:
        return None
    return parts if _ADDRESS.fullmatch(url) else None


def is_loopback(host: str) -> bool:
    """Check whether a host name or address cannot leave this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def commit_address(upload: str, digest: str) -> str:
    """Return the URL that closes an upload under a digest, which may be in it already."""
    if parse_qs(urlsplit(upload).query).get("digest") == [digest]:
        return upload
    separator = "&" if urlsplit(upload).query else "?"
    return f"{upload}{separator}{urlencode({'digest': digest})}"
