"""What keys have proven of an image: signatures and statements, in both forms of cosign.

A signature by a wanted key over these very bytes counts, and nothing else: no tag's name, no
annotation, no log.  Cosign itself takes any statement by the key for a signature; here a predicate
counts as its own exact type only.

Sources: as `forms`; sigstore/cosign pkg/cosign/verify.go (2026-11).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifact_cache.trust import pae
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import ModelRefused, ProtocolFailed, UsageError
from packager.core.files.user_files import read_user_file
from packager.core.image import Attached, Descriptor
from packager.images.attached import MAX_BYTES, parse_artifact
from packager.images.oci import parse_manifest, sha256
from packager.images.signatures.forms import (
    MEDIA_BUNDLE,
    MEDIA_DSSE,
    MEDIA_SIMPLE,
    SIGNATURE,
)
from packager.images.signatures.key_faults import need_cryptography
from packager.images.signatures.statements import MEDIA_IN_TOTO, SIGNED

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

_SIMPLE = "cosign container image signature"
_STATEMENT = "https://in-toto.io/Statement/v1"
_LONGEST = 64 * 1024
MOST_SIGNATURES = 1000  # of a tag, as cosign takes at most


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedStatement:
    """A statement about an image that a key has signed."""

    predicate_type: str  # of a plain signature, `SIGNED`
    predicate: Mapping[str, Any]
    key: str  # as the caller named it


class PublicKey:
    """A public key on P-256, by the name that it was given."""

    def __init__(self, place: str) -> None:
        need_cryptography()
        self.place = place
        hint = "name a public key in PEM: `packager keys make image` prints one"
        data = read_user_file(Path(place), what="the key", hint=hint, max_bytes=_LONGEST)
        self._key = _parsed(place, data, hint)

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key made an ECDSA signature, in DER, of SHA-256 of the message."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            self._key.verify(signature, message, ECDSA(SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True


def check_proven(
    name: str,
    digest: str,
    attached: Mapping[str, Iterable[Attached]],
    keys: Sequence[PublicKey],
    wanted: Collection[str] = (SIGNED,),
) -> tuple[SignedStatement, ...]:
    """Return what the keys have proven of the image with this digest.

    `attached` has what is at each digest that stands for it: its own, and that of its index.

    Raises `ModelRefused` where a wanted type of predicate is not among it.
    """
    found = tuple(
        proof
        for subject, artifacts in attached.items()
        for proof in find_proofs(subject, artifacts, keys)
    )
    missing = [kind for kind in wanted if kind not in {one.predicate_type for one in found}]
    if missing:
        places = ", ".join(repr(key.place) for key in keys)
        raise ModelRefused(
            f"{name!r} ({digest}) has no {' and no '.join(missing)} by {places}",
            hint="sign it with `packager sign`, or name the key that did",
            code="NotProven",
        )
    return found


def find_proofs(
    digest: str, artifacts: Iterable[Attached], keys: Sequence[PublicKey]
) -> Iterator[SignedStatement]:
    """Yield what the keys have signed about a digest; what cannot be read proves nothing."""
    for artifact in artifacts:
        blobs = {sha256(blob): blob for blob in artifact.blobs}
        with suppress(NotStrict, ProtocolFailed):
            layers = parse_manifest("a signature", artifact.manifest).layers[:MOST_SIGNATURES]
            if artifact.tag:
                for layer in layers:
                    yield from _of_tag(layer, blobs.get(layer.digest, b""), digest, keys)
            elif parse_artifact(artifact.manifest).artifact_type == MEDIA_BUNDLE:
                for layer in layers:
                    yield from _of_bundle(blobs.get(layer.digest, b""), digest, keys)


def open_bundle(data: bytes, keys: Sequence[PublicKey]) -> tuple[Mapping[str, Any], str]:
    """Return the statement in a sigstore bundle and the key that signed it.

    Raises `NotStrict` for a bundle of another form, or by none of the keys.
    """
    document = parse_object(data, max_bytes=MAX_BYTES)
    if document.get("mediaType") != MEDIA_BUNDLE:
        raise NotStrict("it is not a sigstore bundle of version 0.3")
    return _open_envelope(document.get("dsseEnvelope"), keys)


def is_about(statement: Mapping[str, Any], digest: str) -> bool:
    """Return whether a digest is among the subjects of a statement."""
    subjects = statement.get("subject")
    wanted = {"sha256": digest.removeprefix("sha256:")}
    listed = subjects if isinstance(subjects, list) else []
    return any(isinstance(one, dict) and one.get("digest") == wanted for one in listed)


def _of_bundle(data: bytes, digest: str, keys: Sequence[PublicKey]) -> Iterator[SignedStatement]:
    with suppress(NotStrict):
        yield from _of_statement(*open_bundle(data, keys), digest)


def _of_tag(
    layer: Descriptor, data: bytes, digest: str, keys: Sequence[PublicKey]
) -> Iterator[SignedStatement]:
    if layer.media_type == MEDIA_DSSE:
        with suppress(NotStrict):
            envelope = parse_object(data, max_bytes=MAX_BYTES)
            yield from _of_statement(*_open_envelope(envelope, keys), digest)
    elif layer.media_type == MEDIA_SIMPLE:
        with suppress(NotStrict):
            signature = _decoded(layer.annotations.get(SIGNATURE))
            key = next((key for key in keys if key.has_signed(data, signature)), None)
            if key is not None and _is_payload_of(parse_object(data, max_bytes=_LONGEST), digest):
                yield SignedStatement(predicate_type=SIGNED, predicate={}, key=key.place)


def _of_statement(statement: Mapping[str, Any], key: str, digest: str) -> Iterator[SignedStatement]:
    kind, predicate = statement.get("predicateType"), statement.get("predicate")
    if isinstance(kind, str) and isinstance(predicate, dict) and is_about(statement, digest):
        yield SignedStatement(predicate_type=kind, predicate=predicate, key=key)


def _open_envelope(envelope: object, keys: Sequence[PublicKey]) -> tuple[Mapping[str, Any], str]:
    """Return the statement of a DSSE envelope with one signature, and the key that made it."""
    if not isinstance(envelope, dict) or envelope.get("payloadType") != MEDIA_IN_TOTO:
        raise NotStrict("it holds no statement of in-toto")
    signatures = envelope.get("signatures")
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise NotStrict("it does not have exactly one signature")
    payload = _decoded(envelope.get("payload"))
    one = signatures[0].get("sig") if isinstance(signatures[0], dict) else None
    signed, signature = pae(MEDIA_IN_TOTO, payload), _decoded(one)
    key = next((key for key in keys if key.has_signed(signed, signature)), None)
    if key is None:
        raise NotStrict("no key at hand has signed it")
    statement = parse_object(payload, max_bytes=MAX_BYTES)
    if statement.get("_type") != _STATEMENT:
        raise NotStrict("its statement is not of version 1")
    return statement, key.place


def _is_payload_of(payload: Mapping[str, Any], digest: str) -> bool:
    critical = payload.get("critical")
    image = critical.get("image") if isinstance(critical, dict) else None
    return (
        isinstance(critical, dict)
        and critical.get("type") == _SIMPLE
        and isinstance(image, dict)
        and image.get("docker-manifest-digest") == digest
    )


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotStrict("it is not base64") from error


def _parsed(place: str, data: bytes, hint: str) -> EllipticCurvePublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key: object = None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load_pem_public_key(data)
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise UsageError(
            f"the key {place!r} verifies nothing here: it is no public key on P-256 in PEM",
            hint=hint,
            code="UnusablePublicKey",
        )
    return key
