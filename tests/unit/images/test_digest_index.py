"""The table of digests: kept open, not synced note by note, in the file when a note is made."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from packager.core.files.sqlite import Database
from packager.core.image import Blob, FileRange
from packager.images.digest_index import DigestIndex, KnownDigest, StateDatabase, fingerprint_of

HOUR_NS = 3600 * 10**9
SCHEMA = "CREATE TABLE IF NOT EXISTS t (a)"
ABC = "sha256:" + "abc" * 21 + "d"


def an_hour_later() -> int:
    """A clock by which every file of a test is old enough to be proven."""
    return time.time_ns() + HOUR_NS


def blobs_of(directory: Path, count: int) -> list[Blob]:
    blobs = []
    for number in range(count):
        path = directory / f"file-{number}"
        path.write_bytes(b"weights")
        blobs.append(Blob((FileRange(path=str(path), offset=0, length=7),)))
    return blobs


def note(index: DigestIndex, blob: Blob) -> None:
    index.put(blob, ABC, fingerprint_of(blob), index.now_ns())


def test_the_database_is_opened_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each note opened and closed it, which synced five times: 60 times for one push."""
    opened: list[object] = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: (opened.append(a), connect(*a, **k))[1])
    index = DigestIndex(tmp_path / "state/digests.sqlite", clock_ns=an_hour_later)

    for blob in blobs_of(tmp_path, 20):
        note(index, blob)
        assert index.get(blob) == KnownDigest(ABC, proven=True)
        index.put_packed(ABC, "zstd", ABC, 3)
        assert index.get_packed(ABC, "zstd") == (ABC, 3)

    assert len(opened) == 1


def test_a_note_waits_for_no_disk(tmp_path: Path) -> None:
    database = StateDatabase(tmp_path / "digests.sqlite", SCHEMA)
    database.change("INSERT INTO t VALUES (?)", (1,))

    found = [
        database.look_up(f"PRAGMA {name}", ())[0][0] for name in ("journal_mode", "synchronous")
    ]
    assert found == ["wal", 1]  # NORMAL: synced at checkpoints only


def test_a_damaged_file_costs_reading_only_until_it_is_gone(tmp_path: Path) -> None:
    (blob,) = blobs_of(tmp_path, 1)
    path = tmp_path / "digests.sqlite"
    path.write_bytes(b"no database at all" * 100)
    index = DigestIndex(path, clock_ns=an_hour_later)

    note(index, blob)
    assert index.get(blob) is None
    path.unlink()
    note(index, blob)

    assert index.get(blob) == KnownDigest(ABC, proven=True)


def test_an_interrupted_note_is_not_half_there_and_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "digests.sqlite"
    database = Database(path, SCHEMA, version=0, what="the digest index")

    with pytest.raises(KeyboardInterrupt), database.writing() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        raise KeyboardInterrupt
    other = sqlite3.connect(path, timeout=0)
    other.execute("INSERT INTO t VALUES (2)")
    other.commit()

    assert other.execute("SELECT a FROM t").fetchall() == [(2,)]
    other.close()
