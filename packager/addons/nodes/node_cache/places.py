"""Names in a node cache, as containerd's `layer_content_caches` looks them up."""

from __future__ import annotations

from pathlib import Path

TEMPORARY = ".tmp"
_SUFFIX = ".erofs"


def entry_path(directory: Path, diff_id: str) -> Path:
    """Return where the file system of a layer lies: `sha256/XX/DIFFID.erofs`."""
    algorithm, _, encoded = diff_id.partition(":")
    return directory / algorithm / encoded[:2] / f"{encoded}{_SUFFIX}"


def sidecar_path(entry: Path) -> Path:
    """Return where the root hash of an entry with a hash tree lies."""
    return entry.with_name(f"{entry.name}.dmverity")


def temporary_path(entry: Path) -> Path:
    """Return where an entry is while it is written; its writer holds a lock on it."""
    return entry.with_name(f".{entry.name}{TEMPORARY}")


def leftover_pattern() -> str:
    """Return the glob, from the cache's directory, of everything that is being written."""
    return f"*/*/.*{_SUFFIX}*{TEMPORARY}"
