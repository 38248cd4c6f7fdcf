"""Artifacts attached to an image of a registry, at registries with a list of referrers or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from packager.core.documents import shorten
from packager.core.errors import PackagerError
from packager.core.events import ignore
from packager.core.image import Attached, Descriptor
from packager.images.attached import MAX_ATTACHED, collect, parse_artifact
from packager.images.claims import MEDIA_CLAIMS
from packager.images.oci import sha256
from packager.images.registry.client import RegistryClient
from packager.images.registry.referrers import attach, referrers
from packager.images.registry.upload import put_blob

MAX_COPIED = 64  # artifacts of one image, whatever their types
MAX_TOGETHER = 64 * 1024 * 1024  # bytes of them: they are held in memory


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
    """Attach artifacts to the image that they name, unless they are attached already."""
    for artifact in artifacts:
        parsed = parse_artifact(artifact.manifest)
        listed = referrers(client, repository, parsed.subject, parsed.artifact_type)
        if any(one.digest == sha256(artifact.manifest) for one in listed):
            continue
        if len(listed) >= MAX_ATTACHED:
            raise too_many_attached(len(listed))
        for blob in artifact.blobs:
            put_blob(client, repository, blob, on_sent=on_sent)
        attach(client, repository, artifact.manifest)


def fetch_attached(
    client: RegistryClient,
    repository: str,
    subject: str,
    artifact_type: str = "",
    on_warning: Callable[[str], None] = ignore,
) -> tuple[Attached, ...]:
    """Read what is attached to a digest; warn of what cannot be read.

    Claims about layers are left out: they hold for one repository, and a sink makes its own.
    """
    try:
        listed = referrers(client, repository, subject, artifact_type)
    except PackagerError as error:
        on_warning(f"what is attached to {subject} cannot be listed: {error.message}")
        return ()
    wanted = [one.digest for one in listed if one.artifact_type != MEDIA_CLAIMS]
    if len(wanted) > MAX_COPIED:
        on_warning(f"{len(wanted)} artifacts are attached to {subject}; {MAX_COPIED} are read")
    return tuple(_read_each(client, repository, subject, wanted[:MAX_COPIED], on_warning))


def _read_each(
    client: RegistryClient,
    repository: str,
    subject: str,
    digests: Sequence[str],
    on_warning: Callable[[str], None],
) -> Iterator[Attached]:
    def fetch(blob: Descriptor) -> bytes:
        return client.get_blob(repository, blob.digest, blob.size)

    read = 0
    for digest in digests:
        if read > MAX_TOGETHER:
            on_warning(f"what is attached to {subject} is too large to be read whole")
            return
        try:
            found = collect(client.get_manifest(repository, digest).data, subject, fetch)
        except PackagerError as error:
            on_warning(f"attached artifact {shorten(digest, 80)} is left out: {error.message}")
            continue
        read += len(found.manifest) + sum(map(len, found.blobs))
        yield found
