"""A pipe in the place of a file is read, and not waited for without end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from packager.core.files.pipes import open_waiting


def test_a_pipe_that_is_written_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 100_000,))
    writer.start()

    with open_waiting(pipe) as file:
        assert file.read() == b"x" * 100_000
    writer.join()


@pytest.mark.parametrize("is_open", [False, True])
def test_a_pipe_that_nobody_closes_is_given_up(is_open: bool, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    kept = os.open(pipe, os.O_RDWR) if is_open else -1

    with open_waiting(pipe, 0.05) as file, pytest.raises(TimeoutError, match="nobody closed"):
        file.read()
    if is_open:
        os.close(kept)
