"""Artifacts that a tag of cosign ties to an image: `sha256-HEX.sig`, `.att` and `.sbom`.

Such a manifest names no subject.  Several signers share one tag: each signature is a layer, so
that adding one means to read, add and write the manifest.
"""

from __future__ import annotations

import re
from typing import Any

from packager.core.image import MEDIA_CONFIG, MEDIA_MANIFEST, Attached, Descriptor
from packager.images.oci import canonical_json, is_digest, parse_manifest, parse_object, sha256

SUFFIXES = (".sig", ".att", ".sbom")
_TAG = re.compile(r"sha256-([0-9a-f]{64})(\.sig|\.att|\.sbom)")
_SHARED = (".sig", ".att")  # several signers' are layers under one tag
_UNDATED = "0001-01-01T00:00:00Z"  # as cosign writes a time that is not known


def signature_tag(digest: str, suffix: str) -> str:
    """Return the tag that ties an artifact to an image."""
    return digest.replace(":", "-", 1) + suffix


def tagged_subject(tag: object) -> str:
    """Return the digest of the image that a tag is about; "" for any other tag."""
    found = _TAG.fullmatch(tag) if isinstance(tag, str) else None
    digest = f"sha256:{found[1]}" if found else ""
    return digest if is_digest(digest) else ""


def merge_tagged(there: bytes, config: bytes, added: Attached) -> Attached | None:
    """Return the artifact with the layers that are there and those added; None if none is new.

    `there` and `config` are the manifest under the tag and its configuration. Of an SBOM, which
    is not signed, the one that is there stays.
    """
    ours = parse_object(added.manifest, f"manifest of {added.tag!r}")
    theirs = dict(parse_manifest(added.tag, there).document)
    new = [layer for layer in ours["layers"] if layer not in theirs["layers"]]
    if not new or not added.tag.endswith(_SHARED):
        return None
    layers = [*theirs["layers"], *new]
    image = parse_object(config, f"configuration of {added.tag!r}")
    image["rootfs"] = {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}
    image["history"] = [{"created": _UNDATED} for _ in layers]
    wanted = {layer["digest"] for layer in new}
    blobs = tuple(blob for blob in added.blobs if sha256(blob) in wanted)
    return _sealed(added.tag, theirs, image, layers, blobs)


def tagged_artifact(tag: str, layers: list[tuple[Descriptor, bytes]]) -> Attached:
    """Return the artifact under a tag whose layers are these documents."""
    entries = [descriptor.to_json() for descriptor, _ in layers]
    image = {
        "architecture": "",
        "created": _UNDATED,
        "history": [{"created": _UNDATED} for _ in layers],
        "os": "",
        "rootfs": {"type": "layers", "diff_ids": [entry["digest"] for entry in entries]},
        "config": {},
    }
    manifest = {"schemaVersion": 2, "mediaType": MEDIA_MANIFEST}
    return _sealed(tag, manifest, image, entries, tuple(data for _, data in layers))


def _sealed(
    tag: str,
    manifest: dict[str, Any],
    image: dict[str, Any],
    layers: list[dict[str, Any]],
    blobs: tuple[bytes, ...],
) -> Attached:
    config = canonical_json(image)
    described = Descriptor(media_type=MEDIA_CONFIG, digest=sha256(config), size=len(config))
    whole = {**manifest, "config": described.to_json(), "layers": layers}
    return Attached(manifest=canonical_json(whole), blobs=(config, *blobs), tag=tag)
