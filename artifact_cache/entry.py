"""Entries: what one artifact consists of, and from which inputs.

An entry comes from a place others can write to, so everything in it is bounded
and checked before any of it is used.  An older reader must leave a newer
`schema` alone, so a change that it would misread bumps `SCHEMA`; `schema` and
`check` keep their meaning in all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NoReturn, Self

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

SCHEMA = 1
CHECK_PREFIX = b"packager-entry-v1\n"
MAX_ENTRY_BYTES = 1024 * 1024
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
        strict=True, frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True
    )


class Output(_Strict):
    """One file. Its bytes are the blob of that digest."""

    path: Annotated[str, AfterValidator(_output_path)]
    sha256: Sha256
    size: Count
    mode: Literal["0644", "0755"]  # of all the mode bits, only these survive packaging


class Writer(_Strict):
    """Who published. The nonce tells two builds of one key apart."""

    nonce: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    builder_id: Line
    version: Line


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

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        if key_of_plain(self.keydoc) != self.key:
            raise ValueError("the key is not the key of the key document")
        kind = self.keydoc.get("kind")
        if not isinstance(kind, str) or not re.fullmatch(KIND_PATTERN, kind):
            raise ValueError("the key document has no kind, or one that is no plain word")
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
        """Size of all files together."""
        return sum(output.size for output in self.outputs)


def entry_bytes(entry: Entry) -> bytes:
    """Give the canonical bytes that are stored, with their own digest in `check`.

    A flipped bit in a path or mode would otherwise give good bytes a wrong
    place, and no blob would show it.  Raises `MalformedEntry` when no reader
    would take them.
    """
    plain = entry.model_dump(mode="json", by_alias=True)
    data = rfc8785.dumps({**plain, "check": _check(plain)})
    if len(data) > MAX_ENTRY_BYTES:
        raise MalformedEntry(f"{len(data)} bytes are more than {MAX_ENTRY_BYTES}")
    return data


def parse_entry(data: bytes) -> Entry:
    """Read an entry from bytes anyone could have written.

    Raises `NewerEntry` for a form of the future and `MalformedEntry` for all else.
    """
    plain = _parse_object(data)
    if "payloadType" in plain:
        raise NewerEntry("signed")  # a DSSE envelope
    try:
        sound = plain.pop("check", None) == _check(plain)
    except ValueError as error:
        raise MalformedEntry(str(error)) from None
    if not sound:
        raise MalformedEntry("its bytes have changed since it was written")
    schema = plain.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise NewerEntry(schema)
    try:
        # From text: strict mode takes a list for a tuple only there.
        return Entry.model_validate_json(rfc8785.dumps(plain))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise MalformedEntry(f"{where}: {first['msg']}".removeprefix(": ")) from None


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


def _parse_object(data: bytes) -> dict[str, Any]:
    """Parse JSON that means one thing to every reader, or refuse it."""
    if len(data) > MAX_ENTRY_BYTES:
        raise MalformedEntry(f"{len(data)} bytes are more than {MAX_ENTRY_BYTES}")
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise MalformedEntry("it is nested too deeply") from None
    except ValueError as error:
        raise MalformedEntry(f"it is not strict JSON: {error}") from None
    if not isinstance(value, dict):
        raise MalformedEntry("it is not a JSON object")
    if _too_deep(value, MAX_NESTING):
        raise MalformedEntry("it is nested too deeply")
    return value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice")  # two readers may keep different ones
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _too_deep(value: object, levels: int) -> bool:
    match value:
        case dict():
            return levels == 0 or any(_too_deep(inner, levels - 1) for inner in value.values())
        case list():
            return levels == 0 or any(_too_deep(inner, levels - 1) for inner in value)
    return False
