"""A store as the garbage collector sees it: entries, blobs, and what pins hold in quarantine.

Entries are not verified, which would take many times as long: a damaged one ages like any
other until somebody reads it, and pins hold it for what it still states.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifact_cache.entry import MAX_STORED_BYTES, PAYLOAD_TYPE, SCHEMA, parse_entry
from artifact_cache.errors import MalformedEntry, NewerEntry
from artifact_cache.files import bounded_bytes
from artifact_cache.pins import Pin
from artifact_cache.stores.local import LocalStore
from artifact_cache.strict_json import parse_object

_ASIDE = re.compile(r".*-([0-9a-f]{64})-[0-9a-f]{8}\.(?:json|blob)")  # a name in quarantine
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(frozen=True, slots=True)
class SeenEntry:
    """An entry's file as it was when it was looked at."""

    path: Path
    kind: str
    key: str
    looks: tuple[int, int]  # inode and ctime: whether it is still this one
    used_at: float
    blobs: frozenset[str]  # of those seen before
    model: str
    removable: bool

    def says(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Read its key document and labels now: 100,000 of them are much to keep."""
        plain, _ = _peek(bounded_bytes(self.path, MAX_STORED_BYTES))
        return _mapping(plain, "keydoc"), _mapping(plain, "labels")


@dataclass(frozen=True, slots=True)
class SeenBlob:
    """A blob's file as it was when it was looked at."""

    path: Path
    size: int
    looks: tuple[int, int]
    changed_at: float


def seen_entry(
    path: Path, status: os.stat_result, data: bytes, used_at: float, blobs: Container[str]
) -> SeenEntry:
    """Describe an entry, whatever it is: it names every digest that stands in it."""
    plain, text = _peek(data)
    named = (found.decode("ascii") for found in _DIGEST.findall(text))
    return SeenEntry(
        path=path,
        kind=path.parent.parent.name,
        key=path.stem,
        looks=looks_of(status),
        used_at=used_at,
        blobs=frozenset(digest for digest in named if digest in blobs),
        model=str(_mapping(plain, "labels").get("model") or ""),
        removable=bool(data) and (plain.get("schema") == SCHEMA or not _is_newer(data)),
    )


def is_pinned(entry: SeenEntry, pins: Iterable[Pin]) -> bool:
    """Report whether a pin holds the entry, or may hold it: one that cannot be read stays."""
    if any(entry.key in pin.keys for pin in pins):
        return True
    asking = [pin for pin in pins if pin.where or pin.labels]
    try:
        document, labels = entry.says() if asking else ({}, {})
    except FileNotFoundError:
        return False
    except OSError:
        return True  # nobody knows what it says
    return any(pin.holds(entry.key, document, labels) for pin in asking)


def held_in_quarantine(
    store: LocalStore, pins: Sequence[Pin]
) -> tuple[frozenset[str], frozenset[Path]]:
    """Return the digests that pinned entries in quarantine name, and the files to keep there.

    What was set aside by mistake comes back by a check: its blobs must be there then.
    """
    digests: set[str] = set()
    kept: set[Path] = set()
    if not pins:
        return frozenset(), frozenset()
    for path in store.root.glob("quarantine/*.json"):
        data = b""
        with suppress(OSError):
            data = bounded_bytes(path, MAX_STORED_BYTES)
        plain, text = _peek(data)
        key = found[1] if (found := _ASIDE.fullmatch(path.name)) else str(plain.get("key"))
        document, labels = _mapping(plain, "keydoc"), _mapping(plain, "labels")
        if any(pin.holds(key, document, labels) for pin in pins):
            digests |= {digest.decode("ascii") for digest in _DIGEST.findall(text)}
            kept.add(path)
    for path in store.root.glob("quarantine/*.blob"):
        if (found := _ASIDE.fullmatch(path.name)) and found[1] in digests:
            kept.add(path)
    return frozenset(digests), frozenset(kept)


def looks_of(status: os.stat_result) -> tuple[int, int]:
    """Return what changes whenever a file is replaced or written to: inode and ctime."""
    return status.st_ino, status.st_ctime_ns


def _peek(data: bytes) -> tuple[Mapping[str, Any], bytes]:
    """Return what an entry says, signed or not, and all the text that digests may stand in."""
    plain: dict[str, Any] = {}
    with suppress(ValueError, KeyError, TypeError):
        plain = parse_object(data, max_bytes=MAX_STORED_BYTES)
        if "payload" in plain:
            payload = base64.b64decode(plain["payload"])
            data += payload
            # The envelope's type says what the payload is; only our own is looked into.
            ours, plain = plain["payloadType"] == PAYLOAD_TYPE, {}
            plain = parse_object(payload, max_bytes=MAX_STORED_BYTES) if ours else {}
    return plain, data


def _mapping(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = plain.get(name)
    return value if isinstance(value, Mapping) else {}


def _is_newer(data: bytes) -> bool:
    try:
        parse_entry(data)
    except NewerEntry:
        return True
    except MalformedEntry:
        pass
    return False
