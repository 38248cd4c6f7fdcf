"""Stamps: a blob's metadata when it was last hashed, so that it need not be hashed again.

A stamp has size, mtime_ns and ino, and `verified_at` in seconds since the epoch.
The ctime is not part of it: every link that is made or removed changes that.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from pathlib import Path

from artifact_cache.files import bounded_bytes
from artifact_cache.strict_json import NotStrict, parse_object

MAX_STAMP_BYTES = 4096

# A file written twice within one tick of the clock looks unchanged (git: "racily clean").
STAMP_AFTER_NS = 2_000_000_000


def fits_stamp(path: Path, stamp: Path) -> bool:
    """Report whether a file looks as it did when it was hashed; False without a stamp."""
    try:
        stamped = parse_object(bounded_bytes(stamp, MAX_STAMP_BYTES))
    except (OSError, NotStrict):
        return False
    return _looks(path).items() <= stamped.items()


def write_stamp(stamp: Path, path: Path, blob: Path) -> None:
    """Write that `path` was hashed, unless it was written just now or is not `blob` any more."""
    looks = _looks(path)
    now_ns = time.time_ns()
    if now_ns - looks["mtime_ns"] < STAMP_AFTER_NS or looks["ino"] != inode_of(blob):
        return
    new = stamp.with_name(f"{stamp.name}.{secrets.token_hex(8)}")
    with suppress(OSError):
        stamp.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.write_text(json.dumps({**looks, "verified_at": now_ns // 1_000_000_000}))
        new.replace(stamp)


def write_first_stamp(stamp: Path, blob: Path, built_at: int) -> None:
    """Stamp a blob that is the file its publisher hashed, so that the first hit is cheap.

    It was hashed after the build had ended.  If its last write lies well
    before that end, nothing has written to it since it was hashed.
    """
    if blob.lstat().st_mtime_ns < built_at * 1_000_000_000 - STAMP_AFTER_NS:
        write_stamp(stamp, blob, blob)


def inode_of(path: Path) -> int | None:
    """Return the inode that a name stands for; None without one."""
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _looks(path: Path) -> dict[str, int]:
    status = path.lstat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "ino": status.st_ino}
