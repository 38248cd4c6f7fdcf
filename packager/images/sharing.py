"""Bytes that two files hold and the disk holds once.

Shared extents (reflinks) are copies without copied blocks: a file that is written to later gets
blocks of its own.  XFS and btrfs have them, ext4 has not.  Hard links are one file with two names,
so they are for immutable content: blobs named after their digest.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path

from packager.core.image import Blob, FileRange

BLOCK = 4096  # what file systems that share extents share
_FICLONERANGE = 0x4020940D
_ARGUMENTS = struct.Struct("=qQQQ")
_CANNOT = {
    errno.EBADF,
    errno.EINVAL,
    errno.ENOSYS,
    errno.ENOTTY,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.ETXTBSY,
    errno.EXDEV,
}


def share_extents(
    source: int, target: int, *, source_offset: int, length: int, target_offset: int
) -> int:
    """Share extents of `source` with `target` without copying.

    Return the bytes shared, in whole blocks.

    0 where the file system, or the place of the bytes, does not allow it.
    """
    whole = length - length % BLOCK
    if not whole or source_offset % BLOCK or target_offset % BLOCK:
        return 0
    arguments = _ARGUMENTS.pack(source, source_offset, whole, target_offset)
    try:
        fcntl.ioctl(target, _FICLONERANGE, arguments)
    except OSError as error:
        if error.errno in _CANNOT:
            return 0
        raise
    return whole


def linkable(blob: Blob, digest: str) -> Path | None:
    """The file that is this blob, where a second name for it is safe.

    That is a blob of a layout, named after its digest, which belongs to us and
    which nobody else may write to.  A file of the user's own is none.
    """
    match blob.segments:
        case (FileRange(path=path, offset=0, length=length),):
            place = Path(path)
        case _:
            return None
    root = place.parent.parent.parent
    is_blob = f"sha256:{place.name}" == digest and place.parent == root / "blobs" / "sha256"
    try:
        if is_blob and (root / "oci-layout").is_file() and place.stat().st_size == length:
            return place if may_link(place) else None
    except OSError:
        pass
    return None


def may_link(place: Path) -> bool:
    """Return whether a file is regular, owned by us and not writable by others."""
    status = place.lstat()
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not others_write
