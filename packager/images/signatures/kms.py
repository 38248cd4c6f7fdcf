"""Keys in AWS KMS: `awskms://[ENDPOINT]/KEY`, as cosign names them.

The key never leaves KMS: it is sent the digest of what is signed.  Needed permissions are
kms:GetPublicKey and kms:Sign.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from artifact_cache.distribution import install_command
from packager.core.errors import UsageError
from packager.images.signatures.key_faults import (
    KMS,
    hint_of,
    need_cryptography,
    unusable_image_key,
)

_PLACE = re.compile(
    r"awskms://(?P<endpoint>[A-Za-z0-9.-]+(?::\d{1,5})?)?/(?P<key>[A-Za-z0-9:/_-]{1,2048})"
)
_ALGORITHM = "ECDSA_SHA_256"


class KmsSigner:
    """Signs with a key that KMS keeps."""

    def __init__(self, place: str) -> None:
        found = _PLACE.fullmatch(place)
        if found is None:
            raise unusable_image_key(
                place, "it names no key", f"write it as {KMS}/KEY-ID or {KMS}/alias/NAME"
            )
        need_cryptography()
        self.place, self._key = place, found["key"]
        self._client = _client(found["endpoint"] or "", self._key)
        self.public_der = self._public_key()

    @property
    def hint(self) -> str:
        """Return the digest of the public key, as cosign writes it."""
        return hint_of(self.public_der)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, of which KMS is told the digest."""
        digest = hashlib.sha256(message).digest()
        answer = self._ask(
            "sign", Message=digest, MessageType="DIGEST", SigningAlgorithm=_ALGORITHM
        )
        signature = bytes(answer["Signature"])
        self._check(signature, message)
        return signature

    def _public_key(self) -> bytes:
        answer = self._ask("get_public_key")
        if _ALGORITHM not in answer.get("SigningAlgorithms", ()):
            raise unusable_image_key(
                self.place, "it is not of the kind ECC_NIST_P256 for signing", "choose another"
            )
        return bytes(answer["PublicKey"])

    def _check(self, signature: bytes, message: bytes) -> None:
        """Raise where KMS gave something else than the signature of the message."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        try:
            public = load_der_public_key(self.public_der)
            assert isinstance(public, EllipticCurvePublicKey)
            public.verify(signature, message, ECDSA(SHA256()))
        except (InvalidSignature, AssertionError, ValueError) as error:
            raise unusable_image_key(
                self.place, "its signature does not verify with its public key"
            ) from error

    def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = getattr(self._client, operation)(KeyId=self._key, **arguments)
            return found
        except Exception as error:
            code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
            reason = code or type(error).__name__
            raise unusable_image_key(
                self.place,
                f"KMS refused {operation}: {reason}",
                "check region, credentials and the permissions kms:GetPublicKey and kms:Sign",
            ) from error


def _client(endpoint: str, key: str) -> Any:
    from artifact_cache.aws import aws_client

    parts = key.split(":")
    region = parts[3] if key.startswith("arn:") and len(parts) > 3 else None
    try:
        return aws_client(
            "kms",
            **({"region_name": region} if region else {}),
            **({"endpoint_url": f"https://{endpoint}"} if endpoint else {}),
        )
    except ImportError as error:
        raise UsageError(
            "awskms:// needs boto3, which is not installed",
            hint=f"install it with `{install_command('boto3', 's3')}`",
        ) from error
