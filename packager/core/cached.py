"""The artifact cache as people look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artifact_cache.entry import Entry
    from artifact_cache.stats import Total


# What a field of a key document is about, by the start of its JSON pointer.
_NAMES = (
    ("/weights/draft/", "draft's file {} changed"),
    ("/candidate/", "candidate's file {} changed"),
    ("/graph/architecture/", "model file config.json changed: field {}"),
    ("/toolchain/environment/", "version of {} in the tool's environment"),
)
_FILES = "/weights/files/"


def difference_name(pointer: str) -> str:
    """Return what differs between two key documents: the file, the field, else the JSON pointer."""
    if pointer.startswith(_FILES):
        name = _unescaped(pointer.removeprefix(_FILES))
        return f"{'weights' if name.endswith('.safetensors') else 'model'} file {name} changed"
    for start, words in _NAMES:
        if pointer.startswith(start):
            return words.format(_unescaped(pointer.removeprefix(start)))
    return pointer


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySummary:
    """An entry as a list shows it."""

    kind: str
    key: str
    shown: str  # the start of the key that no other entry begins with
    model: str
    bytes: int
    built_at: int
    used_at: int
    build_s: float
    pinned: bool
    signed: bool
    shared: bool = False  # in a shared store alone


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDetails:
    """An entry, with all there is to say of it."""

    entry: Entry
    used_at: int
    pins: tuple[str, ...]
    tier: str
    refused: str  # why the trust policy does not let it be used; empty where it does


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Contents and counters of the cache."""

    place: str
    capability: str
    entries: int
    bytes: int  # on the disk, each blob once
    by_kind: Mapping[str, tuple[int, int]]  # entries and their bytes
    failures: int
    totals: tuple[Total, ...]
