"""Lines that stay when a run is interrupted, with the standard library alone.

A line counts when it is whole: it begins with the digest of the rest.  What follows
one that does not count is written again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """What one job has written so far; a file of another job is begun anew."""

    def __init__(self, place: Path, job: str) -> None:
        self._place = place
        self.lines: list[Any] = []
        found = list(_read(place))
        if found and found[0][0] == job:
            self.lines = [value for value, _ in found[1:]]
            os.truncate(place, found[-1][1])
        else:
            place.unlink(missing_ok=True)
            self._append(job)

    def add(self, value: Any) -> None:
        """Write a line; it is on the disk when this returns."""
        self._append(value)
        self.lines.append(value)

    def _append(self, value: Any) -> None:
        with self._place.open("ab") as file:
            file.write(_line(value))
            file.flush()
            os.fsync(file.fileno())


def _read(place: Path) -> Iterator[tuple[Any, int]]:
    """Give the values of whole lines, and where each line ends."""
    if not place.is_file():
        return
    end = 0
    with place.open("rb") as file:
        for line in file:
            digest, _, data = line.partition(b" ")
            if not line.endswith(b"\n") or digest != _digest(data):
                return
            end += len(line)
            yield json.loads(data), end


def _line(value: Any) -> bytes:
    data = json.dumps(value).encode() + b"\n"
    return _digest(data) + b" " + data


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest()[:32].encode()
