"""Cosign's encrypted key files: a PEM block around JSON, scrypt and NaCl's secretbox.

Source: secure-systems-lab/go-securesystemslib encrypted/encrypted.go (2026-11).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Any

from artifact_cache.distribution import install_command
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import UsageError
from packager.images.signatures.key_faults import unusable_image_key

_PEM = re.compile(
    rb"-----BEGIN ENCRYPTED (?:SIGSTORE|COSIGN) PRIVATE KEY-----(.+?)"
    rb"-----END ENCRYPTED (?:SIGSTORE|COSIGN) PRIVATE KEY-----",
    re.DOTALL,
)
_COSTS = (32768, 65536, 131072)  # of scrypt, that cosign accepts
_MEMORY = 256 * 1024 * 1024
_R, _P = 8, 1


def open_cosign_key(place: str, data: bytes, password: str) -> bytes:
    """Return the private key, PKCS #8 in DER; raise `UsageError` without repeating it."""
    try:
        from nacl.exceptions import CryptoError
        from nacl.secret import SecretBox
    except ImportError as error:
        raise UsageError(
            "key files of cosign need the package PyNaCl, which is not installed",
            hint=f"install it with `{install_command('pynacl', 'signing')}`",
        ) from error
    try:
        document = _document(data)
        salt, nonce = _bytes(document["kdf"]["params_salt"]), _bytes(document["nonce"])
        key = hashlib.scrypt(
            password.encode(),
            salt=salt,
            n=document["cost"],
            r=_R,
            p=_P,
            maxmem=_MEMORY,
            dklen=32,
        )
        return bytes(SecretBox(key).decrypt(_bytes(document["ciphertext"]), nonce))
    except CryptoError as error:
        raise unusable_image_key(place, "the password is wrong", "set COSIGN_PASSWORD") from error
    except (NotStrict, LookupError, TypeError, ValueError) as error:
        raise unusable_image_key(place, "it is no key file of cosign") from error


def _document(data: bytes) -> dict[str, Any]:
    """Return the fields of a key file that count; raise for other algorithms and costs."""
    found = _PEM.search(data)
    if found is None:
        raise NotStrict("it has no key")
    document = parse_object(base64.b64decode(b"".join(found[1].split())), max_bytes=65536)
    kdf, cipher = document["kdf"], document["cipher"]
    params = kdf["params"]
    if (kdf["name"], cipher["name"]) != ("scrypt", "nacl/secretbox"):
        raise NotStrict("it is encrypted in another way")
    if params["N"] not in _COSTS or (params["r"], params["p"]) != (_R, _P):
        raise NotStrict("its password is stretched in another way")
    return {
        "kdf": {"params_salt": kdf["salt"]},
        "cost": params["N"],
        "nonce": cipher["nonce"],
        "ciphertext": document["ciphertext"],
    }


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise NotStrict("a field of it is no text")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise NotStrict("a field of it is no base64") from error
