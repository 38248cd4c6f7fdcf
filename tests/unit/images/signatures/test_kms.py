"""Keys in AWS KMS: the digest goes there, and what comes back is verified."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from packager.images.signatures import kms
from packager.images.signatures.keys import load_image_signer
from tests.support.refusals import raises_code

PLACE = "awskms:///alias/images"


class Kms:
    """KMS' two operations; `again` hashes a digest once more, as moto does."""

    def __init__(self, *, again: bool = False, algorithms: tuple[str, ...] = ("ECDSA_SHA_256",)):
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.again, self.algorithms = again, algorithms
        self.asked: list[dict[str, Any]] = []

    def get_public_key(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        der = self.private.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
        return {"PublicKey": der, "SigningAlgorithms": list(self.algorithms)}

    def sign(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        data = hashlib.sha256(asked["Message"]).digest() if self.again else asked["Message"]
        return {"Signature": self.private.sign(data, ec.ECDSA(utils.Prehashed(SHA256())))}


def signing(monkeypatch: pytest.MonkeyPatch, service: Kms) -> None:
    monkeypatch.setattr(kms, "_client", lambda _endpoint, _key: service)


def test_kms_is_sent_a_digest_and_its_signature_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Kms()
    signing(monkeypatch, service)

    signature = load_image_signer(PLACE, {}).sign(b"payload")

    service.private.public_key().verify(signature, b"payload", ec.ECDSA(SHA256()))
    told = service.asked[-1]
    assert (told["KeyId"], told["MessageType"]) == ("alias/images", "DIGEST")
    assert told["Message"] == hashlib.sha256(b"payload").digest()


def test_a_signature_of_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    signing(monkeypatch, Kms(again=True))

    with raises_code("UnusableImageKey", match="does not verify"):
        load_image_signer(PLACE, {}).sign(b"payload")


def test_a_key_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    signing(monkeypatch, Kms(algorithms=("RSASSA_PSS_SHA_256",)))

    with raises_code("UnusableImageKey", match="ECC_NIST_P256"):
        load_image_signer(PLACE, {})


@pytest.mark.parametrize("place", ["awskms://", "awskms:///", "awskms://host", "awskms:///a b"])
def test_a_place_that_names_no_key_is_refused(place: str) -> None:
    with raises_code("UnusableImageKey", match="names no key"):
        load_image_signer(place, {})
