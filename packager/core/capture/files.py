"""Files of captured rows: one writer of each, private to their owner, limited in all.

    ROOT/NAME/yyyy/mm/dd/hh/UUID.jsonl      the layout of SageMaker's Data Capture

A file that grows ends with `.part` and is locked; it gets its name when it is complete, and is
then never touched again.  What a killed writer left is completed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path

_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.jsonl(\.part)?")
_PART = ".part"
_LOOK_S = 30.0  # between two looks at what a root holds


class Full(Exception):
    """A limit of bytes, or of the disk, is reached."""


@dataclass(frozen=True)
class CaptureLimits:
    """Limits after which a file is complete, and after which writing ends."""

    file_bytes: int = 64 * 1024 * 1024
    file_s: float = 600.0
    root_bytes: int = 1024 * 1024 * 1024  # of all files below one root
    disk_share: float = 0.75  # of the disk that is in use, by whomever
    age_s: float = 14 * 86400.0  # files that are older are removed


@dataclass
class _Open:
    file: RawIOBase
    path: Path  # as it is called once it is complete
    hour: str
    opened_s: float
    size: int = 0


@dataclass
class _Root:
    size: int = 0  # bytes of all files
    looked_s: float = -_LOOK_S
    is_full: bool = False
    tops: set[str] = field(default_factory=set)  # first folders of names: others are not ours
    open: dict[str, _Open] = field(default_factory=dict)  # by name


class CaptureFiles:
    """Writes rows below roots; used by one thread."""

    def __init__(
        self, limits: CaptureLimits | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._limits = limits or CaptureLimits()
        self._now = now
        self._roots: dict[Path, _Root] = {}

    def write(self, root: Path, name: str, line: bytes) -> None:
        """Append a line to the file of a name; raises `Full` and `OSError`."""
        now = self._now()
        held = self._look(root, name.partition("/")[0], now)
        if held.is_full or held.size + len(line) > self._limits.root_bytes:
            held.is_full = True
            raise Full(f"{root} has no room for more")
        hour = time.strftime("%Y/%m/%d/%H", time.gmtime(now))
        opened = held.open.get(name)
        if opened is not None and opened.hour != hour:
            self._complete(held, name)
            opened = None
        if opened is None:
            opened = held.open[name] = _open(root / name, hour, now)
        try:
            opened.file.write(line)
            opened.file.flush()
        except OSError:
            with suppress(OSError):  # no half of a row stays behind
                opened.file.truncate(opened.size)
                opened.file.seek(opened.size)
            raise
        opened.size += len(line)
        held.size += len(line)
        if opened.size >= self._limits.file_bytes:
            self._complete(held, name)

    def rotate(self) -> None:
        """Complete files that are open for long enough."""
        now = self._now()
        for held in self._roots.values():
            for name, opened in list(held.open.items()):
                if now - opened.opened_s >= self._limits.file_s:
                    self._complete(held, name)

    def complete(self, root: Path, names: str) -> None:
        """Complete the files of all names that begin so."""
        held = self._roots.get(root)
        for name in list(held.open) if held else ():
            if name.startswith(names):
                assert held is not None
                self._complete(held, name)

    def close(self) -> None:
        """Complete all files."""
        for held in self._roots.values():
            for name in list(held.open):
                self._complete(held, name)

    def full(self) -> frozenset[Path]:
        """Return the roots that take no more."""
        return frozenset(root for root, held in self._roots.items() if held.is_full)

    def _look(self, root: Path, top: str, now: float) -> _Root:
        """Return what a root holds, after old files were removed and left ones completed."""
        held = self._roots.setdefault(root, _Root())
        if now - held.looked_s < _LOOK_S and top in held.tops:
            return held
        held.tops.add(top)
        held.looked_s, held.size = now, 0
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        own = {opened.path for opened in held.open.values()}
        for path, found in (one for name in held.tops for one in _files(root / name)):
            if path.suffix == _PART and path.with_suffix("") not in own:
                adopt(path)
            elif path.suffix != _PART and now - found.st_mtime > self._limits.age_s:
                with suppress(OSError):
                    path.unlink()
                    continue
            held.size += found.st_size
        disk = shutil.disk_usage(root)
        held.is_full = (
            disk.used > disk.total * self._limits.disk_share or held.size >= self._limits.root_bytes
        )
        return held

    def _complete(self, held: _Root, name: str) -> None:
        opened = held.open.pop(name)
        with suppress(OSError):
            opened.path.with_name(opened.path.name + _PART).rename(opened.path)
        with suppress(OSError):
            opened.file.close()


def complete_files(root: Path) -> list[Path]:
    """Return the complete files below a root, the oldest first."""
    found = [(stat.st_mtime, path) for path, stat in _files(root) if path.suffix != _PART]
    return [path for _, path in sorted(found)]


def adopt(path: Path) -> None:
    """Complete a file that no writer has any more, without the half of a row at its end."""
    with suppress(OSError), path.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while it is written
        data = file.read()
        end = data.rfind(b"\n") + 1
        if end:
            file.truncate(end)
            path.rename(path.with_suffix(""))
        else:
            path.unlink()


def _open(folder: Path, hour: str, now: float) -> _Open:
    folder = folder / hour
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    while True:
        path = folder / f"{uuid.uuid4()}.jsonl"
        file = os.fdopen(os.open(path.with_name(path.name + _PART), flags, 0o600), "wb", 0)
        with suppress(BlockingIOError):  # another writer takes it for one that was left
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_nlink:
                return _Open(file, path, hour, now)
        file.close()


def _files(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield files that captures have made; others below a root are the user's."""
    for folder, _, names in os.walk(root):
        for name in names:
            if _NAME.fullmatch(name):
                path = Path(folder) / name
                with suppress(OSError):
                    yield path, path.lstat()
