"""Key documents: what is common to all kinds, and the key that is made of one.

A kind of artifact is a subclass of `KeyDocument` that fixes `kind` and lists
every input that decides whether an artifact may be used.  Which kinds there are
is the matter of whoever opens a cache.  Changing a field of a kind, or what it
means, bumps `schema`; changing the hash bumps `KEY_PREFIX`; both need a new
frozen digest in the tests.

No field but `schema` and `kind` has a default: an input that was forgotten must
be an error, never an equal key.  "Does not apply" is stated as None or empty.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, cast

import rfc8785
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

KEY_PREFIX = b"packager-key-v1\n"  # two schemes can then never give one key
MANIFEST_PREFIX = b"packager-manifest-v1\n"

KIND_PATTERN = r"^[a-z][a-z0-9-]{0,39}$"  # a directory's name, on every file system
MAX_FILES = 2000  # named one by one; an entry has room for them
LARGEST_INTEGER = 2**53 - 1  # RFC 8785 numbers are IEEE doubles; past this they collide


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _sorted_set(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


Text = Annotated[
    str, StringConstraints(min_length=1, max_length=65536), AfterValidator(_nfc)
]  # NFC: one name typed on two systems is one name
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
Texts = Annotated[tuple[Text, ...], AfterValidator(_sorted_set)]  # a set: order means nothing
Counts = Annotated[tuple[Count, ...], AfterValidator(_sorted_set)]
Digests = Annotated[tuple[Sha256, ...], AfterValidator(_sorted_set)]
Paths = Annotated[tuple[tuple[Count, ...], ...], AfterValidator(_sorted_set)]
Files = Annotated[dict[Text, Sha256], Field(max_length=MAX_FILES)]  # by path
ConfigFields = Annotated[dict[Text, Text], Field(min_length=1, max_length=MAX_FILES)]  # as JSON
OrderedTexts = tuple[Text, ...]  # order means something to whoever reads them
OrderedDigests = tuple[Sha256, ...]


class KeyPart(BaseModel):
    """A group of inputs: strict, frozen, nothing unknown, nothing coerced."""

    model_config = ConfigDict(
        defer_build=True,
        strict=True,
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
    )


class KeyDocument(KeyPart):
    """The inputs of one artifact. `kind` names its form and its directory in a store."""

    schema_version: Literal[2] = Field(default=2, alias="schema")
    """Meaning of the fields; a change of meaning is a new number."""
    kind: Annotated[str, StringConstraints(pattern=KIND_PATTERN)]
    """Which files the artifact consists of."""


def key_of(document: KeyDocument) -> str:
    """Return the document's address: 64 hex digits, equal only for equal inputs."""
    return key_of_plain(plain(document))


def plain(document: KeyDocument) -> dict[str, Any]:
    """Return the document as the JSON object that is hashed and stored."""
    return document.model_dump(mode="json", by_alias=True)


def key_of_plain(document: Mapping[str, Any]) -> str:
    """Return the key of a document that is already plain JSON.

    Takes kinds and schemas this version has never seen, so that an entry can
    always be checked against its own key.  Raises ValueError for what two
    systems could write differently.
    """
    _refuse_ambiguous(document)
    return hashlib.sha256(KEY_PREFIX + rfc8785.dumps(cast("Any", document))).hexdigest()


def manifest_digest(files: Iterable[tuple[str, int, str]]) -> str:
    """Return one digest for a set of files, each as path, size and sha256.

    The order does not matter; a file that appears, vanishes or is renamed does.
    """
    rows = sorted([_nfc(path), size, sha256] for path, size, sha256 in files)
    refuse_repeated(str(path) for path, _, _ in rows)
    return hashlib.sha256(MANIFEST_PREFIX + rfc8785.dumps(cast("Any", rows))).hexdigest()


def _refuse_ambiguous(value: object) -> None:
    match value:
        case float():
            raise ValueError("a key document holds no floats: state them as text")
        case str() if not unicodedata.is_normalized("NFC", value):
            raise ValueError(f"text in a key document is not NFC: {value!r}")
        case Mapping():
            for name, inner in value.items():
                _refuse_ambiguous(name)
                _refuse_ambiguous(inner)
        case list() | tuple():
            for inner in value:
                _refuse_ambiguous(inner)


def refuse_repeated(names: Iterable[str]) -> None:
    """Raise ValueError for a name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{name!r} stands twice")
        seen.add(name)
