"""The distribution protocol at one registry: manifests, blobs, uploads.

Every method either does what its name says or raises one of `failures`.
Small requests are repeated when that may help; bodies of layers are not sent
here but in `upload`.  All that comes back under a digest is checked against it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from packager.core.errors import AccessDenied, PackagerError, Unavailable
from packager.core.image import MEDIA_INDEX, Descriptor
from packager.core.remote.refusals import read_error
from packager.images.oci import is_digest, parse_object, sha256
from packager.images.registry.auth import NOTHING, pull, push
from packager.images.registry.exchange import RegistryExchange
from packager.images.registry.failures import (
    ContentMismatch,
    NotInRegistry,
    RegistryBusy,
    RegistryUnreachable,
    UnexpectedAnswer,
    repository_missing,
    size_mismatch,
)
from packager.images.registry.leniency import (
    CLOSE_UPLOAD,
    OPENED,
    STORE_MANIFEST,
    is_doubtful,
)
from packager.images.registry.media_types import TYPES, manifest_type, media_type
from packager.images.registry.origins import commit_address
from packager.images.registry.reference import is_tag
from packager.images.registry.resuming import range_start, read_whole, whole_size
from packager.images.registry.transport import (
    ATTEMPTS,
    LONGEST_ERROR,
    TRANSIENT,
    Response,
    header_number,
)

CHUNK = 1024 * 1024
LONGEST_MANIFEST = 4 * 1024 * 1024  # what the specification obliges a registry to take
UNKNOWN_SIZE = -1  # of a blob that is there, where the registry does not say how large it is
COMMIT_TIMEOUT_S = 900.0  # a registry on object storage copies the blob before it answers
_CANCEL_TIMEOUT_S = 5.0
_PING_ATTEMPTS = 2
_ACCEPT = {"Accept": ", ".join(TYPES)}
_MOST_PAGES = 100
_NO_REFERRERS = (400, 403, 404, 405, 501)  # go-containerregistry takes 400 for "no such list", too
_NEXT_PAGE = re.compile(r'<([^<>]*)>[ \t]*;[ \t]*rel="?next"?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest or index as the registry has it."""

    digest: str
    media_type: str
    data: bytes


