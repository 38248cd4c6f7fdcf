"""Private keys that sign images: a file in PEM, a key file of cosign, or a key in AWS KMS.

    FILE            PKCS #8 in PEM, or what `cosign generate-key-pair` writes
    env://NAME      the same text in a variable
    awskms://[ENDPOINT]/KEY    KEY is an id, an ARN or alias/NAME

Keys are ECDSA on P-256: what every verifier of cosign's signatures takes.  Signatures by files are
deterministic, so that equal images have equal signatures; those by KMS are not.  A file that others
can read is refused, and no message contains a key or its password.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from packager.core.errors import NotFound
from packager.images.signatures.key_faults import (
    KMS,
    hint_of,
    need_cryptography,
    unusable_image_key,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

VARIABLE = "env://"
PASSWORD = "COSIGN_PASSWORD"  # of a cosign key file, as cosign itself reads it
_LONGEST = 64 * 1024
_COSIGN = (b"ENCRYPTED SIGSTORE PRIVATE KEY", b"ENCRYPTED COSIGN PRIVATE KEY")


class ImageSigner(Protocol):
    """Signs bytes: ECDSA on P-256 with SHA-256, in DER."""

    @property
    def public_der(self) -> bytes:
        """Return the public key: SubjectPublicKeyInfo in DER."""
        ...

    @property
    def hint(self) -> str:
        """Return what bundles call the key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        ...


def load_image_signer(place: str, environment: Mapping[str, str]) -> ImageSigner:
    """Return what signs with a key; raise `UsageError` for one that cannot be used."""
    if place.startswith(KMS):
        from packager.images.signatures.kms import KmsSigner

        return KmsSigner(place)
    need_cryptography()
    if place.startswith(VARIABLE):
        text = environment.get(place.removeprefix(VARIABLE), "")
        if not text:
            raise unusable_image_key(place, "the variable is not set")
        data = text.encode("utf-8", "surrogateescape")
    else:
        data = _read(Path(place).expanduser())
    return FileSigner(place, parse_private_key(place, data, environment.get(PASSWORD)))


class FileSigner:
    """Signs with a key that is at hand."""

    def __init__(self, place: str, private: EllipticCurvePrivateKey) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self.place = place
        self._private = private
        self.public_der = private.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def hint(self) -> str:
        """Return the digest of the public key, as cosign writes it."""
        return hint_of(self.public_der)

    def sign(self, message: bytes) -> bytes:
        """Return the signature; of equal messages equal ones (RFC 6979)."""
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        return self._private.sign(message, ECDSA(SHA256(), deterministic_signing=True))


def public_pem(public_der: bytes) -> str:
    """Return a public key in PEM, as verifiers take it."""
    body = base64.encodebytes(public_der).decode().replace("\n", "")
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join(["-----BEGIN PUBLIC KEY-----", *lines, "-----END PUBLIC KEY-----", ""])


def parse_private_key(place: str, data: bytes, password: str | None) -> EllipticCurvePrivateKey:
    """Parse a private key in PEM or of cosign; raise `UsageError` without repeating it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import (
        load_der_private_key,
        load_pem_private_key,
    )

    try:
        if any(name in data for name in _COSIGN):
            from packager.images.signatures.cosign_key import open_cosign_key

            if password is None:
                raise unusable_image_key(place, "it has a password", f"set {PASSWORD}")
            private = load_der_private_key(open_cosign_key(place, data, password), password=None)
        else:
            private = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise unusable_image_key(
            place,
            "it is no private key in PEM without a password",
            "make one: packager keys make image",
        ) from error
    if not isinstance(private, EllipticCurvePrivateKey) or not isinstance(private.curve, SECP256R1):
        raise unusable_image_key(
            place,
            "it is not ECDSA on P-256, which every verifier takes",
            "make one: packager keys make image",
        )
    return private


def make_image_key(path: Path) -> bytes:
    """Write a new private key for its owner alone; return the public key in DER.

    Raises where the file exists.
    """
    need_cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    private = ec.generate_private_key(ec.SECP256R1())
    data = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise unusable_image_key(str(path), "it exists already", "name another file") from error
    except OSError as error:
        raise unusable_image_key(str(path), (error.strerror or str(error)).lower()) from error
    return FileSigner(str(path), private).public_der


def _read(path: Path) -> bytes:
    """Read a key file; the opened file is checked, so that it cannot change in between."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no key {str(path)!r}", hint="make one: packager keys make image"
        ) from error
    except OSError as error:
        raise unusable_image_key(str(path), (error.strerror or str(error)).lower()) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise unusable_image_key(str(path), "it is not a regular file")
        if status.st_mode & 0o077:
            raise unusable_image_key(
                str(path), "others may read or write it", f"chmod 600 {path}, if nobody has"
            )
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise unusable_image_key(str(path), "it is too long")
    return data
