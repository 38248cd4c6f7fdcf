"""Claims: which blob a layer of known content is, authenticated with a key of the user or team.

A proven claim saves reading the weights; with a false one an image gets wrong weights.  So the
document names the repository that it was written for, and an HMAC-SHA256 over all of it is compared
before one of its claims counts. Without the key, claims are hints: they decide what is worth
hashing first.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from packager.core.documents import NotStrict, parse_object
from packager.core.documents import field as typed
from packager.core.image import MEDIA_EROFS, MEDIA_LAYER, Claim, Layer, LayerRole
from packager.images.oci import canonical_json

MEDIA_CLAIMS = "application/vnd.packager.claims.v1+json"
SCHEMA = 1
MAX_DOCUMENT = 128 * 1024  # 120 layers take 30 KB
MAX_CLAIMS = 512
KEY_BYTES = 32
_MAC_DOMAIN = b"packager layer claims v1\n"
_ID_DOMAIN = b"packager claim key id v1\n"
_KEY_TEXT = re.compile(r"packager-claim-key-1:([0-9a-f]{64})")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ROLES = frozenset(get_args(LayerRole)) - {"base"}

# What a document is worth: `proven` alone is believed.
Verdict = Literal["proven", "other-key", "forged", "other-repository"]


@dataclass(frozen=True, slots=True)
class ClaimKey:
    """A symmetric key. Its id may be shown; the secret never is."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """An identifier of a key that reveals nothing of the secret."""
        return hmac.new(self.secret, _ID_DOMAIN, hashlib.sha256).hexdigest()[:16]

    def spelled(self) -> str:
        """The secret as files and variables hold it, for `packager claims export` alone."""
        return f"packager-claim-key-1:{self.secret.hex()}"


def parse_key(text: str) -> ClaimKey:
    """Parse what `ClaimKey.spelled` gives; raise `ValueError`, which does not repeat the text."""
    found = _KEY_TEXT.fullmatch(text.strip())
    if found is None:
        raise ValueError("it is not packager-claim-key-1: and 64 digits of 0-9a-f")
    return ClaimKey(bytes.fromhex(found[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDocument:
    """Unproven claims; `judge` decides which are proven."""

    key_id: str
    mac: str
    repository: str  # `HOST/REPOSITORY`
    claims: tuple[Claim, ...]


def make_claims(layers: Iterable[Layer]) -> tuple[Claim, ...]:
    """Claim what is known of finished layers.

    Only the digests of plain tars, and of file systems over them, follow from their files.
    """
    return tuple(
        sorted(
            {
                Claim(role=one.role, content=one.content, size=one.size, digest=one.digest)
                for one in layers
                if one.content and one.digest and one.role in _ROLES and is_plain(one)
            }
        )
    )


def is_plain(layer: Layer) -> bool:
    """Return whether the layer travels as the tar, or the file system, that it is."""
    return layer.media_type in (MEDIA_LAYER, MEDIA_EROFS) and layer.compression == "none"


def write_claims(key: ClaimKey, repository: str, claims: Sequence[Claim]) -> bytes:
    """Write a document for one repository. Equal claims and keys give equal bytes."""
    payload = _payload(repository, claims)
    return canonical_json({**payload, "key": key.id, "mac": _mac(key, payload)})


def read_claims(document: bytes) -> ClaimDocument:
    """Parse an untrusted document into unproven claims; raise `NotStrict`."""
    parsed = parse_object(document, max_bytes=MAX_DOCUMENT, max_depth=4)
    if parsed.keys() != {"claims", "key", "mac", "repository", "schema"}:
        raise NotStrict("it has other fields than a document of claims")
    if typed(parsed, "schema", int) != SCHEMA:
        raise NotStrict("it is of another version")
    entries = typed(parsed, "claims", list)
    if len(entries) > MAX_CLAIMS:
        raise NotStrict(f"it has {len(entries)} claims, more than {MAX_CLAIMS}")
    return ClaimDocument(
        key_id=typed(parsed, "key", str),
        mac=typed(parsed, "mac", str),
        repository=typed(parsed, "repository", str),
        claims=tuple(_claim(entry) for entry in entries),
    )


def judge(document: ClaimDocument, key: ClaimKey | None, repository: str) -> Verdict:
    """Return what the document is worth to the owner of `key` in `repository`."""
    if key is None or document.key_id != key.id:
        return "other-key"
    expected = _mac(key, _payload(document.repository, document.claims))
    if not hmac.compare_digest(expected.encode(), document.mac.encode()):
        return "forged"
    return "proven" if document.repository == repository else "other-repository"


def _claim(entry: object) -> Claim:
    if not isinstance(entry, dict) or entry.keys() != {"content", "digest", "role", "size"}:
        raise NotStrict("an entry in it is not a claim")
    found = Claim(
        role=typed(entry, "role", str),
        content=typed(entry, "content", str),
        size=typed(entry, "size", int),
        digest=typed(entry, "digest", str),
    )
    digests = (found.content, found.digest)
    if not all(_DIGEST.fullmatch(digest) for digest in digests) or found.size < 0:
        raise NotStrict("an entry in it has a broken digest or size")
    if found.role not in _ROLES:
        raise NotStrict("an entry in it is of no role that packager gives to layers")
    return found


def _payload(repository: str, claims: Sequence[Claim]) -> dict[str, Any]:
    """Return the authenticated bytes: fields sorted by name, one spelling for one value."""
    return {
        "claims": [
            {
                "content": claim.content,
                "digest": claim.digest,
                "role": claim.role,
                "size": claim.size,
            }
            for claim in claims
        ],
        "repository": repository,
        "schema": SCHEMA,
    }


def _mac(key: ClaimKey, payload: dict[str, Any]) -> str:
    return hmac.new(key.secret, _MAC_DOMAIN + canonical_json(payload), hashlib.sha256).hexdigest()
