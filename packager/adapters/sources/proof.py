"""Proves that a downloaded file is the one the hub lists."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from packager.adapters.sources.rules import Entry
from packager.errors import ModelRefused


class WrongBytes(ModelRefused):
    """A file differs from what the hub says it is."""

    def __init__(self, path: str, what: str, place: Path) -> None:
        super().__init__(
            f"{path!r} is not what the hub lists: {what}",
            hint=f"delete {str(place)!r} and run again",
        )


def check_bytes(path: str, place: Path, entry: Entry) -> None:
    """Compare the size, and the digest where the hub gives one. Reads the whole file."""
    with place.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size != entry.size:
            raise WrongBytes(path, f"{size} bytes instead of {entry.size}", place)
        if entry.sha256:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != entry.sha256:
                raise WrongBytes(path, f"sha256 {found} instead of {entry.sha256}", place)
        elif entry.git_sha1:
            blob = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
            while chunk := stream.read(1 << 20):
                blob.update(chunk)
            if blob.hexdigest() != entry.git_sha1:
                raise WrongBytes(
                    path, f"git object {blob.hexdigest()} instead of {entry.git_sha1}", place
                )
