"""Addresses of servers, as people write them: with user and password, with `/v1` at the end."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit, urlunsplit

from packager.core.errors import UsageError


def parse_address(url: str) -> tuple[str, Mapping[str, str]]:
    """Return the base of all requests, and the headers of user and password.

    The base is safe to show: it has no user, password or query.

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
        return base, {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    given = b64encode(user.encode("utf-8", "surrogateescape")).decode()
    return base, {"authorization": f"Basic {given}"}
