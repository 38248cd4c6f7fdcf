"""EROFS file systems, mounted by the kernel and compared with the tar that they show."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from packager.images.erofs.metadata import make_blob, make_index
from packager.images.erofs.scan import TarScanner
from tests.conftest import need, unavailable
from tests.support.known import known

READ_ONLY = 1
Seen = dict[str, tuple[object, ...]]


def need_mounts() -> None:
    """Skip where this process may not mount EROFS file systems."""
    need("losetup")
    if os.geteuid() != 0:
        unavailable("root, to mount file systems,")
    if modprobe := shutil.which("modprobe"):
        subprocess.run([modprobe, "erofs"], capture_output=True)
    if "\terofs\n" not in Path("/proc/filesystems").read_text():
        unavailable("EROFS in this kernel")


def mounts_files() -> bool:
    """Whether this kernel mounts a file without a loop device: Linux 6.12 and newer."""
    major, minor = platform.release().split(".")[:2]
    return (int(major), int(minor)) >= (6, 12)


def forms_of(tar: Path, place: Path) -> tuple[Path, Path]:
    """Write the tar's blob and index into `place`."""
    data = tar.read_bytes()
    scanner = TarScanner()
    scanner.feed(data)
    tree = scanner.finish()
    made = make_blob(tree)
    blob, index = place / "blob.erofs", place / "index.erofs"
    blob.write_bytes(made.head + data + made.tail)
    index.write_bytes(make_index(tree, "sha256:tar"))
    return blob, index


@contextmanager
def loop(path: Path) -> Iterator[str]:
    """Give a loop device that reads the file."""
    command = ["losetup", "--find", "--show", "--read-only", str(path)]
    device = subprocess.check_output(command, text=True).strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@contextmanager
def mounted(
    source: Path, place: Path, *, device: Path | None = None, loops: bool = False
) -> Iterator[Path]:
    """Mount a file system with mount(2), by loop devices or straight from the files."""
    place.mkdir(exist_ok=True)
    with ExitStack() as stack:
        named = str(source)
        other = str(device) if device else ""
        if loops:
            named = stack.enter_context(loop(source))
            other = stack.enter_context(loop(device)) if device else ""
        mount(named, place, "erofs", f"device={other}" if other else "")
        stack.callback(unmount, place)
        yield place


@contextmanager
def overlay(place: Path, *lower: Path) -> Iterator[Path]:
    """Mount layers over one another, the upper first."""
    place.mkdir(exist_ok=True)
    mount("overlay", place, "overlay", "lowerdir=" + ":".join(map(str, lower)))
    try:
        yield place
    finally:
        unmount(place)


def mount(source: str, place: Path, kind: str, options: str) -> None:
    words = (os.fsencode(source), os.fsencode(place), kind.encode())
    if _libc().mount(*words, READ_ONLY, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount: {os.strerror(number)}", source)


def unmount(place: Path) -> None:
    if _libc().umount2(os.fsencode(place), 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"umount: {os.strerror(number)}", str(place))


def is_clean(blob: Path) -> bool:
    """Whether fsck.erofs, which shares no code with us, finds the blob in order."""
    need("fsck.erofs")
    return subprocess.run(["fsck.erofs", str(blob)], capture_output=True).returncode == 0


def in_tar(tar: Path) -> Seen:
    """What `tarfile` says of each entry, by its path; the last of a name counts."""
    found: Seen = {}
    with tarfile.open(tar, mode="r:", errorlevel=2) as archive:
        for member in archive:
            path = member.name.removeprefix("./").rstrip("/")
            common = (member.mode & 0o7777, member.uid, member.gid, int(member.mtime))
            if path == ".":
                continue
            if member.islnk():
                found[path] = found[member.linkname]
            elif member.issym():
                found[path] = ("symlink", *common, member.linkname)
            elif member.isdir():
                found[path] = ("directory", *common)
            elif member.ischr() or member.isblk() or member.isfifo():
                number = os.makedev(member.devmajor, member.devminor) if not member.isfifo() else 0
                found[path] = (member.type, *common, number)
            else:
                content = known(archive.extractfile(member))
                found[path] = ("file", *common, member.size, _sha256(content))
    return found


def in_mount(root: Path) -> Seen:
    """What the kernel shows, in the same words."""
    found: Seen = {}
    kinds = {stat.S_IFCHR: tarfile.CHRTYPE, stat.S_IFBLK: tarfile.BLKTYPE}
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory, name)
            status = path.lstat()
            common = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
            common = (*common, int(status.st_mtime))
            key = str(path.relative_to(root))
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFLNK:
                found[key] = ("symlink", *common, str(path.readlink()))
            elif kind == stat.S_IFDIR:
                found[key] = ("directory", *common)
            elif kind == stat.S_IFREG:
                with path.open("rb") as content:
                    found[key] = ("file", *common, status.st_size, _sha256(content))
            else:
                found[key] = (kinds.get(kind, tarfile.FIFOTYPE), *common, status.st_rdev)
    return found


def _sha256(content: IO[bytes]) -> str:
    hashed = hashlib.sha256()
    while chunk := content.read(1 << 20):
        hashed.update(chunk)
    return hashed.hexdigest()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
