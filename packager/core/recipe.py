"""Ordered work: each step is one run of one tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One tool run: argv, the only environment it sees, and its cache key document.

    `key_document` None means the step cannot be cached.
    """

    name: str
    tool: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    key_document: Mapping[str, Any] | None = None
    timeout_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """Steps in order. Empty when the model is served as it is."""

    steps: tuple[Step, ...] = ()