class RegistryClient(RegistryExchange):
    """Talks to one registry. Safe to use from several threads."""

    def ping(self) -> None:
        """Check that a registry is there, and, where it says so already, our password."""
        what = "GET /v2/"
        url = f"{self._base}/v2/"
        answer = self.transport.call("GET", url, headers={}, attempts=_PING_ATTEMPTS)
        body = answer.read(LONGEST_ERROR)
        if answer.status == 401:
            self.auth.learn(answer.headers.get("WWW-Authenticate", ""))
            if self.auth.scheme == "bearer":
                return  # a token needs a purpose
            answer = self._call("GET", url, NOTHING, attempts=_PING_ATTEMPTS)
            body = answer.read(LONGEST_ERROR)
        if answer.status == 200:
            return
        if answer.status == 404:
            raise UnexpectedAnswer(
                self.host, what, "404", hint=f"is {self.host!r} a container registry?"
            )
        raise self._failure(answer, body, NOTHING, what)

    def head_manifest(self, repository: str, pointer: str) -> Descriptor | None:
        """Return the manifest that a tag or digest points to; None if missing."""
        answer = self._call(
            "HEAD", self._manifest_url(repository, pointer), pull(repository), headers=_ACCEPT
        )
        answer.read(LONGEST_ERROR)
        if answer.status == 404:
            return None
        digest = answer.headers.get("Docker-Content-Digest", "")
        stated = media_type(answer)
        length = header_number(answer.headers.get("Content-Length", ""))
        says_all = is_digest(digest) and stated in TYPES and length is not None
        if answer.status == 200 and says_all and (":" not in pointer or pointer == digest):
            return Descriptor(media_type=stated, digest=digest, size=length or 0)
        # The manifest itself has what a HEAD leaves out or is refused.
        try:
            found = self.get_manifest(repository, pointer)
        except NotInRegistry:
            return None
        return Descriptor(media_type=found.media_type, digest=found.digest, size=len(found.data))

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
        digest, stored = sha256(data), answer.headers.get("Docker-Content-Digest", "")
        if ":" in pointer:
            self._check_digest(pointer, digest)
        elif is_digest(stored) and stored != digest:
            return self._settle_manifest(repository, digest, stored)
        return Manifest(digest=digest, media_type=manifest_type(answer, data), data=data)

    def _settle_manifest(self, repository: str, digest: str, stored: str) -> Manifest:
        """Return what a tag means whose manifest and digest disagree: what is there by its digest.

        The header is often computed of something else.  A manifest that something on the way
        changed is nowhere under the digest of what came.
        """
        try:
            return self.get_manifest(repository, digest)
        except (NotInRegistry, ContentMismatch):
            pass
        try:
            return self.get_manifest(repository, stored)
        except NotInRegistry:
            raise ContentMismatch(self.host, stored, digest) from None

    def put_manifest(self, repository: str, pointer: str, data: bytes, media_type: str) -> str:
        """Store a manifest under a tag or its digest; idempotent.

        Where the answer leaves a doubt, or refuses what an answer that got lost had stored, what is
        there decides.  Gives the digest in whose list of referrers the registry has put it, if it
        has one.
        """
        digest = sha256(data)
        try:
            answer = self._store_manifest(repository, pointer, data, media_type)
        except Unavailable:
            raise
        except PackagerError:
            with suppress(PackagerError):  # why it was refused is what counts
                if self._keeps_manifest(repository, pointer, digest, attempts=1):
                    return ""
            raise
        stored = answer.headers.get("Docker-Content-Digest", "")
        doubtful = is_doubtful(STORE_MANIFEST, answer.status, stored, digest)
        doubtful = doubtful or self.kind_of(answer.url) == "storage"
        if doubtful and not self._keeps_manifest(repository, pointer, digest):
            raise UnexpectedAnswer(
                self.host, f"PUT manifest {pointer!r}", f"{answer.status}, and did not store it"
            )
        return answer.headers.get("OCI-Subject", "").strip()

    def _store_manifest(
        self, repository: str, pointer: str, data: bytes, media_type: str
    ) -> Response:
        """Send a manifest, again where the registry does not see yet what it has just stored."""
        what = f"PUT manifest {pointer!r}"
        for attempt in range(1, ATTEMPTS + 1):
            answer = self._call(
                "PUT",
                self._manifest_url(repository, pointer),
                push(repository),
                body=data,
                headers={"Content-Type": media_type},
            )
            try:
                self._expect(answer, STORE_MANIFEST.taken, push(repository), what)
            except RegistryBusy:
                if attempt == ATTEMPTS or answer.status in TRANSIENT:
                    raise
                self.transport.pause(attempt)
                continue
            answer.read(LONGEST_ERROR)
            return answer
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _keeps_manifest(
        self, repository: str, pointer: str, digest: str, attempts: int = ATTEMPTS
    ) -> bool:
        """Whether a manifest is there under its name, now or soon."""
        for attempt in range(1, attempts + 1):
            try:
                if self.get_manifest(repository, pointer).digest == digest:
                    return True
            except (NotInRegistry, AccessDenied):
                pass
            if attempt < attempts:
                self.transport.pause(attempt)
        return False

    def list_referrers(
        self, repository: str, digest: str, artifact_type: str = ""
    ) -> list[dict[str, Any]] | None:
        """Return the referrers of a digest; None when the registry keeps no such list.

        A registry may list other types than the requested one.
        """
        what = f"the list of referrers of {digest}"
        asked = f"?{urlencode({'artifactType': artifact_type})}" if artifact_type else ""
        url = f"{self._base}/v2/{repository}/referrers/{digest}{asked}"
        entries: list[dict[str, Any]] = []
        for _ in range(_MOST_PAGES):
            answer = self._call("GET", url, pull(repository), headers={"Accept": MEDIA_INDEX})
            if answer.status in _NO_REFERRERS:
                answer.close()
                return None
            self._expect(answer, (200,), pull(repository), what)
            data = answer.read(LONGEST_MANIFEST)
            if manifest_type(answer, data) != MEDIA_INDEX:
                return None  # a web page, say
            found = parse_object(data, "list of referrers").get("manifests")
            listed = found if isinstance(found, list) else []
            entries += [entry for entry in listed if isinstance(entry, dict)]
            following = _NEXT_PAGE.search(answer.headers.get("Link", ""))
            if not following:
                return entries
            url = self.resolve(answer.url, following[1])
        raise UnexpectedAnswer(self.host, what, f"more than {_MOST_PAGES} pages")

    def list_tags(self, repository: str, *, attempts: int = ATTEMPTS) -> list[str]:
        """The tags of a repository, as far as the registry gives them at once."""
        what = f"the tags of {repository!r}"
        url = f"{self._base}/v2/{repository}/tags/list"
        answer = self._call("GET", url, pull(repository), attempts=attempts)
        self._expect(answer, (200,), pull(repository), what)
        tags = parse_object(answer.read(LONGEST_MANIFEST), "list of tags").get("tags")
        if not isinstance(tags, list | None):
            raise UnexpectedAnswer(self.host, what, "something else")
        return [tag for tag in tags or () if isinstance(tag, str) and is_tag(tag)]

    def head_blob(self, repository: str, digest: str) -> int | None:
        """Return the size of a blob, or `UNKNOWN_SIZE`; None when the repository does not have it.

        A failed HEAD is repeated as a GET of the first byte: storage that a registry redirects to
        may accept a signature for GET only, and a HEAD states no reasons.
        """
        answer = self._call("HEAD", self._blob_url(repository, digest), pull(repository))
        answer.read(LONGEST_ERROR)
        if answer.status == 404:
            return None
        length = header_number(answer.headers.get("Content-Length", ""))
        if answer.status == 200 and length is not None:
            return length
        return self._probe_blob(repository, digest)

    def has_blob(self, repository: str, digest: str, size: int) -> bool:
        """Whether the repository has a blob; raises `ProtocolFailed` where it has another size."""
        found = self.head_blob(repository, digest)
        if found not in (None, UNKNOWN_SIZE, size):
            found = self._probe_blob(repository, digest)  # proxies report other lengths in a HEAD
        if found not in (None, UNKNOWN_SIZE, size):
            raise size_mismatch(self.host, digest, found or 0, size)
        return found is not None

    def await_blob(self, repository: str, digest: str, size: int) -> bool:
        """Whether the repository has a blob now or soon: replicas differ for a moment."""
        for attempt in range(1, ATTEMPTS + 1):
            if self.has_blob(repository, digest, size):
                return True
            if self._probe_blob(repository, digest) is not None:
                return True  # there are registries that know no HEAD
            if attempt < ATTEMPTS:
                self.transport.pause(attempt)
        return False

    def _probe_blob(self, repository: str, digest: str) -> int | None:
        what = f"blob {digest} in {repository!r}"
        answer = self._call(
            "GET",
            self._blob_url(repository, digest),
            pull(repository),
            headers={"Range": "bytes=0-0"},
        )
        if answer.status != 404:
            self._expect(answer, (200, 206, 416), pull(repository), what)
        answer.close()
        if answer.status == 404:
            return None
        size = whole_size(answer)
        return UNKNOWN_SIZE if size is None else size

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
            codes = read_error(answer.read(LONGEST_ERROR)).shown
            raise repository_missing(self.host, repository, create, codes)
        self._expect(answer, OPENED, push(repository), what)
        answer.read(LONGEST_ERROR)
        self.forms.hear(answer.headers)
        return self._location(answer, what)

    def mount_blob(self, repository: str, digest: str, source: str) -> str | None:
        """Mount a blob from the repository `source` of the same registry.

        Return None if it is mounted.  A registry that cannot or will not mount it opens an upload,
        whose address is returned.
        """
        query = urlencode({"mount": digest, "from": source})
        try:
            answer = self._call(
                "POST", f"{self._uploads_url(repository)}?{query}", push(repository) | pull(source)
            )
        except (AccessDenied, Unavailable):
            return self.start_upload(repository)  # it may be `source` that we must not read
        answer.read(LONGEST_ERROR)
        if answer.status == 201:
            return None
        if answer.status in OPENED and answer.headers.get("Location"):
            self.forms.hear(answer.headers)
            return self._location(answer, f"a mount into {repository!r}")
        return self.start_upload(repository)

    def commit_upload(self, repository: str, upload: str, digest: str, size: int) -> None:
        """Close an upload whose bytes have all been sent."""
        what = f"the end of an upload to {repository!r}"
        answer = self._call(
            "PUT",
            commit_address(upload, digest),
            push(repository),
            attempts=1,
            read_timeout_s=COMMIT_TIMEOUT_S,
        )
        self._expect(answer, CLOSE_UPLOAD.taken, push(repository), what)
        answer.read(LONGEST_ERROR)
        stored = answer.headers.get("Docker-Content-Digest", "")
        self.settle_upload(repository, digest, size, answer.status, stored)

    def settle_upload(
        self, repository: str, digest: str, size: int, status: int, stored: str
    ) -> None:
        """Read back what the answer to a closing PUT leaves a doubt about.

        Raises `ContentMismatch` where other bytes are there, `RegistryBusy` where none are.
        """
        if not is_doubtful(CLOSE_UPLOAD, status, stored, digest):
            return
        if not self.await_blob(repository, digest, size):
            raise RegistryBusy(self.authority, status, ", and does not have the blob")
        if is_digest(stored) and stored != digest:  # only the bytes show which is right
            for _ in self.read_blob(repository, digest, offset=0, length=size):
                pass

    def cancel_upload(self, repository: str, upload: str) -> None:
        """Cancel an upload; registries that cannot will expire it."""
        with suppress(Unavailable):
            self._call(
                "DELETE", upload, push(repository), attempts=1, read_timeout_s=_CANCEL_TIMEOUT_S
            ).close()

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
        self._expect(answer, (200, 206), pull(repository), what)
        return answer
