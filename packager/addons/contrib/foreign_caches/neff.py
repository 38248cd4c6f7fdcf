"""The header of a NEFF file: what the Neuron runtime looks at before it loads one.

    0   u64 package version   1: plain tar, 2: gzipped tar
    8   u64 header size       1024
    16  u64 data size         what follows the header
    24  u64 format version    0 to 2; later ones are refused by today's runtime
    40  compiler's label, 128 bytes
    552 u32 physical NeuronCores that act as one; 0 where nobody said

The format has no magic number, so everything that can be wrong is looked at.
The archive inside is not unpacked here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 1024
_START = struct.Struct("<QQQQQ128s")
_LOGICAL_CORE = struct.Struct("<I")
_LOGICAL_CORE_AT = 552
_FORMATS = 2  # the newest that is known
_TAR_MAGIC_AT = 257


class BadNeff(ValueError):
    """Not a NEFF file, or one that was cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeffHeader:
    """Header of a NEFF file."""

    label: str  # of the compiler; for people
    logical_core_size: int | None


def read_neff_header(path: Path) -> NeffHeader:
    """Read and judge a header. Raises `BadNeff` and OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
        start = file.read(_TAR_MAGIC_AT + 5)
    if len(head) < HEADER_BYTES:
        raise BadNeff(f"has {size} bytes, less than a header")
    package, header_size, data_size, major, _, label = _START.unpack_from(head)
    if package not in (1, 2) or header_size != HEADER_BYTES or major > _FORMATS:
        raise BadNeff("has no NEFF header")
    if data_size != size - HEADER_BYTES:
        raise BadNeff(f"should have {HEADER_BYTES + data_size} bytes and has {size}")
    is_archive = start[:2] == b"\x1f\x8b" if package == 2 else start[_TAR_MAGIC_AT:] == b"ustar"
    if not is_archive:
        raise BadNeff("holds no archive")
    (cores,) = _LOGICAL_CORE.unpack_from(head, _LOGICAL_CORE_AT)
    if cores > 8:
        raise BadNeff(f"says that {cores} cores act as one")
    return NeffHeader(
        label=label.partition(b"\0")[0].decode("ascii", "replace"),
        logical_core_size=cores or None,
    )
