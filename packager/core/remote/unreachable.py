"""Why a server could not be reached: read from whatever exception an HTTP library raises.

Libraries wrap the cause several times, each in its own way; the cause itself is Python's.  Their
texts are not passed on: they hold URLs and, with proxies, credentials.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

CERTIFICATES = "SSL_CERT_FILE"  # what OpenSSL and the HTTP libraries read
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})
_CUT = "the connection was cut"
_BETWEEN = "run again; a proxy or firewall in between may answer in its place"
_DEEPEST = 12  # causes of causes that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The proxy that the environment names for an address."""

    variable: str  # as the user set it: `HTTPS_PROXY`
    place: str  # host and port, without who logs in


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """Where a connection ended, why, and what to do."""

    where: str  # the host, and the proxy on the way to it
    reason: str
    hint: str


def unreachable(error: BaseException, url: str, setting: str) -> Unreachable:
    """Explain why `url` was not reached; `setting` is the variable that names it, or "".

    The host is in the message: callers with an untrusted address pass another name.
    """
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2] or "the server"
    causes = tuple(_causes(error))
    trouble = _tls_trouble(causes, setting)
    if trouble is not None:
        return Unreachable(where=place, reason=trouble[0], hint=trouble[1])
    reason = _reason(causes)
    proxy = proxy_for(url)
    if proxy is not None:
        host = parts.hostname
        return Unreachable(
            where=f"{place} by the proxy {proxy.place}",
            reason=reason,
            hint=f"correct {proxy.variable}, or unset it; NO_PROXY={host} goes to {host} without "
            "a proxy",
        )
    check = f"check {setting} and the network" if setting else "check the network"
    hint = f"{check}: `curl -I {parts.scheme}://{place}`"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        hint += f"; where only a proxy leads out, set {parts.scheme.upper()}_PROXY"
    return Unreachable(where=place, reason=reason, hint=hint)


def proxy_for(url: str) -> Proxy | None:
    """Return the proxy that HTTP libraries take for an address, from the environment."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    named = getproxies()
    for scheme in (parts.scheme, "all"):
        if address := named.get(scheme):
            variable = f"{scheme}_proxy"
            shown = variable if variable in os.environ else variable.upper()
            return Proxy(variable=shown, place=_place(address))
    return None


def _place(address: str) -> str:
    """Return host and port of a proxy's address, which may lack its scheme."""
    return address.rpartition("://")[2].rpartition("@")[2].partition("/")[0]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it wraps, the outermost first."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen and len(seen) < _DEEPEST:
        yield found
        seen.add(id(found))
        inner = [one for one in found.args if isinstance(one, BaseException)]
        found = found.__cause__ or found.__context__ or (inner[0] if inner else None)


def _tls_trouble(causes: tuple[BaseException, ...], setting: str) -> tuple[str, str] | None:
    """Return why TLS failed and what to do, or None where it did not."""
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted: {cause.verify_message}",
                f"name the certificate of its authority in {CERTIFICATES}; a proxy that opens TLS "
                "has one of its own",
            )
        if isinstance(cause, ssl.SSLError):
            if getattr(cause, "reason", "") in _NOT_TLS:
                plain = f"write the address in {setting} with http://" if setting else _BETWEEN
                return "it does not speak TLS", plain
            return "the TLS connection failed", _BETWEEN
    return None


def _reason(causes: tuple[BaseException, ...]) -> str:
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return "the host name is not known"
        if isinstance(cause, TimeoutError):
            return "no answer in time"
        if isinstance(cause, OSError) and cause.errno in _WORDS:
            return _WORDS[cause.errno]
    names = {type(cause).__name__ for cause in causes}
    if names & {"ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout"}:
        return "no answer in time"
    if "TooManyRedirects" in names:
        return "it redirects in a circle"
    if "ProxyError" in names:
        return "the proxy refuses to connect"
    return _CUT


_WORDS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: _CUT,
    errno.EPIPE: _CUT,
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "the network is unreachable",
    errno.EADDRNOTAVAIL: "the network is unreachable",
    errno.ETIMEDOUT: "no answer in time",
}
