"""Referrers of an image: manifests whose `subject` it is.

Registries of version 1.1 of the distribution specification list them by
themselves, and say so when one is stored.  For the others we keep the index
that the specification describes, under the tag `sha256-<hex>` of the subject.
It has no lock, so after writing it we look whether our entry is still there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from packager.core.errors import ProtocolFailed
from packager.core.image import MEDIA_INDEX, Descriptor
from packager.images.oci import parse_descriptor, parse_object, sha256
from packager.images.registry.client import RegistryClient
from packager.images.registry.failures import NotInRegistry
from packager.images.registry.transport import ATTEMPTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Referrer:
    """Descriptor of one referrer."""

    media_type: str
    digest: str
    size: int
    artifact_type: str
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> dict[str, Any]:
        """The entry of an index."""
        described = Descriptor(
            media_type=self.media_type,
            digest=self.digest,
            size=self.size,
            annotations=self.annotations,
        ).to_json()
        return {**described, "artifactType": self.artifact_type}


def attach(client: RegistryClient, repository: str, *manifests: bytes) -> tuple[Referrer, ...]:
    """Store manifests with a `subject` and make them listed as referrers of that image.

    Their configurations and layers must exist.  Idempotent.
    """
    unlisted: dict[str, list[Referrer]] = {}
    found = tuple(map(_described, manifests))
    for manifest, (subject, ours) in zip(manifests, found, strict=True):
        listed = client.put_manifest(repository, ours.digest, manifest, ours.media_type)
        if listed != subject:
            unlisted.setdefault(subject, []).append(ours)
    for subject, several in unlisted.items():
        _add_to_tag(client, repository, subject, several)
    return tuple(ours for _, ours in found)


def _described(manifest: bytes) -> tuple[str, Referrer]:
    """Return the digest of the image that a manifest is attached to, and its entry."""
    document = parse_object(manifest, "manifest")
    subject = str(document["subject"]["digest"])
    ours = Referrer(
        media_type=str(document["mediaType"]),
        digest=sha256(manifest),
        size=len(manifest),
        artifact_type=str(
            document.get("artifactType") or (document.get("config") or {}).get("mediaType", "")
        ),
        annotations=document.get("annotations") or {},
    )
    return subject, ours


def referrers(
    client: RegistryClient, repository: str, subject: str, artifact_type: str = ""
) -> tuple[Referrer, ...]:
    """List what is attached to a digest, all of it or of one type."""
    entries = client.list_referrers(repository, subject, artifact_type)
    if entries is None:
        entries = _tagged(client, repository, subject)
    return tuple(
        found
        for found in map(_parse, entries)
        if found is not None and artifact_type in ("", found.artifact_type)
    )


def _add_to_tag(
    client: RegistryClient, repository: str, subject: str, ours: Sequence[Referrer]
) -> None:
    """Read, add, write, and read again: another client may have written at the same time."""
    entries = _tagged(client, repository, subject)
    for attempt in range(1, ATTEMPTS + 1):
        missing = _missing(ours, entries)
        if not missing:
            return
        index = {
            "schemaVersion": 2,
            "mediaType": MEDIA_INDEX,
            "manifests": [*entries, *(one.to_json() for one in missing)],
        }
        data = json.dumps(index, separators=(",", ":")).encode()
        client.put_manifest(repository, _tag(subject), data, MEDIA_INDEX)
        entries = _tagged(client, repository, subject)
        if not _missing(ours, entries):
            return
        client.transport.pause(attempt)
    raise ProtocolFailed(
        f"{client.host!r} does not keep what is attached to {subject}",
        hint="others attach to the same image all the time; try again later",
    )


def _missing(ours: Sequence[Referrer], entries: Sequence[Mapping[str, Any]]) -> list[Referrer]:
    there = {entry.get("digest") for entry in entries}
    return [one for one in ours if one.digest not in there]


def _tagged(client: RegistryClient, repository: str, subject: str) -> list[dict[str, Any]]:
    """Return the entries of the fallback referrers index; empty when the tag does not exist."""
    try:
        found = client.get_manifest(repository, _tag(subject))
    except NotInRegistry:
        return []
    document = parse_object(found.data, "index of referrers")
    if found.media_type != MEDIA_INDEX or not isinstance(document.get("manifests"), list):
        raise ProtocolFailed(
            f"{client.host!r} has something else under the tag {_tag(subject)!r}",
            hint="the tag is reserved for the list of referrers; rename it",
        )
    return [entry for entry in document["manifests"] if isinstance(entry, dict)]


def _parse(entry: Mapping[str, Any]) -> Referrer | None:
    try:
        described = parse_descriptor(entry)
    except ProtocolFailed:
        return None  # invalid entries must not hide valid ones
    kind = entry.get("artifactType")
    return Referrer(
        media_type=described.media_type,
        digest=described.digest,
        size=described.size,
        artifact_type=kind if isinstance(kind, str) else "",
        annotations=described.annotations,
    )


def _tag(digest: str) -> str:
    return digest.replace(":", "-", 1)
