"""Proves that a downloaded file is the one the hub lists."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from packager.core.errors import ModelRefused
from packager.core.files.opening import SourceChanged, is_same_file
from packager.models.rules import ListedModelFile
from packager.models.walk import Found


class WrongBytes(ModelRefused):
    """A file differs from what the hub says it is."""

    def __init__(self, path: str, what: str, place: Path) -> None:
        super().__init__(
            f"{path!r} is not what the hub lists: {what}",
            hint=f"delete {str(place)!r} and run again",
        )


def check_bytes(found: Found, entry: ListedModelFile) -> None:
    """Compare the size, and the digest where the hub gives one. Reads the whole file."""
    path, place = found.path, found.real
    with found.open() as stream:
        if found.size != entry.size:
            raise WrongBytes(path, f"{found.size} bytes instead of {entry.size}", place)
        if entry.sha256:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            if digest != entry.sha256:
                raise WrongBytes(path, f"sha256 {digest} instead of {entry.sha256}", place)
        elif entry.git_sha1:
            blob = hashlib.sha1(b"blob %d\0" % found.size, usedforsecurity=False)
            while chunk := stream.read(1 << 20):
                blob.update(chunk)
            if blob.hexdigest() != entry.git_sha1:
                raise WrongBytes(
                    path, f"git object {blob.hexdigest()} instead of {entry.git_sha1}", place
                )
        if not is_same_file(os.fstat(stream.fileno()), found.identity):
            raise SourceChanged(str(place))
