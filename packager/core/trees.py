"""Results of other tools' compilations, read from their directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from artifact_cache.key import KeyDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """Key values that the user states for an imported tree."""

    instance: str | None = None
    logical_core_size: int | None = None
    model: str | None = None
    modules: tuple[str, ...] = ()
    logs: tuple[Path, ...] = ()
    all_modules: bool = False
    config: Path | None = None
    stated: tuple[str, ...] = ()  # `/POINTER=JSON`
    document: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeArtifact:
    """One artifact of a tree, and the key that it can have."""

    model: str
    document: KeyDocument
    files: tuple[tuple[str, Path], ...]  # path in the artifact, and where the file is
    toolchain: Mapping[str, str]  # version by name of what compiled it


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Contents of a directory."""

    artifacts: tuple[TreeArtifact, ...]
    left_out: tuple[tuple[str, str], ...]  # a name, and why it cannot be used
