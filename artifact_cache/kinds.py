"""Policy of a cache for each kind of artifact, stated by whoever opens it.

A kind that no policy names gets the safe default: its files are hashed on every read, and only
the exact key finds it.  A policy that is missing or incomplete costs time and never returns a
wrong artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerRule:
    """When an artifact that was compiled for more serves a request for less.

    All other fields of the two key documents must be equal.
    """

    field: str  # of the key document; the only one that may differ
    covers: Callable[[Any, Any], bool]
    """Whether an artifact with the first value of `field` serves what asks for the second.

    Values are plain JSON; those of another schema are not covered."""
    cost: Callable[[Any], tuple[int, ...]]
    """What an artifact with this value of `field` takes while it serves: the least is used.

    Only asked of values that cover what is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindPolicy:
    """Policy for kinds of artifacts."""

    stamped: frozenset[str] = frozenset()
    """Kinds whose files are taken unhashed while size, mtime and inode are unchanged.

    Only for plain data that its readers compare with the entry; never for code."""
    larger: Mapping[str, LargerRule] = field(default_factory=dict)
    """By kind, when a larger artifact will do."""


ASSUME_NOTHING = KindPolicy()
