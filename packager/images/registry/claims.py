"""Claims in a registry: documents attached to the image whose layers they are about.

Anyone with push access may attach, change and remove them.  Reading is bounded and never raises:
unusable claims count as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from packager.core.documents import NotStrict
from packager.core.errors import PackagerError
from packager.core.image import MEDIA_MANIFEST, Descriptor
from packager.images.claims import MAX_DOCUMENT, MEDIA_CLAIMS, ClaimDocument, read_claims
from packager.images.oci import canonical_json, parse_descriptor, parse_object, sha256
from packager.images.registry.client import RegistryClient
from packager.images.registry.referrers import Referrer, attach, referrers
from packager.images.registry.upload import put_blob

KEY_ID = "dev.packager.claim-key"  # annotation of the artifact, to choose what to read; a hint
MAX_READ = 8  # documents of one image
MAX_ATTACHED = 16  # documents of one image; builds that share no key would go on for ever
_EMPTY, _EMPTY_TYPE = b"{}", "application/vnd.oci.empty.v1+json"


def too_many_claims(count: int) -> PackagerError:
    """Return an error: an image has claims of so many keys that ours are not added."""
    return PackagerError(
        f"the image has claims of {count} keys already",
        hint="let the machines that build it share one key: `packager claims export`",
        code="TooManyClaims",
    )


def attach_claims(
    client: RegistryClient,
    repository: str,
    subject: Descriptor,
    document: bytes,
    key_id: str,
    on_sent: Callable[[int], None],
) -> None:
    """Attach a document to an image that is there, unless it is attached already."""
    manifest = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_MANIFEST,
            "artifactType": MEDIA_CLAIMS,
            "config": _described(_EMPTY, _EMPTY_TYPE),
            "layers": [_described(document, MEDIA_CLAIMS)],
            "subject": subject.to_json(),
            "annotations": {KEY_ID: key_id},
        }
    )
    listed = referrers(client, repository, subject.digest, MEDIA_CLAIMS)
    if any(one.digest == sha256(manifest) for one in listed):
        return
    if len(listed) >= MAX_ATTACHED:
        raise too_many_claims(len(listed))
    put_blob(client, repository, _EMPTY, on_sent=on_sent)
    put_blob(client, repository, document, on_sent=on_sent)
    attach(client, repository, manifest)


def fetch_claims(
    client: RegistryClient, repository: str, subject: str, key_id: str
) -> tuple[ClaimDocument, ...]:
    """Read the documents attached to a digest, those that name our key first; never raises."""
    try:
        listed = referrers(client, repository, subject, MEDIA_CLAIMS)
    except PackagerError:
        return ()
    chosen = sorted(listed, key=lambda one: _distance(one, key_id))[:MAX_READ]
    return tuple(_read_each(client, repository, chosen))


def _distance(one: Referrer, key_id: str) -> int:
    """Return how unlikely it is that the document is ours; not every registry lists annotations."""
    named = one.annotations.get(KEY_ID)
    return 0 if named == key_id else 1 if named is None else 2


def _read_each(
    client: RegistryClient, repository: str, listed: list[Referrer]
) -> Iterator[ClaimDocument]:
    for one in listed:
        with suppress(PackagerError, NotStrict):
            manifest = client.get_manifest(repository, one.digest)
            layers = parse_object(manifest.data, "manifest of claims").get("layers")
            if not isinstance(layers, list) or len(layers) != 1:
                continue
            found = parse_descriptor(layers[0])
            if found.media_type == MEDIA_CLAIMS and found.size <= MAX_DOCUMENT:
                yield read_claims(client.get_blob(repository, found.digest, found.size))


def _described(data: bytes, media_type: str) -> dict[str, object]:
    return Descriptor(media_type=media_type, digest=sha256(data), size=len(data)).to_json()
