"""Stores and caches as packager opens them: with its policy of kinds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from artifact_cache import cache, opening
from artifact_cache.stores import local
from packager.optimize.keys.policy import KIND_POLICY

open_local = partial(cache.open_local, kinds=KIND_POLICY)
open_cache = partial(opening.open_cache, kinds=KIND_POLICY)


class LocalStore(local.LocalStore):
    """A local store that believes stamps of packager's kinds of plain tensors."""

    def __init__(self, root: Path, *, always_hash: bool = False) -> None:
        super().__init__(root, kinds=KIND_POLICY, always_hash=always_hash)
