"""Buffers of parts on their way to a bucket: few, and never all of them half filled."""

from __future__ import annotations

from io import SEEK_END, SEEK_SET

from packager.images.tee import WORKERS
from packager.images.trees.objects import _BUFFERS, _READ_BYTES, PART_BYTES, _ViewFile


def test_layers_that_are_read_at_once_leave_a_buffer_for_what_is_on_its_way() -> None:
    assert WORKERS < _BUFFERS
    assert _BUFFERS * PART_BYTES <= 32 * 2**20  # of the 120 MB that a build may take


def test_a_part_is_read_in_small_pieces_to_its_end_and_again() -> None:
    data = bytes(range(256)) * 1024
    part = _ViewFile(memoryview(data))

    pieces = list(iter(lambda: part.read(2**20), b""))

    assert b"".join(pieces) == data
    assert max(map(len, pieces)) == _READ_BYTES
    assert part.tell() == part.seek(0, SEEK_END) == len(data)
    assert part.seek(0, SEEK_SET) == 0
    assert part.read() == data
    assert part.read(10) == b""
