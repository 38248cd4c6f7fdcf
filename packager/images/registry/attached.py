"""Artifacts attached to an image of a registry, at registries with a list of referrers or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from packager.core.documents import shorten
from packager.core.errors import PackagerError, ProtocolFailed
from packager.core.events import ignore
from packager.core.image import MEDIA_MANIFEST, Attached, Descriptor
from packager.images.attached import (
    DEEPEST,
    MAX_ATTACHED,
    MAX_COPIED,
    collect,
    longest_of,
    parse_artifact,
)
from packager.images.claims import MEDIA_CLAIMS
from packager.images.oci import parse_manifest, sha256
from packager.images.registry.client import RegistryClient
from packager.images.registry.failures import NotInRegistry
from packager.images.registry.referrers import Referrer, attach, referrers
from packager.images.registry.transport import ATTEMPTS
from packager.images.registry.upload import put_blob
from packager.images.signature_tags import SUFFIXES, merge_tagged, signature_tag

Warn = Callable[[str], None]
_SHARED = 64  # bytes of a blob that several artifacts have: an empty configuration


def too_many_attached(count: int) -> PackagerError:
    """Return an error: an image has so many artifacts of a type that ours is not added."""
    return PackagerError(
        f"{count} artifacts of its type are attached to the image already",
        hint="remove old ones with the registry's own tools",
        code="TooManyAttached",
    )


def put_attached(
    client: RegistryClient,
    repository: str,
    artifacts: Sequence[Attached],
    *,
    on_sent: Callable[[int], None] = ignore,
) -> None:
    """Attach artifacts to the image that they name, unless they are attached already.

    Lists are asked for, and written, once for all of them.
    """
    asked: dict[str, list[Referrer]] = {}
    new, stored = [], set()
    for artifact in artifacts:
        if artifact.tag:
            _put_tagged(client, repository, artifact, on_sent)
            continue
        parsed, digest = parse_artifact(artifact.manifest), sha256(artifact.manifest)
        if parsed.subject not in asked:
            asked[parsed.subject] = list(referrers(client, repository, parsed.subject))
        listed = asked[parsed.subject]
        if any(one.digest == digest for one in listed):
            continue
        alike = [one for one in listed if one.artifact_type == parsed.artifact_type]
        if len(alike) >= MAX_ATTACHED:
            raise too_many_attached(len(alike))
        kind = parsed.artifact_type
        listed.append(Referrer(media_type="", digest=digest, size=0, artifact_type=kind))
        for blob in artifact.blobs:
            if blob not in stored:
                put_blob(client, repository, blob, is_new=True, on_sent=on_sent)
        stored |= {blob for blob in artifact.blobs if len(blob) <= _SHARED}
        new.append(artifact.manifest)
    attach(client, repository, *new)


def _put_tagged(
    client: RegistryClient, repository: str, added: Attached, on_sent: Callable[[int], None]
) -> None:
    """Store an artifact under its tag, beside other signers' layers that are there.

    The tag has no lock, so after writing it we look whether our layers are still there.
    """
    for attempt in range(1, ATTEMPTS + 1):
        merged = _merged(client, repository, added)
        if merged is None:
            return
        for blob in merged.blobs:
            put_blob(client, repository, blob, is_new=True, on_sent=on_sent)
        client.put_manifest(repository, added.tag, merged.manifest, MEDIA_MANIFEST)
        if _merged(client, repository, added) is None:
            return
        client.transport.pause(attempt)
    raise ProtocolFailed(
        f"{client.host!r} does not keep what is stored under {added.tag!r}",
        hint="others sign the same image all the time; try again later",
    )


def _merged(client: RegistryClient, repository: str, added: Attached) -> Attached | None:
    """Return what to store under the tag; None where all of it is there."""
    try:
        there = client.get_manifest(repository, added.tag).data
    except NotInRegistry:
        return added
    if there == added.manifest:
        return None
    config = parse_manifest(added.tag, there).config
    return merge_tagged(there, client.get_blob(repository, config.digest, config.size), added)


def fetch_attached(
    client: RegistryClient,
    repository: str,
    subject: str,
    artifact_type: str = "",
    on_warning: Warn = ignore,
) -> Iterator[Attached]:
    """Yield what is attached to a digest; warn of what cannot be read.

    Without a type all of it: also what is attached to these artifacts, and what tags tie to
    the digest.  Claims about layers are left out: they hold for one repository, and a sink makes
    its own.
    """

    def fetch(blob: Descriptor) -> bytes:
        return client.get_blob(repository, blob.digest, blob.size)

    most = longest_of(artifact_type)
    listed = _each_listed(client, repository, subject, artifact_type, on_warning)
    for count, (digest, of, tag) in enumerate(listed):
        if count >= MAX_COPIED:
            on_warning(f"{count} artifacts attached to {subject} are read, others are left out")
            return
        try:
            manifest = client.get_manifest(repository, tag or digest).data
            yield collect(manifest, of, fetch, tag=tag, most=most)
        except PackagerError as error:
            on_warning(f"attached artifact {shorten(digest, 80)} is left out: {error.message}")


def _each_listed(
    client: RegistryClient, repository: str, subject: str, artifact_type: str, on_warning: Warn
) -> Iterator[tuple[str, str, str]]:
    """Yield digests of artifacts with the digest that they are attached to, and their tags."""
    level, seen = [subject], {subject}
    for _ in range(1 if artifact_type else DEEPEST):
        following = []
        for of in level:
            try:
                listed = referrers(client, repository, of, artifact_type)
            except PackagerError as error:
                on_warning(f"what is attached to {of} cannot be listed: {error.message}")
                continue
            for one in listed:
                if one.digest not in seen and one.artifact_type != MEDIA_CLAIMS:
                    seen.add(one.digest)
                    following.append(one.digest)
                    yield one.digest, of, ""
        level = following
    for suffix in () if artifact_type else SUFFIXES:
        tag = signature_tag(subject, suffix)
        with suppress(PackagerError):
            found = client.head_manifest(repository, tag)
            if found is not None:
                yield found.digest, subject, tag
