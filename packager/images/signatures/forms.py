"""Signed statements as artifacts at an image: both forms of cosign, byte for byte.

Cosign 3 reads sigstore bundles that are referrers; policy-controller, Kyverno and earlier versions
of cosign read the tags `sha256-HEX.sig` and `.att`.  If one referrer is a bundle, cosign 3 looks at
no tag, so that an image gets both forms of everything, by one key.

Sources: sigstore/protobuf-specs bundle v0.3, sigstore/cosign specs/SIGNATURE_SPEC.md (2026-11).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

from artifact_cache.trust import pae
from packager.core.image import Attached, Descriptor
from packager.images.attached import attach_document
from packager.images.oci import canonical_json, parse_object, sha256
from packager.images.signature_tags import signature_tag, tagged_artifact
from packager.images.signatures.keys import ImageSigner
from packager.images.signatures.statements import (
    MEDIA_IN_TOTO,
    SIGNED,
    simple_payload,
    statement,
)

MEDIA_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MEDIA_SIMPLE = "application/vnd.dev.cosign.simplesigning.v1+json"
MEDIA_DSSE = "application/vnd.dsse.envelope.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"
CONTENT = "dev.sigstore.bundle.content"
PREDICATE = "dev.sigstore.bundle.predicateType"


def sign_image(
    signer: ImageSigner, image: Descriptor, reference: str, statements: Iterable[bytes] = ()
) -> tuple[Attached, ...]:
    """Return the signature of an image and of statements about it, in both forms.

    `reference` is the repository that the image is in, `HOST/REPOSITORY`.
    """
    signed = envelope(signer, statement(SIGNED, {}, [("", image.digest)]))
    bundle_of_image = _bundle_artifact(signer, image, SIGNED, signed)
    tag = _signature_tag(signer, image.digest, reference)
    attested = attest_image(signer, image, statements)
    bundles = (one for one in attested if not one.tag)
    return (bundle_of_image, *bundles, tag, *(one for one in attested if one.tag))


def attest_image(
    signer: ImageSigner, image: Descriptor, statements: Iterable[bytes]
) -> tuple[Attached, ...]:
    """Return statements about an image, signed, in both forms; the image itself is not signed."""
    envelopes = [(kind, envelope(signer, data)) for kind, data in _typed(statements)]
    found = [_bundle_artifact(signer, image, kind, data) for kind, data in envelopes]
    if envelopes:
        found.append(_attestation_tag(image.digest, envelopes))
    return tuple(found)


def envelope(signer: ImageSigner, payload: bytes) -> dict[str, object]:
    """Return a DSSE envelope around an in-toto statement."""
    signature = signer.sign(pae(MEDIA_IN_TOTO, payload))
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": MEDIA_IN_TOTO,
        "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
    }


def bundle(signer: ImageSigner, signed: dict[str, object]) -> bytes:
    """Return the sigstore bundle of an envelope that a key signed; no log has seen it."""
    return canonical_json(
        {
            "mediaType": MEDIA_BUNDLE,
            "verificationMaterial": {
                "publicKey": {"hint": signer.hint},
                "tlogEntries": [],
            },
            "dsseEnvelope": signed,
        }
    )


def _typed(statements: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    for data in statements:
        yield str(parse_object(data, "statement")["predicateType"]), data


def _bundle_artifact(
    signer: ImageSigner, image: Descriptor, kind: str, signed: dict[str, object]
) -> Attached:
    notes = {CONTENT: "dsse-envelope", PREDICATE: kind}
    return attach_document(image, bundle(signer, signed), MEDIA_BUNDLE, notes)


def _signature_tag(signer: ImageSigner, digest: str, reference: str) -> Attached:
    payload = simple_payload(reference, digest)
    signature = base64.b64encode(signer.sign(payload)).decode()
    layer = _layer(payload, MEDIA_SIMPLE, {SIGNATURE: signature})
    return tagged_artifact(signature_tag(digest, ".sig"), [(layer, payload)])


def _attestation_tag(digest: str, envelopes: list[tuple[str, dict[str, object]]]) -> Attached:
    layers = []
    for kind, signed in envelopes:
        data = canonical_json(signed)
        layers.append((_layer(data, MEDIA_DSSE, {SIGNATURE: "", "predicateType": kind}), data))
    return tagged_artifact(signature_tag(digest, ".att"), layers)


def _layer(data: bytes, media_type: str, annotations: dict[str, str]) -> Descriptor:
    return Descriptor(
        media_type=media_type, digest=sha256(data), size=len(data), annotations=annotations
    )
