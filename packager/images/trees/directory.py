"""A tree in a directory: `dir:DIR`, which is replaced as a whole.

Files are gathered beside the directory, under the digests of their contents, and linked into
place when all are there; then the two directories change places at once.  A killed build leaves
what it gathered for the next one, and never anything in the directory.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packager.core.documents import NotStrict, shorten
from packager.core.errors import OutputFailed
from packager.core.files.atomic import (
    check_place,
    explain_disk_errors,
    read_regular,
    sync_directory,
    write_atomically,
)
from packager.core.image import Blob, FileRange, ModelTree, TreeFile
from packager.core.text import escape_text
from packager.core.tree_manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    TreeManifest,
    read_manifest,
)
from packager.core.units import decimal
from packager.images.digest_index import DigestIndex, fingerprint_of
from packager.images.layout.blobs import BlobFile
from packager.images.sharing import BLOCK

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_MARGIN = 4 * 1024 * 1024  # room for manifest and directory blocks


class TreeDirectory:
    """A directory that holds exactly one tree."""

    def __init__(self, root: Path, index: DigestIndex) -> None:
        self._root = Path(os.path.realpath(root))
        self._work = self._root.with_name(f".{self._root.name}.packager-tree")
        self._index = index
        self._lock: int | None = None
        self._before: TreeManifest | None = None
        self._old: dict[str, tuple[int, str]] = {}  # path → size, sha256 of the tree before
        self._kept: dict[str, str] = {}  # path → sha256 of files of that tree that stay
        self._proven: dict[str, bool] = {}
        self._tree: ModelTree | None = None

    @property
    def bytes_sent(self) -> int:
        return 0

    @property
    def name(self) -> str:
        return f"dir:{self._root}"

    def preflight(self) -> None:
        """Refuse a directory that is not a tree of ours, and one that cannot be written."""
        self._look()
        check_place(self._root)
        if os.path.ismount(self._root):
            raise OutputFailed(
                f"{str(self._root)!r} is a mount point, which cannot be replaced at once",
                hint=f"write to a directory in it: dir:{self._root}/model",
            )

    def prepare(self, tree: ModelTree) -> None:
        """Wait for other builds of the directory, look at what is there, check the space."""
        with explain_disk_errors(self._root):
            self._enter()
            self._look()
            self._tree = tree
            self._kept.clear()
            self._proven.clear()
            shutil.rmtree(self._work / "tree", ignore_errors=True)
            self._blobs.mkdir(exist_ok=True)
            for leftover in self._blobs.glob(".new-*"):
                leftover.unlink()
            there = sum(path.stat().st_size for path in self._blobs.iterdir())
            kept = sum(one.size for one in tree.files if self._is_like_before(one))
            needed = sum(one.size for one in tree.files) - there - kept
            free = shutil.disk_usage(self._work).free
        if needed + _MARGIN > free and not self._shares(tree):
            raise OutputFailed(
                f"{str(self._root)!r} needs {decimal(max(needed, 0))}, {decimal(free)} are free",
                hint="free some space, or write to a bucket, which needs none",
            )

    def has(self, file: TreeFile, sha256: str) -> bool:
        """Look at what was gathered, and at the tree before: its bytes must be what it says."""
        blob = self._blobs / sha256
        if blob.is_file() and blob.stat().st_size == file.size:
            return True
        if self._old.get(file.path) != (file.size, sha256):
            return False
        if file.path not in self._proven:
            self._proven[file.path] = self._is_unchanged(self._root / file.path, file.size, sha256)
        if self._proven[file.path]:
            self._kept[file.path] = sha256
        return self._proven[file.path]

    def may_have(self, file: TreeFile) -> bool:
        """Return whether the tree before has a file of this path and size."""
        return self._is_like_before(file)

    def open(self, file: TreeFile, sha256: str) -> BlobFile:  # noqa: ARG002
        """Open a file beside the directory; bytes are shared where the file system can."""
        return BlobFile(self._blobs, file.blob, lambda _: None)

    def publish(self, manifest: bytes) -> None:
        """Link the files to their places, and replace the tree before by the whole."""
        assert self._tree is not None
        with explain_disk_errors(self._root):
            if not self._is_the_same(manifest):
                self._gather(manifest)
                self._replace()
            self._remove_work()
        self._release()

    def keep_beside(self, name: str, data: bytes) -> None:
        """Write a document beside the directory, which holds the tree alone."""
        with explain_disk_errors(self._root):
            write_atomically(self._root.with_name(f"{self._root.name}.{name}"), data)

    def abandon(self) -> None:
        """Remove what was gathered. A build that is killed leaves it to the next one."""
        if self._lock is None:
            return
        self._remove_work()
        self._release()

    @property
    def _blobs(self) -> Path:
        return self._work / "blobs"

    def _enter(self) -> None:
        """Acquire the lock of the directory beside, which another build may have removed."""
        while self._lock is None:
            self._work.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._work.exists() and os.path.samestat(os.fstat(lock), self._work.stat()):
                self._lock = lock
            else:
                os.close(lock)

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _look(self) -> None:
        """Read the tree that is there; refuse a directory that holds anything else."""
        self._before, self._old = None, {}
        with explain_disk_errors(self._root):
            if not self._root.exists():
                return
            if not self._root.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if not any(self._root.iterdir()):
                return
            try:
                data = read_regular(self._root / MANIFEST, MAX_MANIFEST_BYTES)
                self._before = read_manifest(data)
            except FileNotFoundError:
                raise _not_a_tree(self._root, f"it has no {MANIFEST}") from None
            except NotStrict as error:
                raise _not_a_tree(self._root, f"its {MANIFEST} is damaged: {error}") from None
        self._old = {file.path: (file.size, file.sha256) for file in self._before.files}
        stranger = next((path for path in self._here() if path not in self._old), None)
        if stranger is not None:
            raise _not_a_tree(self._root, f"{shorten(escape_text(stranger))} is none of its files")

    def _here(self) -> Iterator[str]:
        """Yield the paths of all files but the manifest."""
        for directory, below, names in os.walk(self._root):
            links = [name for name in below if Path(directory, name).is_symlink()]
            for name in (*names, *links):
                path = str(Path(directory, name).relative_to(self._root))
                if path != MANIFEST:
                    yield path

    def _is_like_before(self, file: TreeFile) -> bool:
        before = self._old.get(file.path)
        return before is not None and before[0] == file.size and file.sha256 in ("", before[1])

    def _shares(self, tree: ModelTree) -> bool:
        """Return whether the largest file's extents can be shared: it then takes no space."""
        largest = max(tree.files, key=lambda one: one.size, default=None)
        if largest is None or largest.size < BLOCK:
            return False
        writer = self.open(largest, "")
        try:
            return writer.complete
        finally:
            writer.abort()

    def _is_unchanged(self, path: Path, size: int, sha256: str) -> bool:
        """Return whether a file of the tree before still is what its manifest says."""
        try:
            status = path.lstat()
            if path.is_symlink() or status.st_size != size:
                return False
            blob = Blob((FileRange(path=str(path), offset=0, length=size),))
            known = self._index.get(blob)
            if known is not None and known.proven:
                return known.digest == f"sha256:{sha256}"
            since_ns, before = self._index.now_ns(), fingerprint_of(blob)
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            self._index.put(blob, f"sha256:{found}", before, since_ns)
        except OSError:
            return False
        return found == sha256

    def _is_the_same(self, manifest: bytes) -> bool:
        """Return whether the tree before is this one, and untouched."""
        assert self._tree is not None
        if self._before is None or len(self._kept) != len(self._tree.files):
            return False
        if (self._root / MANIFEST).read_bytes() != manifest:
            return False
        return all(
            os.access(self._root / file.path, os.X_OK) == file.executable
            for file in self._tree.files
        )

    def _gather(self, manifest: bytes) -> None:
        """Make the new directory: links to what was gathered, and to what stays."""
        assert self._tree is not None
        place = self._work / "tree"
        place.mkdir()
        wanted = {file.path: file for file in self._tree.files}
        used: set[str] = set()
        listed = read_manifest(manifest).files
        for file in listed:
            path = place / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            blob = self._blobs / file.sha256
            source = blob if blob.exists() else self._root / file.path
            is_executable = wanted[file.path].executable
            if file.sha256 in used or (os.access(source, os.X_OK) != is_executable):
                shutil.copyfile(source, path)  # a file of its own: an edit of one is not of both
                path.chmod(0o755 if is_executable else 0o644)
                _sync(path)
            else:
                os.link(source, path)
            used.add(file.sha256)
        (place / MANIFEST).write_bytes(manifest)
        _sync(place / MANIFEST)
        for directory, _, _ in os.walk(place, topdown=False):
            sync_directory(Path(directory))

    def _replace(self) -> None:
        """Rename the new directory; the one before gets the other's name."""
        place = self._work / "tree"
        if not self._root.exists():
            place.rename(self._root)
        else:
            _exchange(place, self._root)
        sync_directory(self._root.parent)

    def _remove_work(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    with _opened(path) as descriptor:
        os.fsync(descriptor)


def _exchange(one: Path, other: Path) -> None:
    """Swap the names of two directories; where the kernel cannot at once, one after the other."""
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(libc, "renameat2", None)
    names = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if renameat2 is not None and renameat2(*names) == 0:
        return
    aside = one.with_name("before")
    other.rename(aside)
    try:
        one.rename(other)
    except BaseException:
        aside.rename(other)
        raise


def _not_a_tree(root: Path, why: str) -> OutputFailed:
    """Return the error of this name."""
    return OutputFailed(
        f"{str(root)!r} is not a tree that packager wrote: {why}",
        hint="choose a new or an empty directory, or remove this one",
        code="_NotATree",
    )
