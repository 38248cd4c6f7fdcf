"""Files of a server's state that are damaged, newer, or readable by others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from packager.addons.server.resources import ResourceStore
from packager.core.errors import OutputFailed
from packager.core.files.sqlite import Database, DatabaseBroken, DatabaseNewer

SCHEMA = "CREATE TABLE IF NOT EXISTS things (name TEXT PRIMARY KEY)"


def state(path: Path, version: int = 1) -> Database:
    database = Database(path, SCHEMA, version=version, what="the server's state")
    database.prepare()
    return database


def test_what_is_no_database_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "resources.sqlite"
    path.write_bytes(b"not a database at all" * 100)

    with pytest.raises(DatabaseBroken, match=r"resources\.sqlite") as broken:
        ResourceStore(path)
    assert "backup" in broken.value.hint


def test_a_later_version_s_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    state(path, 7).close()

    with pytest.raises(DatabaseNewer, match="version 7"):
        state(path)


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OutputFailed):
        ResourceStore(tmp_path / "file" / "resources.sqlite")


def test_nobody_else_reads_the_state(tmp_path: Path) -> None:
    path = tmp_path / "serve" / "state"
    database = state(path)
    with database.writing() as connection:
        connection.execute("INSERT INTO things VALUES ('a')")

    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    database.close()


def test_a_failed_change_is_undone_whole(tmp_path: Path) -> None:
    database = state(tmp_path / "state")
    with pytest.raises(sqlite3.IntegrityError), database.writing() as connection:
        connection.execute("INSERT INTO things VALUES ('a')")
        connection.execute("INSERT INTO things VALUES ('a')")

    with database.reading() as connection:
        assert connection.execute("SELECT * FROM things").fetchone() is None
    database.close()


def test_a_full_disk_is_told_as_such_and_leaves_the_state_usable(tmp_path: Path) -> None:
    database = state(tmp_path / "state")
    with database.reading() as connection:
        connection.execute("PRAGMA max_page_count=3")
    with pytest.raises(OutputFailed, match="no space left"), database.writing() as connection:
        connection.execute("INSERT INTO things VALUES (?)", ("x" * 100_000,))

    with database.writing() as connection:
        connection.execute("INSERT INTO things VALUES ('a')")
    database.close()


@pytest.mark.parametrize("left", [0, 1, 99, 4096, 20_000, -4096, -1])
def test_a_file_that_was_cut_is_refused_when_it_is_opened(tmp_path: Path, left: int) -> None:
    path = tmp_path / "resources.sqlite"
    store = ResourceStore(path)
    for number in range(50):
        store.create("model", str(number), {"a": "x" * 1000}, arn=str(number))
    store.close()
    path.write_bytes(path.read_bytes()[:left])

    with pytest.raises(DatabaseBroken):
        ResourceStore(path)


def test_a_damaged_row_and_another_s_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "resources.sqlite"
    ResourceStore(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO resources VALUES ('model', 'm', 'a', '{', '', 1, 1, '{}')")
    with pytest.raises(DatabaseBroken, match="the row is damaged: 'm'"):
        ResourceStore(path)

    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    with pytest.raises(DatabaseBroken, match="none of packager"):
        ResourceStore(other)
