"""Index of blobs seen in registries, so that other repositories there can mount them.

Registries do not say which of their repositories holds a blob; a mount needs
to name one.  What is noted here is a hint: a blob may be gone, or the
repository closed to us, and then the registry opens an upload instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from packager.images.digest_index import StateDatabase

_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen_v1 (
    host TEXT NOT NULL, digest TEXT NOT NULL, repository TEXT NOT NULL, seen_at INTEGER NOT NULL,
    PRIMARY KEY (host, digest, repository)
) WITHOUT ROWID"""


class SeenBlobs:
    """A table beside the digest index. An unusable table counts as empty."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._database = StateDatabase(path, _SCHEMA)
        self._clock = clock

    def add(self, host: str, repository: str, digests: Iterable[str]) -> None:
        """Record that the repository holds these blobs now."""
        now = int(self._clock())
        rows = [(host, digest, repository, now) for digest in digests]
        self._database.change("INSERT OR REPLACE INTO seen_v1 VALUES (?, ?, ?, ?)", *rows)

    def forget(self, host: str, repository: str, digest: str) -> None:
        """Record that the blob could not be mounted from this repository."""
        row = (host, repository, digest)
        self._database.change(
            "DELETE FROM seen_v1 WHERE host = ? AND repository = ? AND digest = ?", row
        )

    def repositories(self, host: str, digest: str) -> tuple[str, ...]:
        """Return the repositories of the registry that held the blob, the latest first."""
        rows = self._database.look_up(
            "SELECT repository FROM seen_v1 WHERE host = ? AND digest = ? "
            "ORDER BY seen_at DESC, repository",
            (host, digest),
        )
        return tuple(str(row[0]) for row in rows)
