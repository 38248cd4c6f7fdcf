"""System calls of Linux for mounts and loop devices that Python does not have."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from functools import cache
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_CLONE_NEWNS = 0x20000
_UMOUNT_NOFOLLOW = 8
_OPEN_TREE, _MOVE_MOUNT = 428, 429  # on every architecture but Alpha
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_EMPTY_SOURCE, _MOVE_EMPTY_TARGET = 0x04, 0x40
_AT_FDCWD = -100

_LOOP_CONFIGURE, _LOOP_CTL_GET_FREE, _LOOP_MAJOR = 0x4C0A, 0x4C82, 7
_LO_READ_ONLY, _LO_AUTOCLEAR = 1, 4
# fd, block size; of `struct loop_info64` the flags alone: device … flags, names, key, init
_LOOP_CONFIG = struct.Struct("=II52xI64x64x32x16x64x")
_ATTEMPTS = 64


def mount(source: bytes, target: bytes, kind: bytes, flags: int, options: bytes) -> None:
    """Mount a file system; raise `OSError`."""
    result = _libc().mount(source, target, kind, ctypes.c_ulong(flags), options)
    if result < 0:
        raise _failure(os.fsdecode(target))


def unmount(directory: str) -> None:
    """Unmount what is at a directory; raise `OSError`, as where it is in use."""
    if _libc().umount2(os.fsencode(directory), _UMOUNT_NOFOLLOW) < 0:
        raise _failure(directory)


def enter_private_namespace() -> None:
    """Move the calling thread to mounts of its own, which end with it."""
    if _libc().unshare(_CLONE_NEWNS) < 0:
        raise _failure("a namespace of mounts")
    # Else what is mounted here would appear outside.
    mount(b"none", b"/", b"", _MS_REC | _MS_PRIVATE, b"")


def detach_copy(directory: str) -> int:
    """Return a descriptor of a copy of the mount at a directory, which is nowhere mounted."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC
    return _call(_OPEN_TREE, _AT_FDCWD, os.fsencode(directory), flags, what=directory)


def attach(mount_descriptor: int, directory: int) -> None:
    """Attach a detached mount to a directory that is open."""
    flags = _MOVE_EMPTY_SOURCE | _MOVE_EMPTY_TARGET
    _call(_MOVE_MOUNT, mount_descriptor, b"", directory, b"", flags, what="mount")


def open_loop(file: int) -> int:
    """Return a read-only loop device of an open file; it is removed with its last user."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            device = _open_device(fcntl.ioctl(control, _LOOP_CTL_GET_FREE))
            try:
                flags = _LO_READ_ONLY | _LO_AUTOCLEAR
                fcntl.ioctl(device, _LOOP_CONFIGURE, _LOOP_CONFIG.pack(file, 0, flags))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # another process took the number
                    raise
            except BaseException:
                os.close(device)
                raise
            else:
                return device
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), "/dev/loop-control")
    finally:
        os.close(control)


def _open_device(number: int) -> int:
    """Open a loop device; containers have no nodes of devices that were made after them."""
    path = Path(f"/dev/loop{number}")
    if not path.exists():
        os.mknod(path, 0o060660, os.makedev(_LOOP_MAJOR, number))
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _call(number: int, *arguments: int | bytes, what: str) -> int:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(_libc().syscall(ctypes.c_long(number), *words))
    if result < 0:
        raise _failure(what)
    return result


def _failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
