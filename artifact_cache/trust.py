"""Signatures over entries, verified before any of their bytes is used.

The keys are offline and named in a file; nothing is trusted on first use, and no service is
asked.  A signature covers the canonical entry, so every file's digest and path with it, in the
way of DSSE: the type is signed along.

`cryptography` is loaded only where something is signed or verified.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from artifact_cache.distribution import install_command
from artifact_cache.entry import PAYLOAD_TYPE, Entry, Signature, payload_bytes
from artifact_cache.errors import Untrusted, UnusableKeys
from artifact_cache.files import bounded_bytes
from artifact_cache.strict_json import NotStrict, parse_object

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey
    PublicKey = Ed25519PublicKey | EllipticCurvePublicKey

Algorithm = Literal["ed25519", "ecdsa-p256"]
MAX_KEYS_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Trust:
    """Decides which entries may be used.

    With `require_signed` an entry needs a good signature by one of `keys`.
    Without it unsigned entries pass; one that claims a known key must still
    prove it, since whoever forged it did not do so by accident.
    """

    keys: Mapping[str, PublicKey]
    require_signed: bool = False

    def check(self, entry: Entry) -> None:
        """Raise `Untrusted` unless the entry may be used."""
        known = [one for one in entry.signatures if one.keyid in self.keys]
        if known:
            message = pae(PAYLOAD_TYPE, payload_bytes(entry))
            if not any(_verified(self.keys[one.keyid], one.sig, message) for one in known):
                raise Untrusted(entry.key, "its signature does not belong to it")
        elif self.require_signed and entry.signatures:
            keyids = ", ".join(sorted(one.keyid[:12] for one in entry.signatures))
            raise Untrusted(entry.key, f"it is signed by unknown keys ({keyids})")
        elif self.require_signed:
            raise Untrusted(entry.key, "it is not signed")


class Signer:
    """Signs entries with a key of this machine's own."""

    def __init__(self, private: PrivateKey) -> None:
        self._private = private
        self.keyid = keyid_of(private.public_key())

    def sign(self, entry: Entry) -> Entry:
        """Return the entry with our signature beside those it has."""
        message = pae(PAYLOAD_TYPE, payload_bytes(entry))
        signature = Signature(
            keyid=self.keyid, sig=base64.b64encode(_signed(self._private, message)).decode()
        )
        others = tuple(one for one in entry.signatures if one.keyid != self.keyid)
        return entry.model_copy(update={"signatures": (*others, signature)})


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that DSSE signs: type and payload, each behind its length."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def keyid_of(public: PublicKey) -> str:
    """Return a key's name: a digest of the key itself, so that nobody can claim another's."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


class _TrustedKey(BaseModel):
    model_config = ConfigDict(defer_build=True, strict=True, frozen=True, extra="forbid")

    public_key: Annotated[str, StringConstraints(max_length=4096)]
    comment: str = ""


class _TrustedKeys(BaseModel):
    model_config = ConfigDict(defer_build=True, strict=True, frozen=True, extra="forbid")

    schema_version: Literal[1] = Field(alias="schema")
    keys: dict[str, _TrustedKey]


def load_trusted_keys(path: Path) -> dict[str, PublicKey]:
    """Read `{"schema":1,"keys":{"<key id>":{"public_key":"<PEM>","comment":""}}}`.

    Raises `UnusableKeys`, also for one bad key among good ones: a list that is
    shorter than its owner believes is a surprise for later.
    """
    _need_cryptography(path)
    try:
        data = _bytes_of(path)
        parse_object(data, max_bytes=MAX_KEYS_BYTES)
        listed = _TrustedKeys.model_validate_json(data)
    except NotStrict as error:
        raise UnusableKeys(path, str(error)) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise UnusableKeys(path, f"{where}: {first['msg']}".removeprefix(": ")) from None
    keys = {}
    for keyid, key in listed.keys.items():
        public = _parse_public(path, key.public_key.encode())
        if keyid_of(public) != keyid:
            raise UnusableKeys(path, f"key {keyid[:12]} is not the digest of its public key")
        keys[keyid] = public
    return keys


def trust_key(path: Path, public_pem: bytes, comment: str = "") -> str:
    """Add a public key to a file of trusted keys, which may not exist yet; give its id."""
    _need_cryptography(path)
    if not public_pem.isascii():
        raise UnusableKeys(path, "the public key holds more than PEM")
    public = _parse_public(path, public_pem)
    keyid = keyid_of(public)
    if path.exists():
        load_trusted_keys(path)
        listed = parse_object(_bytes_of(path), max_bytes=MAX_KEYS_BYTES)
    else:
        listed = {"schema": 1, "keys": {}}
    listed["keys"][keyid] = {"public_key": public_pem.decode("ascii"), "comment": comment}
    draft = path.with_name(f"{path.name}.new")
    try:
        draft.write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n", "utf-8")
        draft.replace(path)
    except OSError as error:
        raise UnusableKeys(path, (error.strerror or str(error)).lower()) from error
    return keyid


def load_signer(path: Path) -> Signer:
    """Read a private key in PEM. Refuses one that others can read."""
    _need_cryptography(path)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _bytes_of(path)
    if path.stat().st_mode & 0o077:
        raise UnusableKeys(path, f"others can read the private key; `chmod 600 {path}`")
    try:
        private = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnusableKeys(path, "it is not a private key in PEM without a password") from error
    if not _is_supported(private.public_key()):
        raise UnusableKeys(path, "it is neither Ed25519 nor ECDSA on P-256")
    return Signer(private)  # type: ignore[arg-type]


def generate_key(path: Path, algorithm: Algorithm = "ed25519") -> bytes:
    """Write a new private key to `path`, which must not exist; give the public key in PEM."""
    _need_cryptography(path)
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private: PrivateKey
    if algorithm == "ed25519":
        private = ed25519.Ed25519PrivateKey.generate()
    else:
        private = ec.generate_private_key(ec.SECP256R1())
    data = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        raise UnusableKeys(path, (error.strerror or str(error)).lower()) from error
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _need_cryptography(path: Path) -> None:
    try:
        import_module("cryptography")
    except ImportError:
        raise UnusableKeys(
            path,
            "the Python package 'cryptography' is not installed; "
            f"`{install_command('cryptography', 'signing')}` brings it",
        ) from None


def _bytes_of(path: Path) -> bytes:
    try:
        return bounded_bytes(path, MAX_KEYS_BYTES, follow_links=True)
    except OSError as error:
        raise UnusableKeys(path, (error.strerror or str(error)).lower()) from error


def _parse_public(path: Path, pem: bytes) -> PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        public = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnusableKeys(path, "one of them is not a public key in PEM") from error
    if not _is_supported(public):
        raise UnusableKeys(path, "one of them is neither Ed25519 nor ECDSA on P-256")
    return public  # type: ignore[return-value]


def _is_supported(public: object) -> bool:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    return isinstance(public, ed25519.Ed25519PublicKey) or (
        isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name == "secp256r1"
    )


def _signed(private: PrivateKey, message: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    if isinstance(private, ec.EllipticCurvePrivateKey):
        return private.sign(message, ec.ECDSA(SHA256()))
    return private.sign(message)


def _verified(public: PublicKey, signature: str, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        raw = base64.b64decode(signature, validate=True)
        if isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(raw, message, ec.ECDSA(SHA256()))
        else:
            public.verify(raw, message)
    except (InvalidSignature, ValueError):
        return False
    return True
