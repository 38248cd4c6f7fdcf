"""Addresses of servers, as people write them: with user and password, with `/v1` at the end."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from urllib.parse import unquote, urlsplit, urlunsplit

from packager.core.errors import UsageError
from packager.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Address of a server. `base` is safe to show: it has no user, password or query."""

    base: str
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)


def parse_address(url: str) -> ServerAddress:
    """Return the base of all requests, and the headers of user and password.

    Raises `UsageError`, which does not repeat the address: there may be a password in it.
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise UsageError("the server's address cannot be read", hint="http://HOST:PORT") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("the server's address is not a URL", hint="write http://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/").removesuffix("/v1")
    base = urlunsplit((parts.scheme, f"{host}{port}", path, "", ""))
    if parts.username is None:
        return ServerAddress(base=base)
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    given = b64encode(user.encode("utf-8", "surrogateescape")).decode()
    return ServerAddress(base=base, headers={"authorization": f"Basic {given}"})
