"""The distribution protocol at one registry: manifests, blobs, uploads.

Every method either does what its name says or raises one of `failures`.
Small requests are repeated when that may help; bodies of layers are not sent
here but in `upload`.  All that comes back under a digest is checked against it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

from packager.core.image import MEDIA_INDEX, Descriptor
from packager.core.registry import UNKNOWN_REGISTRY, RegistryTraits
from packager.core.values import dataclass
from packager.errors import AccessDenied, PackagerError, Unavailable
from packager.images.oci import INDEX_TYPES, MANIFEST_TYPES, is_digest, parse_object, sha256
from packager.images.registry.auth import NOTHING, Access, Authenticator, pull, push
from packager.images.registry.credential import FindCredentials
from packager.images.registry.credentials import find_credentials
from packager.images.registry.failures import (
    ContentMismatch,
    NotInRegistry,
    RegistryBusy,
    RegistryUnreachable,
    RepositoryMissing,
    UnexpectedAnswer,
    error_codes,
)
from packager.images.registry.origins import commit_address, join_address, origin_of
from packager.images.registry.reference import DOCKER_HUB, is_tag
from packager.images.registry.resuming import range_start, read_whole
from packager.images.registry.transport import (
    ATTEMPTS,
    TRANSIENT,
    Method,
    Response,
    Transport,
    header_number,
    retry_after_s,
)
from packager.images.registry.upload_strategies import UploadForms

CHUNK = 1024 * 1024
LONGEST_MANIFEST = 4 * 1024 * 1024  # what the specification obliges a registry to take
COMMIT_TIMEOUT_S = 900.0  # a registry on object storage copies the blob before it answers
_CANCEL_TIMEOUT_S = 5.0
_LONGEST_ERROR = 64 * 1024
_PING_ATTEMPTS = 2
_HUB_HOST = "registry-1.docker.io"
_ACCEPT = {"Accept": ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))}
_MOST_PAGES = 100
_NEXT_PAGE = re.compile(r'<([^<>]*)>[ \t]*;[ \t]*rel="?next"?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest or index as the registry has it."""

    digest: str
    media_type: str
    data: bytes


