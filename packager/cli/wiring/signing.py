"""The key that signs images, and what is signed with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packager.core.files.atomic import user_dir
from packager.core.image import Attached, SealedImage
from packager.core.tree_manifest import MANIFEST
from packager.core.version import __version__
from packager.images.attached import VERSION, attach_document
from packager.images.oci import parse_object
from packager.images.opened import OpenImage
from packager.images.signatures.keys import ImageSigner, load_image_signer
from packager.images.signatures.statements import CYCLONEDX, MEDIA_IN_TOTO, statement

MEDIA_CYCLONEDX = "application/vnd.cyclonedx+json"


def image_key_place(environment: Mapping[str, str] | None = None) -> Path:
    """Return where `packager keys make image` puts a key."""
    given = os.environ if environment is None else environment
    return user_dir("config", given) / "packager" / "image-key.pem"


def signer_for(place: str, environment: Mapping[str, str]) -> ImageSigner:
    """Return what signs with a key; "" names the user's own."""
    return load_image_signer(place or str(image_key_place(environment)), environment)


def statements_of(documents: Mapping[str, bytes], image: SealedImage, name: str) -> list[bytes]:
    """Return documents about an image as statements: its SBOM as a predicate."""
    found = []
    for kind, data in documents.items():
        if kind == MEDIA_CYCLONEDX:
            subjects = [(name, digest) for digest in _digests(image)]
            found.append(statement(CYCLONEDX, parse_object(data, "SBOM"), subjects))
        elif kind == MEDIA_IN_TOTO:
            found.append(data)
    return found


def attached_documents(found: OpenImage) -> dict[str, bytes]:
    """Return the SBOM and the provenance at an image that say they are about it."""
    from packager.images.sbom.reading import attached_provenance, attached_sbom

    documents = {
        MEDIA_CYCLONEDX: attached_sbom(found),
        MEDIA_IN_TOTO: attached_provenance(found),
    }
    return {kind: data for kind, data in documents.items() if data is not None}


def signed(
    signer: ImageSigner, image: SealedImage, reference: str, statements: Sequence[bytes]
) -> tuple[Attached, ...]:
    """Return the signatures of each form of an image, and of statements about it.

    A tag names an index where there is one; nodes resolve it, or the manifest in it.
    """
    from packager.images.signatures.forms import sign_image

    found = list(sign_image(signer, image.manifest_descriptor, reference, statements))
    if image.index is not None:
        found += sign_image(signer, image.named, reference, statements)
    return tuple(found)


def signed_index(
    signer: ImageSigner, image: SealedImage, reference: str, statements: Sequence[bytes]
) -> tuple[Attached, ...]:
    """Return the signatures of an index, with statements about it, and of each image in it."""
    from packager.images.signatures.forms import sign_image

    found = list(sign_image(signer, image.named, reference, statements))
    for form in image.forms:
        found += sign_image(signer, form.manifest_descriptor, reference, ())
    return tuple(found)


def sign_tree(signer: ImageSigner, name: str, manifest: bytes) -> bytes:
    """Return the model signature of a tree of files, whose manifest is one of them."""
    from packager.images.signatures.model_signing import sign_model

    listed = parse_object(manifest, "manifest of the tree")["files"]
    files = {one["path"]: one["sha256"] for one in listed}
    files[MANIFEST] = hashlib.sha256(manifest).hexdigest()
    return sign_model(signer, name, files)


def signed_models(
    signer: ImageSigner, image: SealedImage, documents: Mapping[str, bytes], name: str
) -> tuple[Attached, ...]:
    """Return the model signature of an image's model directory, whose files its SBOM lists.

    None where the digest of one of them is not known.
    """
    from packager.images.signatures.model_signing import MEDIA_MODEL_SIGNATURE, sign_model

    listed = parse_object(documents.get(MEDIA_CYCLONEDX, b"{}"), "SBOM").get("components", ())
    model: Mapping[str, Any] = next((one for one in listed if one["bom-ref"] == "model"), {})
    parts = [one for one in model.get("components", ()) if one["type"] == "file"]
    if not parts or not all(one.get("hashes") for one in parts):
        return ()
    files = {one["name"]: one["hashes"][0]["content"] for one in parts}
    data = sign_model(signer, name, files)
    notes = {VERSION: __version__}
    return (attach_document(image.manifest_descriptor, data, MEDIA_MODEL_SIGNATURE, notes),)


def _digests(image: SealedImage) -> tuple[str, ...]:
    return tuple(dict.fromkeys((image.digest, image.manifest_descriptor.digest)))
