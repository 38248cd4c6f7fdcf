"""Pushing an image straight into a registry: `HOST/REPOSITORY[:TAG]`.

A layer whose digest is known costs one request if the registry has it, or can mount it from a
repository that had it when last seen.  The manifest is stored by digest, all of its blobs are
checked, and `publish` puts the tag last.  If the registry has an API that states whether an
existing tag can be moved, it is called before the first byte of a layer is sent.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from packager.core.documents import shorten
from packager.core.errors import AccessDenied, NotFound, PackagerError, ProtocolFailed, UsageError
from packager.core.events import ignore
from packager.core.findings import errors_in
from packager.core.image import (
    MEDIA_INDEX,
    MEDIA_MANIFEST,
    Attached,
    Blob,
    Claim,
    Descriptor,
    ImageRef,
    ImageSpec,
    Layer,
    SealedImage,
)
from packager.core.ports import ImageSink
from packager.core.references import DEFAULT_TAG, RegistryTarget
from packager.core.remote.refusals import refusal_named
from packager.images.claim_key import ClaimKeys
from packager.images.claims import ClaimDocument, ClaimKey, judge, write_claims
from packager.images.limits import check_limits
from packager.images.oci import is_index
from packager.images.registry.attached import put_attached
from packager.images.registry.claims import attach_claims, fetch_claims
from packager.images.registry.clients import RegistryClients
from packager.images.registry.failures import (
    NotInRegistry,
    OverLimits,
    RegistryBusy,
    ServiceLimited,
    UnexpectedAnswer,
    WriteRefused,
    file_systems_refused,
)
from packager.images.registry.reader import registry_blob
from packager.images.registry.reference import DOCKER_HUB, refuse_digest
from packager.images.registry.tag_rules import is_immutable
from packager.images.registry.upload import BlobUpload, put_blob
from packager.images.remote_layers import RemoteLayerIndex, read_earlier
from packager.images.seen_blobs import SeenBlobs
from packager.images.variants import forms_of, has_file_systems

_CHECKS_AT_ONCE = 8
_EARLIER_IMAGES = 4  # beside the tag's own; some registries count what is fetched
_MOUNTS_TRIED = 3
_DIGESTS = re.compile(r"sha256:[0-9a-f]{64}")
_REFERRERS = re.compile(r"sha256-[0-9a-f]{64}")  # signatures and the like, kept as tags


@dataclass(frozen=True, slots=True, kw_only=True)
class _FixedTag:
    """An immutable tag: only the image that it points to can be pushed there."""

    digest: str
    blobs: frozenset[str]  # digests of everything that the image names
    error: WriteRefused


class RegistrySink(ImageSink):
    """Image sink for one tag of one repository. Writers may be opened from several threads."""

    keeps_index = keeps_claims = True
    bytes_sent = 0

    def __init__(
        self,
        target: RegistryTarget,
        *,
        insecure_hosts: Collection[str] = (),
        clients: RegistryClients | None = None,
        seen: SeenBlobs | None = None,
        keys: ClaimKeys | None = None,
        on_warning: Callable[[str], None] = ignore,
    ) -> None:
        reference = target.image
        form = f"{reference.name}:{reference.tag or 'TAG'}"
        refuse_digest(target.text, reference.digest, form)
        if reference.host == DOCKER_HUB and not target.text.startswith(DOCKER_HUB):
            raise UsageError(
                f"output {target.text!r} names no registry",
                hint=f"write docker:{target.text} for the Docker Engine, "
                f"HOST/{target.text} for a registry, docker.io/NAME/{target.text} for Docker Hub",
            )
        self.target = target.text
        self._reference = reference
        self._tag = reference.tag or DEFAULT_TAG
        self._client = (clients or RegistryClients(insecure_hosts=insecure_hosts)).at(
            reference.host
        )
        self._seen = seen
        self._keys = keys
        self._warn = on_warning
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}  # of the blobs known to be in the repository
        self._fixed: _FixedTag | None = None
        self._mounted: set[str] = set()  # blobs that the registry took from another repository

    @property
    def mounted(self) -> Collection[str]:
        """Return the digests of blobs that the registry took over from another repository."""
        return self._mounted

    @property
    def repository(self) -> str:
        """Return what signatures name."""
        return self._reference.name

    def preflight(self) -> None:
        """Check that the registry is there and lets us push, by opening an upload.

        Behind proxies only `/v2/` may answer otherwise: then the upload decides.
        """
        repository, doubt = self._reference.repository, None
        try:
            self._client.ping()
        except (AccessDenied, ProtocolFailed, RegistryBusy) as error:
            doubt = error
        try:
            address = self._client.start_upload(repository)
        except (NotFound, ProtocolFailed) as error:
            raise doubt or error from None
        self._client.cancel_upload(repository, address)

    def prepare(self, image: ImageSpec) -> None:
        """Refuse what the registry will not take, and check again that it is there."""
        host = self._reference.host
        found = tuple(check_limits(image, host, self._client.traits))
        errors = errors_in(found)
        if errors:
            raise OverLimits(host, errors)
        for finding in found:
            self._warn(f"{finding.message}; {finding.hint}")
        self.preflight()
        self._fixed = self._find_fixed_tag()

    def _find_fixed_tag(self) -> _FixedTag | None:
        """Return what an immutable tag points to; None if it may be moved, or this is unknown."""
        repository = self._reference.repository
        if not is_immutable(self._client, repository, self._tag):
            return None
        try:
            found = self._client.get_manifest(repository, self._tag)
        except PackagerError:
            return None  # it is missing yet, or the upload will report the error
        documents = [found.data]
        with suppress(PackagerError):
            if is_index(self.target, found.data):
                documents += [
                    self._client.get_manifest(repository, digest).data
                    for digest in forms_of(found.data)
                ]
        blobs = frozenset(_DIGESTS.findall(b" ".join(documents).decode("utf-8", "replace")))
        error = WriteRefused(
            self._reference.host, f"to move the tag {self._tag!r}", refusal_named("immutable-tag")
        )
        return _FixedTag(digest=found.digest, blobs=blobs, error=error)

    def writer(self, layer: Layer) -> BlobUpload | None:
        """Open an upload, unless the registry has the layer or can mount it."""
        if not layer.digest:
            size = layer.size if layer.is_sized else None
            return self._upload(size, digest_first=self._fixed is not None)
        if self._fixed is not None and layer.digest not in self._fixed.blobs:
            raise self._fixed.error
        return self._offer(layer.digest, layer.size, layer.mount_from)

    def earlier_layers(self, *, with_claims: bool) -> RemoteLayerIndex:
        """What the images of this repository say: the tag's own, then some others'.

        A manifest is a hint.  A claim counts when our key proves it for this repository:
        who may write here, or elsewhere, has no say in what this image holds.
        """
        repository = self._reference.repository
        keys = self._keys if with_claims and self._keys and not self._keys.is_off else None
        key = keys.find() if keys else None

        def fetch(tag: str) -> tuple[list[bytes], tuple[ClaimDocument, ...]]:
            manifests: list[bytes] = []
            with suppress(PackagerError):
                found = self._client.get_manifest(repository, tag)
                if found.media_type == MEDIA_INDEX:
                    forms = [
                        self._client.get_manifest(repository, digest)
                        for digest in forms_of(found.data)
                    ]
                    manifests = [form.data for form in forms]
                    found = next(iter(forms), found)  # the plain one: claims are attached to it
                elif found.media_type == MEDIA_MANIFEST:
                    manifests = [found.data]
                return manifests, attached_to(found.digest) if manifests else ()
            return manifests, ()

        def attached_to(digest: str) -> tuple[ClaimDocument, ...]:
            if keys is None:
                return ()
            return fetch_claims(self._client, repository, digest, key.id if key else "")

        with ThreadPoolExecutor(_CHECKS_AT_ONCE, thread_name_prefix="earlier") as pool:
            own = pool.submit(fetch, self._tag)
            others = list(pool.map(fetch, self._other_tags()))
        found = [own.result(), *others]
        documents = [document for _, attached in found for document in attached]
        self._warn_of_claims(documents, key)
        manifests = [data for several, _ in found for data in several]
        return read_earlier(manifests, documents, key=key, repository=self._reference.name)

    def _warn_of_claims(self, documents: Sequence[ClaimDocument], key: ClaimKey | None) -> None:
        """Warn once why existing claims are not trusted."""
        name = self._reference.name
        verdicts = {judge(document, key, name): document for document in documents}
        if "forged" in verdicts:
            self._warn(
                f"a claim in {name!r} names the key {verdicts['forged'].key_id} and was not made "
                "with it: somebody who may push there changed or forged it; it is not believed"
            )
        if "other-repository" in verdicts:
            self._warn(f"a claim in {name!r} was made for another repository; it is not believed")
        if "other-key" in verdicts and "proven" not in verdicts:
            ours = f"the key here is {key.id}" if key else "there is no key here"
            self._warn(
                f"what layers in {name!r} hold is claimed with the key "
                f"{shorten(verdicts['other-key'].key_id)}, and {ours}: weights are read; "
                "`packager claims import` takes over the team's key"
            )

    def keep_claims(self, image: SealedImage, claims: Sequence[Claim]) -> None:
        """Attach what the layers hold to the image, with proof, for builds elsewhere."""
        key = self._keys.need() if self._keys and claims else None
        if key is None:
            return
        document = write_claims(key, self._reference.name, claims)
        try:
            attach_claims(
                self._client,
                self._reference.repository,
                image.manifest_descriptor,
                document,
                key.id,
                self._count,
            )
        except PackagerError as error:
            self._warn(
                f"the image is in {self._reference.name!r}, the claims about its layers are not: "
                f"{error.message}; other machines will read the weights"
                + (f" ({error.hint})" if error.hint else "")
            )

    def attach(
        self,
        image: SealedImage,  # noqa: ARG002
        artifacts: Sequence[Attached],
        *,
        required: bool = False,
    ) -> None:
        """Attach artifacts to the image; a failure is a warning, unless they are required."""
        try:
            put_attached(self._client, self._reference.repository, artifacts, on_sent=self._count)
        except PackagerError as error:
            self._warn(
                f"the image is in {self._reference.name!r}, what shall be attached to it is not: "
                f"{error.message}" + (f" ({error.hint})" if error.hint else "")
            )
            if required:
                raise

    def _other_tags(self) -> list[str]:
        """The last few tags; most registries list them by name, so versions come in order."""
        tags: list[str] = []
        with suppress(PackagerError):
            tags = self._client.list_tags(self._reference.repository, attempts=1)
        named = [tag for tag in tags if tag != self._tag and not _REFERRERS.match(tag)]
        return named[-_EARLIER_IMAGES:]

    def locate(self, digest: str) -> Blob | None:
        """Return our copy in the registry, once it is there."""
        with self._lock:
            size = self._sizes.get(digest)
        return None if size is None else registry_blob(self._reference.name, digest, size)

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:  # noqa: ARG002
        """Store configurations and manifests, look for everything, put the tag last."""
        repository, named, document = self._reference.repository, image.named, image.manifest
        if self._fixed is not None and self._fixed.digest != named.digest:
            raise self._fixed.error
        for form in image.forms:
            put_blob(self._client, repository, form.config, on_sent=self._count)
            self._check_presence((form.config_descriptor, *form.layers))
            self._put_form(form.manifest_descriptor, form.manifest, image)
        if image.index is not None:
            document = image.index.document
            self._put_form(named, document, image)
        # Registries with immutable tags refuse even the same manifest again.
        current = self._client.head_manifest(repository, self._tag)
        if current is None or current.digest != named.digest:
            self._client.put_manifest(repository, self._tag, document, named.media_type)
        self._remember()
        return ImageRef(
            target=self.target, name=f"{self._reference.name}:{self._tag}", digest=image.digest
        )

    def _put_form(self, descriptor: Descriptor, document: bytes, image: SealedImage) -> None:
        """Store one of the documents; of one that only the second form needs, say so."""
        try:
            self._put_manifest(descriptor, document)
        except (UnexpectedAnswer, NotInRegistry) as error:
            if descriptor == image.named and self._by_tag_alone(document, descriptor):
                return
            if descriptor == image.manifest_descriptor or not has_file_systems(image):
                raise
            raise file_systems_refused(self._reference.host, error) from error

    def _by_tag_alone(self, document: bytes, named: Descriptor) -> bool:
        """Store a manifest under the tag, at registries that take none by its digest."""
        repository = self._reference.repository
        try:
            self._client.put_manifest(repository, self._tag, document, named.media_type)
            self._client.get_manifest(repository, named.digest)
        except (UnexpectedAnswer, NotInRegistry):
            return False
        return True

    def _put_manifest(self, descriptor: Descriptor, document: bytes) -> None:
        """Store a manifest by its digest, and compare what the registry has then."""
        repository, digest = self._reference.repository, descriptor.digest
        self._client.put_manifest(repository, digest, document, descriptor.media_type)
        try:
            self._client.get_manifest(repository, digest)  # raises where it is another
        except (AccessDenied, ServiceLimited) as error:  # who may push need not be let read
            self._warn(f"manifest {digest} was stored and cannot be read back: {error.message}")

    def abandon(self) -> None:
        """Undo nothing: uploads are cancelled, and a rerun finds finished layers."""
        self._remember()

    def _offer(self, digest: str, size: int, mount_from: str = "") -> BlobUpload | None:
        """Find the blob or mount it; where neither works, open an upload."""
        with self._lock:
            if self._sizes.get(digest) == size:
                return None
        repository = self._reference.repository
        if self._client.has_blob(repository, digest, size):
            self._know(digest, size)
            return None
        address = self._mount(digest, mount_from)
        if address is None:
            self._know(digest, size)
            return None
        return self._upload(size, address, digest=digest)

    def _mount(self, digest: str, mount_from: str) -> str | None:
        """Mount the blob from a repository of this registry.

        None when it is there now; else the address of the upload that the registry
        has opened instead, "" when none was tried.
        """
        address = ""
        for source in self._sources(digest, mount_from):
            opened = self._client.mount_blob(self._reference.repository, digest, source)
            if address:
                self._client.cancel_upload(self._reference.repository, address)
            if opened is None:
                self._mounted.add(digest)
                return None
            address = opened
            if self._seen:
                self._seen.forget(self._reference.host, source, digest)
        return address

    def _sources(self, digest: str, mount_from: str) -> list[str]:
        """Repositories of this registry that may hold the blob, the likeliest first."""
        host, _, named = mount_from.partition("/")
        found = [named] if host == self._reference.host else []
        if self._seen:
            found += self._seen.repositories(self._reference.host, digest)
        others = dict.fromkeys(found)
        others.pop(self._reference.repository, None)
        return list(others)[:_MOUNTS_TRIED]

    def _upload(
        self, size: int | None, address: str = "", *, digest: str = "", digest_first: bool = False
    ) -> BlobUpload:
        repository = self._reference.repository
        upload = BlobUpload(
            self._client,
            repository,
            self._client.moved.take(repository, digest)
            or address
            or self._client.start_upload(repository),
            size,
            digest=digest,
            digest_first=digest_first,
            on_sent=self._count,
            on_commit=lambda digest: self._know(digest, upload.sent),
        )
        return upload

    def _check_presence(self, wanted: Iterable[Descriptor]) -> None:
        repository = self._reference.repository

        def check(descriptor: Descriptor) -> None:
            if not self._client.await_blob(repository, descriptor.digest, descriptor.size):
                raise ProtocolFailed(
                    f"{self._reference.host!r} has lost blob {descriptor.digest}",
                    hint="build again: layers that are there are not sent again",
                )

        with ThreadPoolExecutor(_CHECKS_AT_ONCE, thread_name_prefix="check") as pool:
            for _ in pool.map(check, {entry.digest: entry for entry in wanted}.values()):
                pass

    def _remember(self) -> None:
        """Store which blobs this repository has, for builds into other repositories."""
        if self._seen:
            with self._lock:
                digests = tuple(self._sizes)
            self._seen.add(self._reference.host, self._reference.repository, digests)

    def _know(self, digest: str, size: int) -> None:
        with self._lock:
            self._sizes[digest] = size

    def _count(self, sent: int) -> None:
        with self._lock:
            self.bytes_sent += sent
