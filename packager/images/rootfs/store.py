"""Listings of layers that were read, on disk: one small file for each, by the layer's digest.

What is in it was read from a layer whose digest was compared, or from an index that the image's
manifest names by digest.  Of a plain tar on this machine, whose headers alone were read, the name
says also which file it was and when it was last written.  A listing that is damaged, or of another
format, is as good as none; one that cannot be written is left out.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from packager.core.errors import OutputFailed
from packager.core.files.atomic import read_regular, write_atomically
from packager.core.units import MIB
from packager.images.rootfs.listing import LISTING_FORMAT

MAX_BYTES = 256 * MIB  # of all files; those that were not used for longest go
_MAX_FILE = 64 * MIB


class ListingStore:
    """A directory of listings."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / f"v{LISTING_FORMAT}"

    def get(self, name: str) -> bytes | None:
        """Return the listing of a name as it was put; None where there is none."""
        path = self._path(name)
        try:
            document = read_regular(path, _MAX_FILE)
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)
        return document

    def put(self, name: str, document: bytes) -> None:
        """Keep a listing."""
        if len(document) > _MAX_FILE:
            return
        with suppress(OSError, OutputFailed):
            self._root.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(name), document)
            self._shrink()

    def _path(self, name: str) -> Path:
        return self._root / name.removeprefix("sha256:")

    def _shrink(self) -> None:
        """Remove what was not used for longest, beyond the bound."""
        found = sorted(
            (
                (one.stat().st_mtime_ns, one.stat().st_size, one.path)
                for one in os.scandir(self._root)
            ),
            reverse=True,
        )
        total = 0
        for _, size, path in found:
            total += size
            if total > MAX_BYTES:
                with suppress(OSError):
                    Path(path).unlink()
