"""Artifacts attached to an image: manifests of OCI 1.1 whose `subject` is the image.

What is attached to such an artifact, its signature for instance, counts as attached to the image.
The build record travels so, with the image and apart from its bytes: attaching changes no digest.
Anyone with push access may attach documents.  They are read up to a limit, their digests are
compared, and their content stays an unproven claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packager.core.errors import ProtocolFailed
from packager.core.image import MEDIA_MANIFEST, Attached, Descriptor
from packager.images.oci import canonical_json, parse_manifest, sha256

MEDIA_RECORD = "application/vnd.packager.record.v1+json"
MAX_ATTACHED = 16  # artifacts of one type at one image
MAX_BYTES = 16 * 1024 * 1024  # of one artifact that is read, with its blobs
MAX_COPIED_BYTES = 128 * 1024 * 1024  # of one that is copied; cosign takes no larger ones
MAX_COPIED = 256  # artifacts of one image that are copied, whatever their types
DEEPEST = 3  # artifacts of artifacts of an image's artifacts
VERSION = "dev.packager.version"  # annotation of artifacts that packager made
_EMPTY, _EMPTY_TYPE = b"{}", "application/vnd.oci.empty.v1+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactManifest:
    """Manifest of an attached artifact, parsed."""

    artifact_type: str
    subject: str  # digest of the image
    blobs: tuple[Descriptor, ...]  # configuration first
    annotations: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Bytes of its blobs."""
        return sum(blob.size for blob in self.blobs)


def attach_document(
    subject: Descriptor,
    document: bytes,
    media_type: str,
    annotations: Mapping[str, str] | None = None,
) -> Attached:
    """Return the artifact that attaches a document to an image.  Equal inputs give equal bytes."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "artifactType": media_type,
        "config": _described(_EMPTY, _EMPTY_TYPE),
        "layers": [_described(document, media_type)],
        "subject": {**subject.to_json()},
        **({"annotations": dict(annotations)} if annotations else {}),
    }
    return Attached(manifest=canonical_json(manifest), blobs=(_EMPTY, document))


def parse_artifact(manifest: bytes) -> ArtifactManifest:
    """Parse the manifest of an attached artifact, which may be anyone's."""
    parsed = parse_manifest("an attached artifact", manifest)
    document = parsed.document
    subject = document.get("subject")
    digest = subject.get("digest") if isinstance(subject, dict) else None
    annotations = document.get("annotations")
    kind = document.get("artifactType") or parsed.config.media_type
    return ArtifactManifest(
        artifact_type=kind if isinstance(kind, str) else "",
        subject=digest if isinstance(digest, str) else "",
        blobs=(parsed.config, *parsed.layers),
        annotations=annotations if isinstance(annotations, dict) else {},
    )


def longest_of(artifact_type: str) -> int:
    """Return how many bytes an artifact may have: more where all are asked for, to be copied."""
    return MAX_BYTES if artifact_type else MAX_COPIED_BYTES


def collect(
    manifest: bytes,
    subject: str,
    fetch: Callable[[Descriptor], bytes],
    *,
    tag: str = "",
    most: int = MAX_BYTES,
) -> Attached:
    """Return an artifact with its blobs; raise `ProtocolFailed` for one of another image.

    One that is tied by a `tag` names no subject.
    """
    parsed = parse_artifact(manifest)
    if not tag and parsed.subject != subject:
        raise ProtocolFailed(
            f"an artifact that is listed as attached to {subject} names another image",
            hint="ask whoever pushes to that repository",
        )
    if len(manifest) + parsed.size > most:
        raise ProtocolFailed(
            f"an attached artifact has {parsed.size} bytes, more than {most}",
            hint="copy it with a tool for artifacts, such as oras",
        )
    wanted = {blob.digest: blob for blob in parsed.blobs}
    return Attached(manifest=manifest, blobs=tuple(map(fetch, wanted.values())), tag=tag)


def is_made_here(artifact: Attached) -> bool:
    """Return whether packager made the artifact, unsigned: its record, SBOM or provenance."""
    parsed = parse_artifact(artifact.manifest)
    own_type = parsed.artifact_type.startswith("application/vnd.packager.")
    return not artifact.tag and (own_type or VERSION in parsed.annotations)


def document_of(artifact: Attached, media_type: str) -> bytes | None:
    """Return the one document of an artifact of this type; None for another artifact."""
    parsed = parse_artifact(artifact.manifest)
    layers = parsed.blobs[1:]
    if parsed.artifact_type != media_type or len(layers) != 1 or layers[0].media_type != media_type:
        return None
    by_digest = {sha256(blob): blob for blob in artifact.blobs}
    return by_digest.get(layers[0].digest)


def _described(data: bytes, media_type: str) -> dict[str, object]:
    return Descriptor(media_type=media_type, digest=sha256(data), size=len(data)).to_json()
