"""Listings of layers that were read, on disk: one small file for each, by the layer's digest.

What is in it was read from a layer whose digest was compared, or from an index that the image's
manifest names by digest.  A file that is damaged, or of another format, is as good as none; one
that cannot be written is left out.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from packager.core.units import MIB
from packager.errors import OutputFailed
from packager.files.atomic import read_regular, write_atomically
from packager.images.rootfs.listing import LISTING_FORMAT, Entry, read_listing, write_listing

MAX_BYTES = 256 * MIB  # of all files; those that were not used for longest go
_MAX_FILE = 64 * MIB


class ListingStore:
    """A directory of listings."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / f"v{LISTING_FORMAT}"

    def get(self, digest: str) -> list[Entry] | None:
        """Return the entries of a layer; None where they are not known."""
        path = self._path(digest)
        try:
            document = read_regular(path, _MAX_FILE)
            entries = read_listing(digest, document)
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            return None  # not there, cut off, or not what was written
        with suppress(OSError):
            os.utime(path)
        return entries

    def put(self, digest: str, entries: list[Entry]) -> None:
        """Keep the entries of a layer."""
        document = write_listing(digest, entries)
        if len(document) > _MAX_FILE:
            return
        with suppress(OSError, OutputFailed):
            self._root.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(digest), document)
            self._shrink()

    def _path(self, digest: str) -> Path:
        return self._root / digest.removeprefix("sha256:")

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
