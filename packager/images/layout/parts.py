"""Blobs that were cut into files of a limited size: `HEX.part-000`, `HEX.part-001`, …"""

from __future__ import annotations

from pathlib import Path

from packager.core.image import Blob, FileRange


def part_path(path: Path, number: int) -> Path:
    """Return the file of a part; numbers begin at 0."""
    return path.with_name(f"{path.name}.part-{number:03}")


def parts_of(path: Path) -> list[Path]:
    """Return the files of a blob: itself, its parts in their order, or none."""
    if path.is_file():
        return [path]
    found: list[Path] = []
    while (part := part_path(path, len(found))).is_file():
        found.append(part)
    return found


def blob_at(path: Path) -> Blob | None:
    """Return the bytes of a blob, whole or in parts; None where it is not there."""
    segments = tuple(
        FileRange(path=str(part), offset=0, length=part.stat().st_size) for part in parts_of(path)
    )
    return Blob(segments) if segments else None
