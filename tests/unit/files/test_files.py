"""Files that appear whole or not at all, and nothing beside them."""

from __future__ import annotations

import fcntl
from pathlib import Path

from packager.files.atomic import write_atomically


def test_what_a_killed_writer_left_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / ".record.json.4711.tmp").write_bytes(b"half")
    (tmp_path / ".record.json.4712.tmp").write_bytes(b"")

    write_atomically(tmp_path / "record.json", b"whole")

    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_what_a_living_writer_writes_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / ".record.json.4711.tmp"
    with other.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_atomically(tmp_path / "record.json", b"whole")

        assert other.exists()


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".other.json.1.tmp").write_bytes(b"mine")

    write_atomically(tmp_path / "record[1].json", b"whole")

    assert (tmp_path / ".other.json.1.tmp").read_bytes() == b"mine"
