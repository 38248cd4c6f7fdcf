"""The kernel's table of mounts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedAt:
    """A line of the table."""

    directory: str
    kind: str
    source: str
    device: tuple[int, int]


def read_mounts(table: Path = Path("/proc/self/mountinfo")) -> tuple[MountedAt, ...]:
    """Return what this process sees mounted; of several mounts at a directory the last counts."""
    return tuple(_parse(table.read_text("utf-8", "surrogateescape").splitlines()))


def _parse(lines: list[str]) -> Iterator[MountedAt]:
    for line in lines:
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        kind, source = fields[fields.index("-", 6) + 1 :][:2]
        major, _, minor = fields[2].partition(":")
        yield MountedAt(
            directory=_unescaped(fields[4]),
            kind=kind,
            source=_unescaped(source),
            device=(int(major), int(minor)),
        )


def _unescaped(text: str) -> str:
    """Undo the kernel's escapes of spaces and the like, which stand for bytes."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
