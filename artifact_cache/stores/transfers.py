"""Unfinished transfers, kept in a directory of this machine for whoever goes on with them.

<digest>.part          the first bytes of a download, locked while it runs
<digest>.part.json     the ETag they belong to
<digest>.upload.json   an upload's id and finished parts, locked while it runs
"""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifact_cache.strict_json import parse_object

FORGET_S = 3 * 86400  # an unfinished transfer that nobody took up
LONGEST_STATE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OwnedFile:
    """A file of `partial/` that no other process has."""

    path: Path
    file: io.FileIO

    def read(self) -> dict[str, Any]:
        """Read what an upload left behind; anything odd counts as nothing."""
        try:
            state = parse_object(os.pread(self.file.fileno(), LONGEST_STATE, 0) or b"{}")
            fine = isinstance(state["parts"], dict) and type(state["part_bytes"]) is int
            return state if fine and isinstance(state["id"], str) else {}
        except (OSError, ValueError, LookupError, TypeError):
            return {}

    def write(self, state: dict[str, Any]) -> None:
        """Store an upload's state. A full disk costs the resume, not the upload."""
        data = json.dumps(state).encode()
        with suppress(OSError):
            os.pwrite(self.file.fileno(), data, 0)
            os.ftruncate(self.file.fileno(), len(data))

    def forget(self) -> None:
        """Remove it while it is ours."""
        with suppress(OSError):
            self.path.unlink()


class Transfers:
    """The directory of unfinished transfers; None where none are kept."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory

    @contextmanager
    def owned(self, name: str) -> Iterator[OwnedFile | None]:
        """Own a file of `partial/` until the end; None when there is none to be had."""
        owned = None
        with suppress(OSError):
            owned = self._own(name)
        try:
            yield owned
        finally:
            if owned is not None:
                owned.file.close()

    def _own(self, name: str) -> OwnedFile | None:
        if self.directory is None:
            return None
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.directory / name
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = io.FileIO(os.open(path, flags, 0o600), "r+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                    return OwnedFile(path, file)
            except FileNotFoundError:  # finished and moved away by the one before us
                pass
            except OSError:
                file.close()
                return None
            file.close()

    def forget_old(self, now_s: float, abort: Callable[[dict[str, Any]], None]) -> None:
        """Remove unfinished transfers that nobody took up for days; `abort` ends an upload."""
        if self.directory is None or not self.directory.is_dir():
            return
        for path in self.directory.iterdir():
            with suppress(OSError):
                if path.lstat().st_mtime > now_s - FORGET_S:
                    continue
                if path.name.endswith(".part.json"):
                    if not path.with_suffix("").exists():
                        path.unlink()
                    continue
                with self.owned(path.name) as owned:
                    if owned is None:
                        continue
                    if path.suffix == ".json" and (state := owned.read()):
                        abort(state)
                    owned.forget()
                    etag_path(path).unlink(missing_ok=True)


def etag_path(path: Path) -> Path:
    """Return where the ETag is kept that the bytes of an unfinished download belong to."""
    return path.with_name(f"{path.name}.json")
