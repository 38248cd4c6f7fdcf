"""HTTP requests with timeouts, retries and redirects; holds no credentials.

HTTPS everywhere; plain HTTP only to loopback and to hosts that the user has
named.  Neither the `Authorization` header nor the body of a POST, which may hold
a secret, follows a redirect to another origin; a manifest does.
HTTP/1.1 only: large bodies suffer from HTTP/2's head-of-line blocking.
"""

from __future__ import annotations

import http.client
import os
import random
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

import urllib3
import urllib3.connection

from artifact_cache import waits
from artifact_cache.timely import PIECE, TimelyResponse
from packager.core.errors import PackagerError, UsageError
from packager.core.files.pipes import open_waiting
from packager.core.remote.pools import timely
from packager.core.remote.refusals import Origin as Kind
from packager.core.remote.refusals import find_refusal, read_error
from packager.core.text import remember_user
from packager.core.version import __version__
from packager.images.registry.connection_failures import CONNECT_TIMEOUT_S, explained_failures
from packager.images.registry.failures import RegistryUnreachable, UnexpectedAnswer
from packager.images.registry.origins import (
    Origin,
    is_loopback,
    join_address,
    origin_of,
    split_address,
)

USER_AGENT = f"packager/{__version__}"
READ_TIMEOUT_S = 60.0
DOCUMENT_TIMEOUT_S = 300.0  # for all of a manifest or configuration, however steadily it drips
ATTEMPTS = 5
CERTIFICATES = Path("/etc/docker/certs.d")  # where docker and podman look
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 8.0
_LONGEST_RETRY_AFTER_S = 60.0
_REDIRECTS = 10  # requests in a row, as of Go's client
_POOL_CONNECTIONS = 8

_LONGEST_BUNDLE = 64 * 1024 * 1024  # bytes of certificates
LONGEST_ERROR = 64 * 1024  # bytes of an answer that refuses
_LONGEST_SHOWN = 80  # characters of an untrusted word in a message

Method = Literal["GET", "HEAD", "POST", "PUT", "DELETE"]


