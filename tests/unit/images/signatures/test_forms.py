"""What is signed, and the artifacts that carry it, byte for byte as cosign writes them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.trust import pae
from packager.core.image import Attached, Descriptor
from packager.images.oci import sha256
from packager.images.signature_tags import merge_tagged
from packager.images.signatures.forms import MEDIA_BUNDLE, MEDIA_DSSE, MEDIA_SIMPLE, sign_image
from packager.images.signatures.keys import FileSigner, make_image_key, parse_private_key
from packager.images.signatures.statements import CYCLONEDX, simple_payload, statement
from tests.support.cases import cases
from tests.support.known import known
from tests.support.refusals import raises_code

IMAGE = Descriptor(
    media_type="application/vnd.oci.image.manifest.v1+json", digest=f"sha256:{'c' * 64}", size=7
)
SBOM = statement(CYCLONEDX, {"bomFormat": "CycloneDX"}, [("tiny", IMAGE.digest)])


@pytest.fixture
def signer(tmp_path: Path) -> FileSigner:
    make_image_key(tmp_path / "key")
    return FileSigner("key", parse_private_key("key", (tmp_path / "key").read_bytes(), None))


@cases("payloads")
def test_a_payload_is_what_cosign_writes(reference: str, optional: str, payload: str) -> None:
    """The vectors of sigstore's own tests."""
    digest = f"sha256:{'d34db33f' * 8}"
    assert simple_payload(reference, digest, json.loads(optional)) == payload.encode()


def test_a_bundle_verifies_with_securesystemslib_and_is_a_statement(signer: FileSigner) -> None:
    envelopes = pytest.importorskip("securesystemslib.dsse")
    signers = pytest.importorskip("securesystemslib.signer")
    statements = pytest.importorskip("in_toto_attestation.v1.statement_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    key = signers.SSlibKey.from_crypto(load_der_public_key(signer.public_der))
    for artifact in sign_image(signer, IMAGE, "host/repo", [SBOM])[:2]:
        document = json.loads(artifact.blobs[1])
        envelope = document["dsseEnvelope"]
        envelope["signatures"][0]["keyid"] = key.keyid
        assert envelopes.Envelope.from_dict(envelope).verify([key], 1)
        payload = base64.b64decode(envelope["payload"])
        json_format.Parse(payload, statements.Statement())
        assert json.loads(payload)["subject"][0]["digest"] == {"sha256": "c" * 64}
        assert document["verificationMaterial"]["tlogEntries"] == []


def test_both_forms_of_everything_are_signed_by_one_key(signer: FileSigner) -> None:
    found = sign_image(signer, IMAGE, "host/repo", [SBOM])

    kinds = [manifest(one).get("artifactType", one.tag[-4:]) for one in found]
    assert kinds == [MEDIA_BUNDLE, MEDIA_BUNDLE, ".sig", ".att"]
    [simple], [attested] = manifest(found[2])["layers"], manifest(found[3])["layers"]
    assert (simple["mediaType"], attested["mediaType"]) == (MEDIA_SIMPLE, MEDIA_DSSE)
    assert attested["annotations"] == {
        "dev.cosignproject.cosign/signature": "",
        "predicateType": CYCLONEDX,
    }
    check(
        signer, simple["annotations"]["dev.cosignproject.cosign/signature"], blob(found[2], simple)
    )
    envelope = json.loads(blob(found[3], attested))
    payload = base64.b64decode(envelope["payload"])
    check(signer, envelope["signatures"][0]["sig"], pae(envelope["payloadType"], payload))
    config = json.loads(found[2].blobs[0])
    assert config["rootfs"]["diff_ids"] == [simple["digest"]]
    for one in found[:2]:
        notes = manifest(one)["annotations"]
        assert notes["dev.sigstore.bundle.content"] == "dsse-envelope"
        assert manifest(one)["subject"]["digest"] == IMAGE.digest


def test_equal_images_have_equal_signatures(signer: FileSigner) -> None:
    assert sign_image(signer, IMAGE, "h/r", [SBOM]) == sign_image(signer, IMAGE, "h/r", [SBOM])


def test_a_second_signer_is_another_layer(signer: FileSigner, tmp_path: Path) -> None:
    make_image_key(tmp_path / "second")
    second = FileSigner("", parse_private_key("", (tmp_path / "second").read_bytes(), None))
    [_, first, *_] = sign_image(signer, IMAGE, "h/r")
    [_, other, *_] = sign_image(second, IMAGE, "h/r")

    merged = known(merge_tagged(first.manifest, first.blobs[0], other))

    layers = manifest(merged)["layers"]
    assert layers == [*manifest(first)["layers"], *manifest(other)["layers"]]
    assert merge_tagged(merged.manifest, merged.blobs[0], first) is None


@cases("unusable_keys")
def test_what_is_no_key_for_images_is_refused(data: str, password: str | None, told: str) -> None:
    with raises_code("UnusableImageKey", match=told):
        parse_private_key("KEY", data.encode(), password)


@cases("cosign_keys")
def test_a_key_file_of_cosign_is_opened(data: str, password: str, public: str) -> None:
    pytest.importorskip("nacl")
    found = FileSigner("KEY", parse_private_key("KEY", data.encode(), password))

    assert base64.b64encode(found.public_der).decode() == public


def manifest(artifact: Attached) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(artifact.manifest)
    return found


def blob(artifact: Attached, layer: dict[str, Any]) -> bytes:
    return next(one for one in artifact.blobs if sha256(one) == layer["digest"])


def check(signer: FileSigner, signature: str, message: bytes) -> None:
    """Verify with OpenSSL, through `cryptography`; raises for a wrong signature."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    public = load_der_public_key(signer.public_der)
    assert isinstance(public, EllipticCurvePublicKey)
    public.verify(base64.b64decode(signature), message, ECDSA(SHA256()))
