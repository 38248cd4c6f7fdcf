"""Requests to one registry: credentials, redirects, and errors for what comes back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from packager.core.errors import PackagerError, Unavailable
from packager.core.registry import UNKNOWN_REGISTRY, RegistryTraits
from packager.core.remote.refusals import Origin as Kind
from packager.core.remote.refusals import find_refusal, read_error
from packager.images.registry.auth import Access, Authenticator
from packager.images.registry.credential import FindCredentials
from packager.images.registry.credentials import find_credentials
from packager.images.registry.failures import (
    AccessRefused,
    ContentMismatch,
    NotInRegistry,
    RegistryBusy,
    ServiceLimited,
    UnexpectedAnswer,
    WriteRefused,
    storage_refused,
)
from packager.images.registry.moved_uploads import MovedUploads
from packager.images.registry.origins import join_address, origin_of
from packager.images.registry.reference import DOCKER_HUB
from packager.images.registry.transport import (
    ATTEMPTS,
    LONGEST_ERROR,
    TRANSIENT,
    Method,
    Response,
    Transport,
    retry_after_s,
)
from packager.images.registry.upload_strategies import UploadForms

_HUB_HOST = "registry-1.docker.io"
_RIGHTS = frozenset({"DENIED", "UNAUTHORIZED"})


class RegistryExchange:
    """What every request to a registry shares. Safe to use from several threads."""

    def __init__(
        self,
        host: str,
        *,
        transport: Transport | None = None,
        find_credentials: FindCredentials = find_credentials,
        traits: RegistryTraits = UNKNOWN_REGISTRY,
    ) -> None:
        self.host = host
        self.traits = traits
        self.forms = UploadForms(traits)
        self.moved = MovedUploads()
        self.transport = transport or Transport()
        self._base = self.transport.base_url(_HUB_HOST if host == DOCKER_HUB else host)
        self._origin = origin_of(self._base)
        self.auth = Authenticator(host, self.transport, find_credentials)

    @property
    def authority(self) -> str:
        """`HOST[:PORT]` of the actual connection."""
        return self._origin.authority

    def authorization(self, url: str, access: Access, *, for_body: bool = False) -> str:
        """The `Authorization` value for `url`; empty for an address on another host."""
        ours = origin_of(url) == self._origin
        return self.auth.header(access, for_body=for_body) if ours else ""

    def api_url(self, path: str) -> str:
        """Return the address of a path at the registry's own origin."""
        return f"{self._base}{path}"

    def resolve(self, base: str, location: str) -> str:
        """The absolute address of a `Location`, if it may be used."""
        url = join_address(base, location)
        self.transport.check_form(url, self.host)
        parts = urlsplit(url)
        if (
            parts.scheme == "http"
            and self._origin.scheme == "https"
            and parts.hostname == self._origin.host
        ):
            # A registry behind a proxy that does not know that the proxy speaks TLS.
            url = f"{self._base}{url[len(f'http://{parts.netloc}') :]}"
        self.transport.check(url, self.host)
        return url

    def kind_of(self, url: str) -> Kind:
        """Whose answer comes from an address: codes and challenges are the registry's alone."""
        return "registry" if origin_of(url) == self._origin else "storage"

    def failure(
        self, status: int, body: bytes, access: Access, what: str, *, method: str, url: str
    ) -> PackagerError:
        """The error for an answer from `url` that is not the one hoped for."""
        error = read_error(body)
        at, codes, kind = origin_of(url), error.shown, self.kind_of(url)
        refusal = find_refusal(kind, method, status, error)
        if refusal is not None and refusal.kind == "passing":
            return RegistryBusy(at.authority, status, codes)
        if kind == "storage" and status not in (*TRANSIENT, 404):
            answer = f"{status}{codes}"
            return storage_refused(self.host, at.authority, what, answer, refusal)
        if refusal is not None:
            made = {"access": AccessRefused, "output": WriteRefused, "busy": ServiceLimited}
            return made[refusal.kind](self.host, what, refusal, codes)
        if status in (401, 403) or (status < 500 and not _RIGHTS.isdisjoint(error.codes)):
            return self.auth.denied(access, codes)
        if status == 404:
            return NotInRegistry(self.host, what, codes)
        if status in TRANSIENT:
            return RegistryBusy(at.authority, status, codes)
        hint = ""
        if status == 400 and not codes and self._origin.scheme == "http":
            hint = "if it speaks TLS, name its authority's certificate with --ca-file FILE"
        return UnexpectedAnswer(self.host, what, f"{status}{codes}", hint=hint)

    def _call(
        self,
        method: Method,
        url: str,
        access: Access,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        attempts: int = ATTEMPTS,
        read_timeout_s: float | None = None,
    ) -> Response:
        """Send a request, and again after a 401: the last time with a token of its own."""
        sent = dict(headers or {})
        authorization = self.authorization(url, access)
        for renewals_left in (2, 1, 0):
            if authorization:
                sent["Authorization"] = authorization
            answer = self.transport.call(
                method,
                url,
                headers=sent,
                body=body,
                attempts=attempts,
                read_timeout_s=read_timeout_s,
            )
            ours = origin_of(answer.url) == self._origin
            if answer.status != 401 or not ours or not renewals_left:
                break
            challenge = answer.headers.get("WWW-Authenticate", "")
            better = self.auth.answer(challenge, access, authorization, own=renewals_left == 1)
            if not better:
                break
            answer.read(LONGEST_ERROR)
            authorization = better
        return answer

    def _expect(
        self, answer: Response, statuses: Collection[int], access: Access, what: str
    ) -> None:
        if answer.status not in statuses:
            error = self._failure(answer, answer.read(LONGEST_ERROR), access, what)
            if isinstance(error, Unavailable):
                error.retry_after_s = retry_after_s(answer.headers)
            raise error

    def _failure(self, answer: Response, body: bytes, access: Access, what: str) -> PackagerError:
        return self.failure(answer.status, body, access, what, method=answer.method, url=answer.url)

    def _check_digest(self, expected: str, found: str) -> None:
        if expected != found:
            raise ContentMismatch(self.host, expected, found)

    def _location(self, answer: Response, what: str) -> str:
        location = answer.headers.get("Location", "")
        if not location:
            raise UnexpectedAnswer(self.host, what, f"{answer.status} without a Location")
        return self.resolve(answer.url, location)

    def _manifest_url(self, repository: str, pointer: str) -> str:
        return f"{self._base}/v2/{repository}/manifests/{pointer}"

    def _blob_url(self, repository: str, digest: str) -> str:
        return f"{self._base}/v2/{repository}/blobs/{digest}"

    def _uploads_url(self, repository: str) -> str:
        return f"{self._base}/v2/{repository}/blobs/uploads/"
