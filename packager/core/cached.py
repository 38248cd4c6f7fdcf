"""The artifact cache as people look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artifact_cache.entry import Entry
    from artifact_cache.stats import Total


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An entry, with all there is to say of it."""

    entry: Entry
    used_at: int
    pins: tuple[str, ...]
    tier: str
    refused: str  # why the trust policy does not let it be used; empty where it does


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What the cache holds and did."""

    place: str
    capability: str
    entries: int
    bytes: int  # on the disk, each blob once
    by_kind: Mapping[str, tuple[int, int]]  # entries and their bytes
    failures: int
    totals: tuple[Total, ...]
