"""What was sent to a bucket, on this machine: whole objects, and parts of unfinished ones.

Optional: unknown objects are sent again.  ETags show whether an object or a part is still the one
that was sent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from packager.core.documents import NotStrict, parse_object
from packager.images.digest_index import StateDatabase

_SCHEMA = """
CREATE TABLE IF NOT EXISTS trees_v1 (
    place TEXT, path TEXT, state TEXT NOT NULL, PRIMARY KEY (place, path)
)"""


class TreeJournal:
    """Rows of one place in the state directory's database. Safe to use from several threads."""

    def __init__(self, file: Path, place: str) -> None:
        self._database = StateDatabase(file, _SCHEMA)
        self._place = place

    def done(self, path: str) -> tuple[int, str, str] | None:
        """Return size, sha256 and ETag of an object that was sent whole."""
        state = self._get(path)
        found = (state.get("size"), state.get("sha256"), state.get("etag"))
        size, sha256, etag = found
        if isinstance(size, int) and isinstance(sha256, str) and isinstance(etag, str):
            return size, sha256, etag
        return None

    def note_done(self, path: str, size: int, sha256: str, etag: str) -> None:
        """Note an object that was sent whole."""
        self._put(path, {"size": size, "sha256": sha256, "etag": etag})

    def upload(self, path: str) -> tuple[str, int, dict[int, tuple[str, str]]] | None:
        """Return id, size of parts, and ETag and sha256 of each part of an unfinished upload."""
        state = self._get(path)
        identity, part_bytes, parts = (
            state.get(name) for name in ("upload", "part_bytes", "parts")
        )
        if not (isinstance(identity, str) and isinstance(part_bytes, int)):
            return None
        if not isinstance(parts, dict):
            return None
        return identity, part_bytes, {int(n): (str(p[0]), str(p[1])) for n, p in parts.items()}

    def note_upload(
        self, path: str, identity: str, part_bytes: int, parts: dict[int, tuple[str, str]]
    ) -> None:
        """Note an upload and the parts that were sent."""
        self._put(path, {"upload": identity, "part_bytes": part_bytes, "parts": parts})

    def forget(self, path: str | None = None) -> None:
        """Forget one object, or all of the place."""
        if path is None:
            self._database.change("DELETE FROM trees_v1 WHERE place = ?", (self._place,))
            return
        self._database.change(
            "DELETE FROM trees_v1 WHERE place = ? AND path = ?", (self._place, path)
        )

    def _get(self, path: str) -> dict[str, Any]:
        rows = self._database.look_up(
            "SELECT state FROM trees_v1 WHERE place = ? AND path = ?", (self._place, path)
        )
        try:
            return parse_object(rows[0][0].encode()) if rows else {}
        except NotStrict:
            return {}

    def _put(self, path: str, state: dict[str, Any]) -> None:
        row = (self._place, path, json.dumps(state))
        self._database.change("INSERT OR REPLACE INTO trees_v1 VALUES (?, ?, ?)", row)
