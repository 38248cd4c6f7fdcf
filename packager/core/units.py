"""Sizes for people. Model sizes are decimal (GB), device memory is binary (GiB)."""

from __future__ import annotations

KIB = 1024
MIB = 1024**2
GIB = 1024**3


def gib(size_bytes: float) -> str:
    """Write a memory size: `22.4 GiB`."""
    return (
        f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB / 10 else f"{size_bytes / MIB:.1f} MiB"
    )


def decimal(size_bytes: float) -> str:
    """Write a file or transfer size: `141.1 GB`, `8.4 MB`, `512 B`."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{int(size_bytes)} B"
