"""Signatures that were used: refuses replayed requests, across restarts of the server."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from packager.addons.server.resources import STATE
from packager.addons.server.sigv4 import MAX_SKEW
from packager.core.files.sqlite import Database

_KEPT = 2 * MAX_SKEW + timedelta(minutes=1)  # from the first moment of a signature to its last
_SCHEMA = "CREATE TABLE IF NOT EXISTS signatures (signature TEXT PRIMARY KEY, until REAL)"


class SeenSignatures:
    """Signatures of requests that changed something; safe to use from many threads."""

    def __init__(self, path: Path) -> None:
        # Survives a kill of the process; a loss of power may take the last seconds.
        self._database = Database(path, _SCHEMA, version=1, what=STATE, synchronous="NORMAL")
        self._database.prepare()

    def use(self, signature: str, now: datetime) -> bool:
        """Note a signature; return False where it was used before."""
        with self._database.writing() as database:
            database.execute("DELETE FROM signatures WHERE until < ?", (now.timestamp(),))
            made = database.execute(
                "INSERT OR IGNORE INTO signatures VALUES (?, ?)",
                (signature, (now + _KEPT).timestamp()),
            )
            return made.rowcount == 1

    def count(self) -> int:
        """Return how many are remembered."""
        with self._database.reading() as database:
            (found,) = database.execute("SELECT COUNT(*) FROM signatures").fetchone()
        return int(found)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
