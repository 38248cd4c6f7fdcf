"""Entries: what one artifact consists of, and from which inputs.

An entry comes from a place others can write to, so everything in it is bounded
and checked before any of it is used.  An older reader must leave a newer
`schema` alone, so a change that it would misread bumps `SCHEMA`; `schema` and
`check` keep their meaning in all of them.

A signed entry is stored in a DSSE envelope.  Its payload is exactly what an
unsigned one would be, so the signatures are over the bytes as stored, and a
reader without keys needs no other parser.  Whom to believe is `trust`'s matter.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

import rfc8785
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)

from artifact_cache.errors import MalformedEntry, NewerEntry
from artifact_cache.key import KIND_PATTERN, LARGEST_INTEGER, Count, Sha256, key_of_plain
from artifact_cache.strict_json import NotStrict, parse_object

SCHEMA = 1
CHECK_PREFIX = b"packager-entry-v1\n"
PAYLOAD_TYPE = "application/vnd.packager.cache.entry+json"
MAX_ENTRY_BYTES = 1024 * 1024
MAX_SIGNATURES = 8
MAX_STORED_BYTES = 3 * MAX_ENTRY_BYTES // 2  # base64 adds a third, signatures a little
MAX_OUTPUTS = 10_000
MAX_NESTING = 8
MAX_PATH_BYTES = 1024
MAX_PATH_DEPTH = 32
MAX_NAME_BYTES = 255


def _output_path(path: str) -> str:
    """Refuse every spelling that could leave the directory or name a file twice."""
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise ValueError(f"{path!r} is not a plain relative path")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        raise ValueError(f"{path!r} holds a control character or is not UTF-8")
    if "\\" in path:
        raise ValueError(f"{path!r} holds a backslash")
    if not unicodedata.is_normalized("NFC", path):
        raise ValueError(f"{path!r} is not NFC")
    if len(parts) > MAX_PATH_DEPTH or len(path.encode()) > MAX_PATH_BYTES:
        raise ValueError(f"{path[:80]!r} is too deep or too long")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise ValueError(f"{path[:80]!r} has a part that is too long")
    return path


Line = Annotated[str, StringConstraints(max_length=1000)]


class _Strict(BaseModel):
    model_config = ConfigDict(
        defer_build=True,
        strict=True,
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
    )


class Output(_Strict):
    """One file. Its bytes are the blob of that digest."""

    path: Annotated[str, AfterValidator(_output_path)]
    sha256: Sha256
    size: Count
    mode: Literal["0644", "0755"]  # of all the mode bits, only these survive packaging


class Writer(_Strict):
    """Publisher of an entry. The nonce distinguishes two builds of one key."""

    nonce: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    builder_id: Line
    version: Line


class Signature(_Strict):
    """Somebody's word for an entry; worth nothing until `trust` has checked it."""

    keyid: Annotated[str, StringConstraints(max_length=200)]
    sig: Annotated[str, StringConstraints(max_length=1000, pattern=r"^[A-Za-z0-9+/]*={0,2}$")]


