"""The tree of a tar that passes, for a file system over it.

What a container engine would unpack is what the tree holds.  Everything that a file system could
not show in the same way (sparse files, unknown types, names that lead out of the layer) is
refused, and so is a tar that two readers would read differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from packager.core.image import Blob, Inline
from packager.images.erofs.entries import TreeBuilder
from packager.images.erofs.nodes import LayerNotMountable, LayerTree
from packager.images.rootfs.tar_reader import TarReader

__all__ = ["LayerNotMountable", "TarScanner", "scan_blob"]


def scan_blob(blob: Blob) -> LayerTree:
    """Return the tree of a layer of our own, whose headers are inline: reads no file."""
    scanner = TarScanner()
    for segment in blob.segments:
        if isinstance(segment, Inline):
            scanner.feed(segment.data)
        else:
            scanner.skip(segment.length)
    return scanner.finish()


class TarScanner:
    """Takes an uncompressed tar in order, in pieces of any size; keeps headers only.

    Raises `LayerNotMountable` as soon as something is wrong.
    """

    def __init__(self) -> None:
        self._tree = TreeBuilder()
        self._tar = TarReader(self._tree)

    def feed(self, data: bytes | memoryview) -> None:
        """Read the next bytes."""
        with _not_mountable():
            self._tar.feed(data)

    @property
    def skippable(self) -> int:
        """Bytes of content that come next: `skip` may pass over them."""
        return self._tar.skippable

    def skip(self, length: int) -> None:
        """Pass over bytes of content that are not at hand."""
        with _not_mountable():
            self._tar.skip(length)

    def finish(self) -> LayerTree:
        """Return the tree; raises where the tar ended within an entry."""
        with _not_mountable():
            return self._tree.build(self._tar.finish())


@contextmanager
def _not_mountable() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise LayerNotMountable(str(error)) from error
