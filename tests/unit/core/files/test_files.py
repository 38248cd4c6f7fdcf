"""Files that appear whole or not at all, and nothing beside them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from packager.core.files.atomic import write_atomically


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


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_to_and_stays(tmp_path: Path, linked: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    place = tmp_path / "link" if linked else pipe
    with pytest.raises(OSError, match="No such device"):
        write_atomically(place, b"nobody reads")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_atomically(place, b"record")

    assert os.read(reader, 100) == b"record"
    os.close(reader)
    assert pipe.is_fifo()
    assert place.is_symlink() is linked


def test_a_stream_of_the_process_is_no_file_s_place(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as stream:
        write_atomically(Path(f"/proc/self/fd/{stream.fileno()}"), b"record")

    assert (tmp_path / "out").read_bytes() == b"record"
