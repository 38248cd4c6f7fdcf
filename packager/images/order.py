"""The order in which layers go out, and where their bytes are."""

from __future__ import annotations

from collections.abc import Sequence

from packager.core.image import Blob, FileRange, Layer, RemoteRange
from packager.core.remote.addresses import is_in_order


def sending_order(layers: Sequence[Layer]) -> list[int]:
    """Return the positions of the layers, the largest first."""
    return sorted(range(len(layers)), key=lambda position: -layers[position].size)


def chains(layers: Sequence[Layer], order: Sequence[int]) -> list[list[int]]:
    """Return positions grouped by what must go one after another."""
    by_file: dict[str, list[int]] = {}  # by remote file
    found: dict[int, list[int]] = {}
    for position, layer in enumerate(layers):
        files = [
            segment.url
            for segment in layer.blob.ranges
            if isinstance(segment, RemoteRange) and is_in_order(segment)
        ]
        chain = next((by_file[file] for file in files if file in by_file), [])
        chain.append(position)
        by_file.update(dict.fromkeys(files, chain))
        found[position] = chain
    once = {found[position][0]: found[position] for position in order}
    return list(once.values())


def is_cached(blob: Blob) -> bool:
    """Check whether a blob has files out of the artifact cache."""
    return any(isinstance(part, FileRange) and part.sha256 for part in blob.ranges)


def is_local(blob: Blob) -> bool:
    """Check whether all of a blob is on this machine."""
    return not any(isinstance(segment, RemoteRange) for segment in blob.ranges)
