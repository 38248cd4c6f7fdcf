"""Conversion of HTTP and TLS errors into failures with a readable reason."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from packager.images.registry.failures import RegistryUnreachable, UnexpectedAnswer

CONNECT_TIMEOUT_S = 10.0


@contextmanager
def explained_failures(authority: str) -> Iterator[None]:
    """Convert exceptions of the HTTP libraries into `RegistryUnreachable` with a reason."""
    try:
        yield
    except (HTTPError, OSError, http.client.HTTPException) as error:
        raise _unreachable(authority, error) from error
    except ValueError as error:  # lengths and the like that the libraries cannot read
        raise UnexpectedAnswer(authority, "a request", "with a broken head or body") from error


def _unreachable(authority: str, error: Exception) -> RegistryUnreachable:
    match error:
        case NameResolutionError():
            return RegistryUnreachable(authority, "the host name is not known")
        case NewConnectionError(__cause__=OSError(strerror=str() as reason)):
            return RegistryUnreachable(authority, reason.lower())
        case ConnectTimeoutError():
            return RegistryUnreachable(authority, f"no connection within {CONNECT_TIMEOUT_S:.0f} s")
        case ReadTimeoutError():
            return RegistryUnreachable(authority, "no answer in time")
        case LocationValueError():
            return RegistryUnreachable(authority, "the address is malformed", transient=False)
        case SSLError():
            return _distrusted(authority, error)
        case OSError(strerror=str() as reason):
            return RegistryUnreachable(authority, reason.lower())
    return RegistryUnreachable(authority, "the connection was cut")


def _distrusted(authority: str, error: SSLError) -> RegistryUnreachable:
    cause = error.args[0] if error.args else None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return RegistryUnreachable(
            authority,
            f"its certificate is not trusted: {cause.verify_message}",
            hint="name its authority's certificate with --ca-file FILE, or in SSL_CERT_FILE",
            transient=False,
        )
    if isinstance(cause, ssl.SSLError) and cause.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return RegistryUnreachable(
            authority,
            "it does not speak TLS",
            hint="if it uses plain HTTP, name it as an insecure registry: "
            f"--insecure-registry {authority}",
            transient=False,
        )
    return RegistryUnreachable(authority, "the TLS connection failed")