class RegistryClient:
    """Talks to one registry. Safe to use from several threads."""

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
        self.transport = transport or Transport()
        self._base = self.transport.base_url(_HUB_HOST if host == DOCKER_HUB else host)
        self._origin = origin_of(self._base)
        self.auth = Authenticator(host, self.transport, find_credentials)

    @property
    def authority(self) -> str:
        """`HOST[:PORT]` that is really spoken to."""
        return self._origin.authority

    def ping(self) -> None:
        """Check that a registry is there, and, where it says so already, our password."""
        what = "GET /v2/"
        url = f"{self._base}/v2/"
        answer = self.transport.call("GET", url, headers={}, attempts=_PING_ATTEMPTS)
        body = answer.read(_LONGEST_ERROR)
        if answer.status == 401:
            self.auth.learn(answer.headers.get("WWW-Authenticate", ""))
            if self.auth.scheme == "bearer":
                return  # a token needs a purpose
            answer = self._call("GET", url, NOTHING, attempts=_PING_ATTEMPTS)
            body = answer.read(_LONGEST_ERROR)
        if answer.status == 200:
            return
        if answer.status == 404:
            raise UnexpectedAnswer(
                self.host, what, "404", hint=f"is {self.host!r} a container registry?"
            )
        raise self.failure(answer.status, body, NOTHING, what)

    def head_manifest(self, repository: str, pointer: str) -> Descriptor | None:
        """Return what a tag or digest points to; None when there is nothing."""
        answer = self._call(
            "HEAD", self._manifest_url(repository, pointer), pull(repository), headers=_ACCEPT
        )
        answer.read(_LONGEST_ERROR)
        if answer.status == 404:
            return None
        what = f"HEAD manifest {pointer!r}"
        self._expect(answer, (200,), pull(repository), what)
        digest = answer.headers.get("Docker-Content-Digest", "")
        if not is_digest(digest):  # optional in the specification, so ask in the expensive way
            found = self.get_manifest(repository, pointer)
            return Descriptor(
                media_type=found.media_type, digest=found.digest, size=len(found.data)
            )
        return Descriptor(
            media_type=_media_type(answer),
            digest=digest,
            size=self._content_length(answer, what),
        )

    def get_manifest(self, repository: str, pointer: str) -> Manifest:
        """Fetch a manifest or index by tag or digest."""
        what = f"manifest {pointer!r} in {repository!r}"

        def ask(_: int) -> Response:
            answer = self._call(
                "GET", self._manifest_url(repository, pointer), pull(repository), headers=_ACCEPT
            )
            self._expect(answer, (200,), pull(repository), what)
            return answer

        answer, data = read_whole(ask, LONGEST_MANIFEST, self.transport.pause, self.host)
        digest = sha256(data)
        if ":" in pointer:
            self._check_digest(pointer, digest)
        else:
            self.check_stored_digest(answer.headers.get("Docker-Content-Digest", ""), digest)
        return Manifest(digest=digest, media_type=_media_type(answer), data=data)

    def put_manifest(self, repository: str, pointer: str, data: bytes, media_type: str) -> str:
        """Store a manifest under a tag or its digest; idempotent.

        Gives the digest in whose list of referrers the registry has put it, if it has one.
        """
        what = f"PUT manifest {pointer!r}"
        answer = self._call(
            "PUT",
            self._manifest_url(repository, pointer),
            push(repository),
            body=data,
            headers={"Content-Type": media_type},
        )
        self._expect(answer, (201,), push(repository), what)
        answer.read(_LONGEST_ERROR)
        self.check_stored_digest(answer.headers.get("Docker-Content-Digest", ""), sha256(data))
        return answer.headers.get("OCI-Subject", "").strip()

    def list_referrers(
        self, repository: str, digest: str, artifact_type: str = ""
    ) -> list[dict[str, Any]] | None:
        """Return the referrers of a digest; None when the registry keeps no such list.

        A registry may list things of other types than the one asked for.
        """
        what = f"the list of referrers of {digest}"
        asked = f"?{urlencode({'artifactType': artifact_type})}" if artifact_type else ""
        url = f"{self._base}/v2/{repository}/referrers/{digest}{asked}"
        entries: list[dict[str, Any]] = []
        for _ in range(_MOST_PAGES):
            answer = self._call("GET", url, pull(repository), headers={"Accept": MEDIA_INDEX})
            if answer.status in (404, 405):
                answer.close()
                return None
            self._expect(answer, (200,), pull(repository), what)
            data = answer.read(LONGEST_MANIFEST)
            if _media_type(answer) != MEDIA_INDEX:
                return None  # a web page, say
            found = parse_object(data, "list of referrers").get("manifests")
            listed = found if isinstance(found, list) else []
            entries += [entry for entry in listed if isinstance(entry, dict)]
            following = _NEXT_PAGE.search(answer.headers.get("Link", ""))
            if not following:
                return entries
            url = self.resolve(answer.url, following[1])
        raise UnexpectedAnswer(self.host, what, f"more than {_MOST_PAGES} pages")

    def list_tags(self, repository: str) -> list[str]:
        """The tags of a repository, as far as the registry gives them at once."""
        what = f"the tags of {repository!r}"
        url = f"{self._base}/v2/{repository}/tags/list"
        answer = self._call("GET", url, pull(repository), attempts=1)
        self._expect(answer, (200,), pull(repository), what)
        tags = parse_object(answer.read(LONGEST_MANIFEST), "list of tags").get("tags")
        if not isinstance(tags, list | None):
            raise UnexpectedAnswer(self.host, what, "something else")
        return [tag for tag in tags or () if isinstance(tag, str) and is_tag(tag)]

    def head_blob(self, repository: str, digest: str) -> int | None:
        """The size of a blob; None when the repository does not have it."""
        answer = self._call("HEAD", self._blob_url(repository, digest), pull(repository))
        answer.read(_LONGEST_ERROR)
        if answer.status == 404:
            return None
        self._expect(answer, (200,), pull(repository), f"HEAD blob {digest}")
        return self._content_length(answer, f"HEAD blob {digest}")

    def get_blob(self, repository: str, digest: str, limit: int) -> bytes:
        """Fetch a small blob whole; a body that breaks off is taken up again where it broke."""

        def ask(offset: int) -> Response:
            return self._open_blob(repository, digest, offset)

        _, data = read_whole(ask, limit, self.transport.pause, self.host)
        self._check_digest(digest, sha256(data))
        return data

    def read_blob(
        self, repository: str, digest: str, *, offset: int, length: int
    ) -> Iterator[bytes]:
        """Stream `length` bytes of a blob; when that is all of it, its digest is checked.

        A connection that breaks is taken up again where it broke.
        """
        hashed = hashlib.sha256()
        done = failures = 0
        total: int | None = None
        while True:
            answer = self._open_blob(repository, digest, offset + done)
            try:
                skip, total = range_start(answer, offset + done, self.host)
                for chunk in answer.stream(CHUNK):
                    wanted = chunk[skip : skip + length - done]
                    skip = max(0, skip - len(chunk))
                    if wanted:
                        hashed.update(wanted)
                        done += len(wanted)
                        failures = 0
                        yield wanted
                    if done == length:
                        break
                if done < length:
                    raise RegistryUnreachable(self.authority, "the blob ended early")
                break
            except RegistryUnreachable as failure:
                failures += 1
                if failures == ATTEMPTS or not failure.transient:
                    raise
                self.transport.pause(failures)
            finally:
                answer.close()
        if offset == 0 and total in (None, length):
            self._check_digest(digest, f"sha256:{hashed.hexdigest()}")

    def start_upload(self, repository: str) -> str:
        """Open an upload; give the address for its bytes."""
        what = f"the start of an upload to {repository!r}"
        answer = self._call("POST", self._uploads_url(repository), push(repository))
        if answer.status == 404:
            create = self.traits.create.format(repository=repository, host=self.host)
            codes = error_codes(answer.read(_LONGEST_ERROR))
            raise RepositoryMissing(self.host, repository, create, codes)
        self._expect(answer, (202,), push(repository), what)
        answer.read(_LONGEST_ERROR)
        self.forms.hear(answer.headers)
        return self._location(answer, what)

    def mount_blob(self, repository: str, digest: str, source: str) -> str | None:
        """Mount a blob from the repository `source` of the same registry.

        None when it is there now.  Where the registry cannot do it, or does not
        want to, an upload is opened and its address is given.
        """
        query = urlencode({"mount": digest, "from": source})
        try:
            answer = self._call(
                "POST", f"{self._uploads_url(repository)}?{query}", push(repository) | pull(source)
            )
        except AccessDenied:
            return self.start_upload(repository)  # it may be `source` that we must not read
        answer.read(_LONGEST_ERROR)
        if answer.status == 201:
            return None
        if answer.status == 202:
            self.forms.hear(answer.headers)
            return self._location(answer, f"a mount into {repository!r}")
        return self.start_upload(repository)

    def commit_upload(self, repository: str, upload: str, digest: str) -> None:
        """Close an upload whose bytes have all been sent."""
        what = f"the end of an upload to {repository!r}"
        answer = self._call(
            "PUT",
            commit_address(upload, digest),
            push(repository),
            attempts=1,
            read_timeout_s=COMMIT_TIMEOUT_S,
        )
        self._expect(answer, (200, 201, 204), push(repository), what)
        answer.read(_LONGEST_ERROR)
        self.check_stored_digest(answer.headers.get("Docker-Content-Digest", ""), digest)

    def cancel_upload(self, repository: str, upload: str) -> None:
        """Cancel an upload; registries that cannot will expire it."""
        with suppress(Unavailable):
            self._call(
                "DELETE", upload, push(repository), attempts=1, read_timeout_s=_CANCEL_TIMEOUT_S
            ).close()

    def authorization(self, url: str, access: Access, *, for_body: bool = False) -> str:
        """The `Authorization` value for `url`; nothing for an address on another host."""
        ours = origin_of(url) == self._origin
        return self.auth.header(access, for_body=for_body) if ours else ""

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

    def check_stored_digest(self, stored: str, digest: str) -> None:
        """Compare what the registry says it has stored, if it does, with what we sent."""
        if stored.startswith("sha256:"):
            self._check_digest(digest, stored)

    def failure(self, status: int, body: bytes, access: Access, what: str) -> PackagerError:
        """The error for an answer that is not the one hoped for."""
        codes = error_codes(body)
        if status in (401, 403):
            return self.auth.denied(access, codes)
        if status == 404:
            return NotInRegistry(self.host, what, codes)
        if status in TRANSIENT:
            return RegistryBusy(self.authority, status, codes)
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
            answer.read(_LONGEST_ERROR)
            authorization = better
        return answer

    def _open_blob(self, repository: str, digest: str, offset: int) -> Response:
        answer = self._call(
            "GET",
            self._blob_url(repository, digest),
            pull(repository),
            headers={"Range": f"bytes={offset}-"} if offset else {},
        )
        if answer.status == 416 and offset:  # it broke off behind the last byte
            answer.close()
            return self._open_blob(repository, digest, 0)
        what = f"blob {digest} in {repository!r}"
        self._expect(answer, (200, 206) if offset else (200,), pull(repository), what)
        return answer

    def _expect(
        self, answer: Response, statuses: Collection[int], access: Access, what: str
    ) -> None:
        if answer.status not in statuses:
            error = self.failure(answer.status, answer.read(_LONGEST_ERROR), access, what)
            if isinstance(error, Unavailable):
                error.retry_after_s = retry_after_s(answer.headers)
            raise error

    def _check_digest(self, expected: str, found: str) -> None:
        if expected != found:
            raise ContentMismatch(self.host, expected, found)

    def _location(self, answer: Response, what: str) -> str:
        location = answer.headers.get("Location", "")
        if not location:
            raise UnexpectedAnswer(self.host, what, f"{answer.status} without a Location")
        return self.resolve(answer.url, location)

    def _content_length(self, answer: Response, what: str) -> int:
        length = header_number(answer.headers.get("Content-Length", ""))
        if length is None:
            raise UnexpectedAnswer(self.host, what, "without a Content-Length")
        return length

    def _manifest_url(self, repository: str, pointer: str) -> str:
        return f"{self._base}/v2/{repository}/manifests/{pointer}"

    def _blob_url(self, repository: str, digest: str) -> str:
        return f"{self._base}/v2/{repository}/blobs/{digest}"

    def _uploads_url(self, repository: str) -> str:
        return f"{self._base}/v2/{repository}/blobs/uploads/"


def _media_type(answer: Response) -> str:
    return answer.headers.get("Content-Type", "").partition(";")[0].strip()
