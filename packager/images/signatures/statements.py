"""What is signed: cosign's payload about an image, and in-toto statements about its digest.

Sources: containers/image docs/containers-signature.5.md, in-toto/attestation spec/v1 (2026-11).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from packager.images.oci import canonical_json

MEDIA_IN_TOTO = "application/vnd.in-toto+json"
SIGNED = "https://sigstore.dev/cosign/sign/v1"  # of a statement that says no more than that
SLSA = "https://slsa.dev/provenance/v1"
CYCLONEDX = "https://cyclonedx.org/bom"
_STATEMENT = "https://in-toto.io/Statement/v1"
_SIMPLE = "cosign container image signature"


def simple_payload(reference: str, digest: str, optional: Mapping[str, Any] | None = None) -> bytes:
    """Return the payload of cosign's tag form, byte for byte as cosign writes it."""
    document = {
        "critical": {
            "identity": {"docker-reference": reference},
            "image": {"docker-manifest-digest": digest},
            "type": _SIMPLE,
        },
        "optional": optional and dict(optional),
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return _as_go(text)


def statement(
    predicate_type: str, predicate: Mapping[str, Any], subjects: Sequence[tuple[str, str]]
) -> bytes:
    """Return an in-toto statement about subjects: pairs of a name, or "", and a digest."""
    return canonical_json(
        {
            "_type": _STATEMENT,
            "subject": [
                {
                    **({"name": name} if name else {}),
                    "digest": {"sha256": digest.removeprefix("sha256:")},
                }
                for name, digest in subjects
            ],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def _as_go(text: str) -> bytes:
    """Escape what Go's encoder escapes: such texts stand in web pages, too."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()
