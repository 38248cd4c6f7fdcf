"""What a key has proven of an image: in both forms, for its exact type, and nothing beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import ModelRefused, UsageError
from packager.core.image import Attached, Descriptor
from packager.images.oci import canonical_json, sha256
from packager.images.signatures.forms import sign_image
from packager.images.signatures.keys import (
    FileSigner,
    make_image_key,
    parse_private_key,
    public_pem,
)
from packager.images.signatures.statements import CYCLONEDX, SIGNED, statement
from packager.images.signatures.verifying import PublicKey, check_proven, find_proofs
from tests.support.refusals import raises_code

IMAGE, OTHER = (
    Descriptor(media_type="application/vnd.oci.image.manifest.v1+json", digest=digest, size=7)
    for digest in (f"sha256:{'c' * 64}", f"sha256:{'d' * 64}")
)
SBOM = statement(CYCLONEDX, {"bomFormat": "CycloneDX"}, [("tiny", IMAGE.digest)])


def signer_in(place: Path) -> tuple[FileSigner, PublicKey]:
    make_image_key(place)
    signer = FileSigner(str(place), parse_private_key("key", place.read_bytes(), None))
    public = place.with_suffix(".pub")
    public.write_text(public_pem(signer.public_der))
    return signer, PublicKey(str(public))


@pytest.fixture
def ours(tmp_path: Path) -> tuple[FileSigner, PublicKey]:
    return signer_in(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> tuple[FileSigner, PublicKey]:
    return signer_in(tmp_path / "theirs")


def types(artifacts: tuple[Attached, ...], *keys: PublicKey) -> set[str]:
    return {one.predicate_type for one in find_proofs(IMAGE.digest, artifacts, keys)}


def test_each_form_alone_proves_signature_and_sbom(ours: tuple[FileSigner, PublicKey]) -> None:
    signer, key = ours
    found = sign_image(signer, IMAGE, "host/repo", [SBOM])

    assert types(tuple(one for one in found if not one.tag), key) == {SIGNED, CYCLONEDX}
    assert types(tuple(one for one in found if one.tag), key) == {SIGNED, CYCLONEDX}
    [proof, *_] = check_proven("image", IMAGE.digest, {IMAGE.digest: found}, [key], [CYCLONEDX])
    assert proof.key == key.place


def test_an_sbom_that_is_signed_is_no_signature(ours: tuple[FileSigner, PublicKey]) -> None:
    """Cosign takes any statement by the key for one."""
    signer, key = ours
    bundle = sign_image(signer, IMAGE, "host/repo", [SBOM])[1]

    with raises_code(ModelRefused, "NotProven", match="has no https://sigstore.dev/cosign/sign/v1"):
        check_proven("image", IMAGE.digest, {IMAGE.digest: [bundle]}, [key])


def test_any_of_several_keys_is_enough_and_another_is_not(
    ours: tuple[FileSigner, PublicKey], theirs: tuple[FileSigner, PublicKey]
) -> None:
    found = sign_image(ours[0], IMAGE, "host/repo")

    assert types(found, theirs[1]) == set()
    assert types(found, theirs[1], ours[1]) == {SIGNED}


def changed_bundle(artifact: Attached, change: Callable[[dict[str, Any]], object]) -> Attached:
    """Return the artifact with another bundle in it; its manifest names the new bytes."""
    document = json.loads(artifact.blobs[1])
    change(document)
    return with_blob(artifact, canonical_json(document))


def with_blob(artifact: Attached, data: bytes) -> Attached:
    manifest = json.loads(artifact.manifest)
    manifest["layers"][0] |= {"digest": sha256(data), "size": len(data)}
    return replace(artifact, manifest=canonical_json(manifest), blobs=(artifact.blobs[0], data))


def envelope(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["dsseEnvelope"]
    return found


def payload_of(other: bytes) -> Callable[[dict[str, Any]], object]:
    return lambda one: envelope(one).update(payload=base64.b64encode(other).decode())


def twice(document: dict[str, Any]) -> None:
    envelope(document)["signatures"] *= 2


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another statement": payload_of(statement(SIGNED, {"by": "others"}, [("", IMAGE.digest)])),
    "another payload type": lambda one: envelope(one).update(payloadType="text/plain"),
    "no signature": lambda one: envelope(one).update(signatures=[]),
    "two signatures": twice,
    "signature is text": lambda one: envelope(one).update(signatures=["x"]),
    "no base64": lambda one: envelope(one).update(payload="ü"),
    "no envelope": lambda one: one.pop("dsseEnvelope"),
    "another form": lambda one: one.update(mediaType="application/json"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_bundle_that_was_changed_proves_nothing(
    ours: tuple[FileSigner, PublicKey], change: Callable[[dict[str, Any]], object]
) -> None:
    bundle = sign_image(ours[0], IMAGE, "host/repo")[0]

    assert types((bundle,), ours[1]) == {SIGNED}
    assert types((changed_bundle(bundle, change),), ours[1]) == set()


def test_signatures_of_another_image_prove_nothing_under_our_tag(
    ours: tuple[FileSigner, PublicKey],
) -> None:
    found = sign_image(ours[0], OTHER, "host/repo", [SBOM.replace(b"c" * 64, b"d" * 64)])
    moved = tuple(
        replace(one, tag=one.tag.replace("d" * 64, "c" * 64)) if one.tag else one for one in found
    )

    assert types(moved, ours[1]) == set()


@pytest.mark.parametrize("data", [b"{", b"[]", b"", b"x" * 70_000], ids=len)
def test_a_payload_that_is_no_document_proves_nothing(
    ours: tuple[FileSigner, PublicKey], data: bytes
) -> None:
    signer, key = ours
    tag = next(one for one in sign_image(signer, IMAGE, "host/repo") if one.tag.endswith(".sig"))
    changed = with_blob(tag, data)
    manifest = json.loads(changed.manifest)
    signature = base64.b64encode(signer.sign(data)).decode()
    manifest["layers"][0]["annotations"] = {"dev.cosignproject.cosign/signature": signature}

    assert types((replace(changed, manifest=canonical_json(manifest)),), key) == set()


def test_a_public_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    for number, private in enumerate(
        (ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate())
    ):
        place = tmp_path / f"{number}.pub"
        place.write_bytes(
            private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        with raises_code(UsageError, "UnusablePublicKey", match="no public key on P-256"):
            PublicKey(str(place))