class Response:
    """An HTTP response whose body is still on the wire."""

    def __init__(self, raw: urllib3.BaseHTTPResponse, method: str, url: str) -> None:
        self._raw = raw
        self._kept: bytes | None = None  # the body, if it was read in advance
        self.method = method
        self.url = url  # after redirects
        self.origin: Kind = "registry"  # or storage that it was redirected to
        self.status = raw.status
        self.headers: Mapping[str, str] = raw.headers

    def read(self, limit: int) -> bytes:
        """Return the whole body, release the connection; raises where it exceeds `limit`."""
        if self._kept is not None:
            return self._kept
        data = bytearray()
        self.read_into(data, limit)
        return bytes(data)

    def read_into(self, data: bytearray, limit: int) -> None:
        """Append the body, of which `data` has what came where it breaks off; as `read` else."""
        authority = origin_of(self.url).authority
        started = time.monotonic()
        with explained_failures(authority):
            while piece := self._raw.read(min(PIECE, limit + 1 - len(data)), decode_content=False):
                data += piece
                if len(data) > limit or time.monotonic() - started > DOCUMENT_TIMEOUT_S:
                    break
            else:
                self._raw.release_conn()
                return
        self.close()
        if len(data) > limit:
            raise UnexpectedAnswer(authority, "a small request", f"more than {limit} bytes")
        raise RegistryUnreachable(
            authority,
            f"a document was not there after {DOCUMENT_TIMEOUT_S:.0f} s",
            transient=False,
        )

    def stream(self, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the body in pieces; raises `RegistryUnreachable` where it ends early."""
        with explained_failures(origin_of(self.url).authority):
            yield from self._raw.stream(chunk_bytes, decode_content=False)

    def is_final(self) -> bool:
        """Whether the server says why it refuses, and another try does not help."""
        try:
            self._kept = self.read(LONGEST_ERROR)
        except PackagerError:
            return False
        found = find_refusal(self.origin, self.method, self.status, read_error(self._kept))
        return found is not None and found.kind != "passing"

    def close(self) -> None:
        """Drop the body and its connection."""
        self._raw.close()


class Transport:
    """Connections to any number of registries, shared by threads."""

    def __init__(
        self,
        *,
        insecure_hosts: Collection[str] = (),
        ca_file: str = "",
        certificates: Path = CERTIFICATES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._insecure_hosts = frozenset(insecure_hosts)
        self._ca_file = ca_file
        self._certificates = certificates
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self._sleep = sleep
        self._pools: dict[tuple[str, ...], urllib3.PoolManager] = {}
        self._pools_lock = threading.Lock()
        self._contexts_lock = threading.Lock()

    def base_url(self, host: str) -> str:
        """Return a registry's base URL, with `http` where plain HTTP is allowed."""
        return f"{'http' if self.may_be_plain(host) else 'https'}://{host}"

    def may_be_plain(self, authority: str) -> bool:
        """Whether `HOST[:PORT]` may be reached without TLS.

        Loopback may, unless certificates are configured for it.
        """
        host = urlsplit(f"//{authority}").hostname or ""
        if {authority, host} & self._insecure_hosts:
            return True
        return is_loopback(host) and not (self._ca_file or self._authorities_of(authority))

    def check(self, url: str, asked: str) -> None:
        """Refuse a URL that a registry sent us and that we must not follow."""
        parts = self.check_form(url, asked)
        if parts.scheme == "https" and parts.hostname:
            return
        if parts.scheme == "http" and parts.hostname and self.may_be_plain(parts.netloc):
            return
        host = (parts.hostname or "no host")[:_LONGEST_SHOWN]
        raise UnexpectedAnswer(
            asked,
            "a request",
            f"with a {parts.scheme[:_LONGEST_SHOWN] or 'relative'} address on {host!r}",
            hint="plain HTTP is used for loopback and for hosts named as insecure only: "
            f"--insecure-registry {parts.netloc.rpartition('@')[2][:_LONGEST_SHOWN]}",
        )

    def check_form(self, url: str, asked: str) -> SplitResult:
        """Refuse an address that no request can be made of."""
        parts = split_address(url)
        if parts is None:
            raise UnexpectedAnswer(asked, "a request", "with an address that cannot be read")
        return parts

    def call(
        self,
        method: Method,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        attempts: int = ATTEMPTS,
        read_timeout_s: float | None = None,
    ) -> Response:
        """Send a small request, again if it may help; for requests that may be repeated.

        Any status comes back as an answer: the caller knows what it means.
        """
        if read_timeout_s is None:
            read_timeout_s = READ_TIMEOUT_S
        for attempt in range(1, attempts + 1):
            last = attempt == attempts
            try:
                answer = self._follow(method, url, headers, body, read_timeout_s)
            except RegistryUnreachable as failure:
                if last or not failure.transient:
                    raise
                self._sleep(_backoff_s(attempt))
                continue
            if last or answer.status not in TRANSIENT or answer.is_final():
                return answer
            answer.close()
            self._sleep(retry_after_s(answer.headers) or _backoff_s(attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def pause(self, attempt: int, wish_s: float = 0.0) -> None:
        """Sleep before attempt `attempt` + 1 of an operation of several requests."""
        self._sleep(wish_s or _backoff_s(attempt))

    def connect(self, url: str, timeout_s: float) -> http.client.HTTPConnection:
        """A connection of its own, for a body that is pushed piece by piece."""
        origin = origin_of(url)
        if origin.scheme == "http":
            plain = http.client.HTTPConnection(origin.host, origin.port, timeout=timeout_s)
            plain.response_class = TimelyResponse
            return plain
        proxy = _proxy_for(origin)
        first = origin_of(proxy) if proxy else origin
        connection = http.client.HTTPSConnection(
            first.host, first.port, timeout=timeout_s, context=self._tls(origin.authority)
        )
        connection.response_class = TimelyResponse
        if proxy:
            connection.set_tunnel(origin.host, origin.port, headers=_proxy_headers(proxy))
        return connection

    def _follow(
        self,
        method: Method,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        read_timeout_s: float,
    ) -> Response:
        sent = {"User-Agent": USER_AGENT, **headers}
        asked = origin_of(url)
        for _ in range(_REDIRECTS):
            answer = self._send(method, url, sent, body, read_timeout_s)
            answer.origin = "registry" if origin_of(url) == asked else "storage"
            location = answer.headers.get("Location", "")
            if not location or not _is_redirect(method, answer.status):
                return answer
            target = join_address(url, location)
            moves = split_address(target) is None or origin_of(target) != origin_of(url)
            if moves and method == "POST" and body is not None:
                return answer  # to a token service: the body holds a secret, too
            answer.close()
            self.check(target, asked.authority)
            if moves:
                sent.pop("Authorization", None)
            url = target
        raise UnexpectedAnswer(asked.authority, "a request", f"more than {_REDIRECTS} redirects")

    def _send(
        self,
        method: Method,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        read_timeout_s: float,
    ) -> Response:
        origin = origin_of(url)
        with explained_failures(origin.authority):
            raw = self._pool(origin).urlopen(
                method,
                url,
                headers=headers,
                body=body,
                redirect=False,
                retries=False,
                preload_content=False,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s),
            )
        return Response(raw, method, url)

    def _pool(self, origin: Origin) -> urllib3.PoolManager:
        proxy = _proxy_for(origin)
        key = (origin.scheme, proxy, *self._authorities_of(origin.authority))
        with self._pools_lock:
            if key not in self._pools:
                tls = self._tls(origin.authority) if origin.scheme == "https" else None
                manager = (
                    urllib3.ProxyManager(
                        proxy,
                        proxy_headers=_proxy_headers(proxy),
                        maxsize=_POOL_CONNECTIONS,
                        ssl_context=tls,
                    )
                    if proxy
                    else urllib3.PoolManager(maxsize=_POOL_CONNECTIONS, ssl_context=tls)
                )
                self._pools[key] = timely(manager)
            return self._pools[key]

    def _tls(self, authority: str) -> ssl.SSLContext:
        """Trust the system's authorities, the user's, and those that docker has for the host.

        OpenSSL itself reads SSL_CERT_FILE and SSL_CERT_DIR instead of the system's.
        """
        own = self._authorities_of(authority)
        with self._contexts_lock:
            if own not in self._contexts:
                self._contexts[own] = self._new_context(own)
            return self._contexts[own]

    def _authorities_of(self, authority: str) -> tuple[str, ...]:
        """The certificates in docker's directory of the host: `HOST:PORT/ca.crt`."""
        return tuple(sorted(map(str, (self._certificates / authority).glob("*.crt"))))

    def _new_context(self, own: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for path in filter(None, (os.environ.get("REQUESTS_CA_BUNDLE"), self._ca_file, *own)):
            try:
                if os.path.isdir(path):  # noqa: PTH112
                    context.load_verify_locations(capath=path)
                elif os.path.isfile(path):  # noqa: PTH113
                    context.load_verify_locations(cafile=path)
                else:
                    with open_waiting(Path(path)) as pipe:  # OpenSSL would wait for ever
                        found = pipe.read(_LONGEST_BUNDLE)
                    context.load_verify_locations(cadata=found.decode("ascii", "ignore"))
            except (OSError, ValueError, ssl.SSLError) as error:
                raise UsageError(
                    f"certificates cannot be read from {path!r}",
                    hint="name a PEM file with the authorities to trust",
                ) from error
        return context


def header_number(text: str) -> int | None:
    """Parse a length or an offset in a header; None where it is invalid."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def retry_after_s(headers: Mapping[str, str] | http.client.HTTPMessage) -> float:
    """Return the seconds of a `Retry-After` header, with an upper limit; 0 without one."""
    return min(waits.retry_after_s(headers.get("Retry-After")), _LONGEST_RETRY_AFTER_S)


def _backoff_s(attempt: int) -> float:
    """Full jitter: clients that failed together do not come back together."""
    return random.uniform(0.0, min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2**attempt))


def _is_redirect(method: Method, status: int) -> bool:
    """301 to 303 would turn a POST into a GET, so only 307 and 308 are followed for those."""
    return status in (307, 308) or (method in ("GET", "HEAD") and status in (301, 302, 303))


def _proxy_for(origin: Origin) -> str:
    """The proxy of the environment. Plain HTTP and loopback go direct."""
    direct = origin.scheme == "http" or is_loopback(origin.host)
    if direct or urllib.request.proxy_bypass(origin.host):
        return ""
    return urllib.request.getproxies().get("https", "")


def _proxy_headers(proxy: str) -> dict[str, str]:
    credentials = urlsplit(proxy).netloc.rpartition("@")[0]
    if not credentials:
        return {}
    remember_user(proxy)
    return dict(urllib3.make_headers(proxy_basic_auth=unquote(credentials)))