class Entry(_Strict):
    """One artifact: its inputs, its files, and how it came to be."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    key: Sha256
    keydoc: dict[str, JsonValue]  # plain: a kind newer than this reader is still an entry
    outputs: Annotated[tuple[Output, ...], Field(min_length=1, max_length=MAX_OUTPUTS)]
    writer: Writer
    built_at: Count  # seconds since the epoch
    build_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # what a hit saves
    toolchain_report: dict[Line, Line] = Field(default_factory=dict)
    provenance_sha256: Sha256 | None = None
    labels: dict[Line, Line] = Field(default_factory=dict)  # for people; they decide nothing
    signatures: Annotated[tuple[Signature, ...], Field(max_length=MAX_SIGNATURES)] = Field(
        default=(), exclude=True
    )  # beside the payload, in the envelope

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        if key_of_plain(self.keydoc) != self.key:
            raise ValueError("the key is not the key of the key document")
        kind = self.keydoc.get("kind")
        if not isinstance(kind, str) or not re.fullmatch(KIND_PATTERN, kind):
            raise ValueError("the key document has no kind, or one that is not a plain word")
        if sum(output.size for output in self.outputs) > LARGEST_INTEGER:
            raise ValueError("the sizes add up to more than can be")
        _refuse_clashes(self.outputs)
        return self

    @property
    def kind(self) -> str:
        """The kind of artifact, as its key document says."""
        return str(self.keydoc["kind"])

    @property
    def total_bytes(self) -> int:
        """Return the size of all files together."""
        return sum(output.size for output in self.outputs)


def entry_bytes(entry: Entry) -> bytes:
    """Return the bytes that are stored: the payload, in an envelope when it is signed.

    Raises `MalformedEntry` when no reader would take them.
    """
    payload = payload_bytes(entry)
    if not entry.signatures:
        return payload
    return rfc8785.dumps(
        {
            "payloadType": PAYLOAD_TYPE,
            "payload": base64.b64encode(payload).decode("ascii"),
            "signatures": [signature.model_dump() for signature in entry.signatures],
        }
    )


def payload_bytes(entry: Entry) -> bytes:
    """Return the canonical bytes that are signed, with their own digest in `check`.

    A flipped bit in a path or mode would otherwise give good bytes a wrong
    place, and no blob would show it.
    """
    plain = entry.model_dump(mode="json", by_alias=True)
    data = rfc8785.dumps({**plain, "check": _check(plain)})
    if len(data) > MAX_ENTRY_BYTES:
        raise MalformedEntry(f"{len(data)} bytes are more than {MAX_ENTRY_BYTES}")
    return data


def parse_entry(data: bytes) -> Entry:
    """Read an entry from bytes anyone could have written; check no signature.

    Raises `NewerEntry` for a form of the future and `MalformedEntry` for all else.
    """
    outer = _parse_object(data, MAX_STORED_BYTES)
    if "payloadType" not in outer:
        return _parse_payload(data)
    payload = _payload_of(outer)
    if outer["payloadType"] != PAYLOAD_TYPE:
        _refuse_flipped_type(payload)
        raise NewerEntry(outer["payloadType"])
    envelope = _validated(_Envelope, outer)
    entry = _parse_payload(payload)
    if payload_bytes(entry) != payload:  # what is signed must be what is read
        raise MalformedEntry("the envelope's payload is not in canonical form")
    return entry.model_copy(update={"signatures": envelope.signatures})


class _Envelope(_Strict):
    """DSSE, with nothing that this reader would not look at."""

    payload_type: Line = Field(alias="payloadType")
    payload: str
    signatures: Annotated[tuple[Signature, ...], Field(min_length=1, max_length=MAX_SIGNATURES)]


_Model = TypeVar("_Model", bound=_Strict)


def _payload_of(envelope: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(envelope.get("payload", ""), validate=True)
    except (TypeError, ValueError):
        raise MalformedEntry("the envelope's payload is not base64") from None


def _refuse_flipped_type(payload: bytes) -> None:
    """Refuse a damaged envelope, which can be healed; let one of the future pass, which is left."""
    try:
        _parse_payload(payload)
    except MalformedEntry:
        return
    raise MalformedEntry("the envelope's type has changed since it was written")


def _parse_payload(data: bytes) -> Entry:
    plain = _parse_object(data, MAX_ENTRY_BYTES)
    try:
        sound = plain.pop("check", None) == _check(plain)
    except ValueError as error:
        raise MalformedEntry(str(error)) from None
    if not sound:
        raise MalformedEntry("its bytes have changed since it was written")
    schema = plain.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise NewerEntry(schema)
    if "signatures" in plain:
        raise MalformedEntry("signatures: they stand beside the payload")
    return _validated(Entry, plain)


def _validated(model: type[_Model], plain: dict[str, Any]) -> _Model:
    try:
        # From text: strict mode takes a list for a tuple only there.
        return model.model_validate_json(rfc8785.dumps(plain))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise MalformedEntry(f"{where}: {first['msg']}".removeprefix(": ")) from None
    except ValueError as error:
        raise MalformedEntry(str(error)) from None


def _check(plain: dict[str, Any]) -> str:
    return hashlib.sha256(CHECK_PREFIX + rfc8785.dumps(plain)).hexdigest()


def _refuse_clashes(outputs: Sequence[Output]) -> None:
    """Refuse two names that one file system somewhere would make one."""
    files = [output.path.casefold() for output in outputs]
    if len(set(files)) != len(files):
        raise ValueError("two outputs have one path when case is ignored")
    directories = {parent for path in files for parent in _parents(path)}
    if directories & set(files):
        raise ValueError("one path is both a file and a directory")


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _parse_object(data: bytes, most: int) -> dict[str, Any]:
    try:
        return parse_object(data, max_bytes=most, max_depth=MAX_NESTING)
    except NotStrict as error:
        raise MalformedEntry(str(error)) from None
