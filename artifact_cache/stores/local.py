"""A directory, shared by every process of one user on one machine.

    VERSION                          {"layout":1}
    ac/<kind>/ab/<key>.json          entry, immutable, created by link
    cas/sha256/ab/<digest>           blob, 0444, never rewritten in place
    stamp/ab/<digest>                what the blob looked like when last hashed
    use/ab/<key>                     touched by every hit, for least-recently-used
    locks/<key>.lock, locks/gc.lock  never removed
    tmp/<pid>-<random>/              a publisher's own; removed once its lock is free
    quarantine/<time>-<name>         what was found broken
    neg/, pins/, partial/            failures, pins and broken-off transfers of the modules
    stats.jsonl, index.sqlite        that own them

The order on disk is the promise: blob bytes, blob name, entry bytes, entry
name, each synced before the next.  Whatever a killed process leaves is either
invisible or complete.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from artifact_cache.entry import MAX_STORED_BYTES, Entry, Output, entry_bytes, parse_entry
from artifact_cache.errors import (
    CacheError,
    Corrupt,
    MalformedEntry,
    StoreUnavailable,
    Unpublishable,
)
from artifact_cache.files import (
    NotRegular,
    bounded_bytes,
    hand_over,
    in_parallel,
    open_regular,
    said,
    sealed_mode,
    sha256_of,
    sync,
    write_durably,
)
from artifact_cache.locks import flock_within
from artifact_cache.store import Address, Capability, StoredEntry
from artifact_cache.strict_json import NotStrict, parse_object

LAYOUT = b'{"layout":1}\n'
MAX_STAMP_BYTES = 4096

# Plain tensors.  Everything else holds code that will run: it is hashed on every read.
STAMPED_KINDS = frozenset({"quantized-checkpoint", "draft-head"})

# Where others can write, too, and no stamp says anything.
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "lustre", "ceph", "gpfs", "fuse", "9p", "beegfs")

LOCK_WAIT_S = 60.0  # for a collector's batch; one that was stopped must not stop everybody

# A file written twice within one tick of the clock looks unchanged (git: "racily clean").
STAMP_AFTER_NS = 2_000_000_000
REPLACED_AGAIN = 16  # times that a blob may be replaced while one link to it is made


class LocalStore:
    """Entries and blobs below one directory, which it creates.

    With `always_hash` no stamp is believed.  On a network file system that is
    so without being asked.
    """

    def __init__(self, root: Path, *, always_hash: bool = False) -> None:
        self.root = root
        self._always_hash = always_hash
        self._capability: Capability | None = None
        self._opening = threading.Lock()

    def capability(self) -> Capability:
        """Check the directory, try to write to it, and remove what dead publishers left."""
        with self._opening:
            if self._capability is None:
                self._capability = self._open()
            return self._capability

    def get(self, address: Address) -> StoredEntry | None:
        """Find an entry; its files are compared when they are extracted."""
        self._need("read")
        path = self.entry_path(address)
        try:
            entry = parse_entry(bounded_bytes(path, MAX_STORED_BYTES))
            if (entry.kind, entry.key) != (address.kind, address.key):
                raise MalformedEntry("it belongs to another address")
        except FileNotFoundError:
            return None
        except MalformedEntry as error:
            self.set_aside(path, ".json")
            raise Corrupt(f"entry {address.key[:12]}", error.message) from error
        except NotRegular as error:
            self.set_aside(path, ".json")
            raise Corrupt(f"entry {address.key[:12]}", "is not a regular file") from error
        except OSError as error:
            raise self._unavailable(error) from error
        return StoredEntry(entry, partial(self._extract, address, entry))

    def put(self, entry: Entry, directory: Path) -> bool:
        """Publish; a blob that is there already is replaced, in case it is broken."""
        self._need("write")
        address = Address(entry.kind, entry.key)
        data = entry_bytes(entry)
        try:
            with self.no_gc(), self._staging() as staging:
                if self.entry_path(address).exists():
                    return False
                for output in {output.sha256: output for output in entry.outputs}.values():
                    self._publish_blob(output, directory / output.path, staging)
                    if address.kind in STAMPED_KINDS:
                        self._stamp_published(output.sha256, entry.built_at)
                return self._publish_entry(address, data, staging)
        except OSError as error:
            raise self._unavailable(error) from error

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        """Yield entries; those that cannot be read are left for `get` to judge."""
        self._need("read")
        for path in self.root.glob(f"ac/{kind or '*'}/??/*.json"):
            with suppress(CacheError, OSError):
                yield parse_entry(bounded_bytes(path, MAX_STORED_BYTES))

    def delete(self, address: Address) -> bool:
        """Remove the entry; its blobs wait for the collector, since others may share them.

        Broken ones of that key go, too: a check could bring them back.
        """
        self._need("write")
        try:
            for aside in self.root.glob(f"quarantine/*-{address.key}-*.json"):
                aside.unlink(missing_ok=True)
            self.entry_path(address).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unavailable(error) from error
        return True

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Lend an empty directory on this disk. After a kill the next start removes it."""
        self._need("write")
        with self._staging() as staging:
            yield staging

    # --- reading

    def _extract(self, address: Address, entry: Entry, into: Path) -> None:
        stamped = address.kind in STAMPED_KINDS and not self._always_hash
        try:
            with self.no_gc():
                if not self.entry_path(address).exists():
                    raise StoreUnavailable(str(self.root), "the entry was removed meanwhile")
                with suppress(OSError):  # a store that is read-only cannot remember its readers
                    _touch(self.use_path(address.key))
                in_parallel(partial(self._take_out, into, stamped), entry.outputs)
        except Corrupt:
            self.set_aside(self.entry_path(address), ".json")
            raise
        except OSError as error:
            raise self._unavailable(error) from error

    def _take_out(self, into: Path, stamped: bool, output: Output) -> None:
        """Put one file out, then compare what was put: nothing can change in between."""
        blob = self.blob_path(output.sha256)
        target = into / output.path
        target.parent.mkdir(parents=True, exist_ok=True)
        name = f"blob {output.sha256[:12]} ({output.path})"
        try:
            status = blob.lstat()
        except FileNotFoundError:
            raise Corrupt(name, "is missing") from None
        if not stat.S_ISREG(status.st_mode) or status.st_size != output.size:
            self.set_aside(blob, ".blob")
            raise Corrupt(name, f"has not {output.size} bytes any more")
        try:
            digest = _hand_over_existing(blob, target, sealed_mode(output))
        except FileNotFoundError:
            raise Corrupt(name, "is missing") from None
        if digest is None:
            if stamped and self._stamp_fits(output.sha256, target):
                return
            digest = sha256_of(target)
        if digest != output.sha256:
            if _same_file(blob, status):  # another process may have healed it meanwhile
                self.set_aside(blob, ".blob")
            target.unlink(missing_ok=True)
            raise Corrupt(name, "holds other bytes than were published")
        if stamped:
            self._stamp(output.sha256, target)

    def _stamp_fits(self, sha256: str, path: Path) -> bool:
        try:
            stamp = parse_object(bounded_bytes(self.stamp_path(sha256), MAX_STAMP_BYTES))
        except (OSError, NotStrict):
            return False
        return _looks(path).items() <= stamp.items()

    def _stamp_published(self, sha256: str, built_at: int) -> None:
        """Stamp a blob that is the file its publisher hashed, so that the first hit is cheap.

        It was hashed after the build had ended.  If its last write lies well
        before that end, nothing has written to it since it was hashed.
        """
        blob = self.blob_path(sha256)
        if blob.lstat().st_mtime_ns < built_at * 1_000_000_000 - STAMP_AFTER_NS:
            self._stamp(sha256, blob)

    def _stamp(self, sha256: str, path: Path) -> None:
        looks = _looks(path)
        now_ns = time.time_ns()
        if now_ns - looks["mtime_ns"] < STAMP_AFTER_NS or looks["ino"] != _inode(
            self.blob_path(sha256)
        ):
            return
        stamp = self.stamp_path(sha256)
        draft = stamp.with_name(f"{sha256}.{secrets.token_hex(8)}")
        with suppress(OSError):
            stamp.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_text(json.dumps({**looks, "verified_at": now_ns // 1_000_000_000}))
            draft.replace(stamp)

    def set_aside(self, path: Path, suffix: str) -> None:
        """Move a broken file to quarantine; where that fails it stays, and stays a miss.

        It is never removed: what one reader could not read may be sound.
        """
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        aside = f"{moment}-{path.stem[:64]}-{secrets.token_hex(4)}{suffix}"
        quarantine = self.root / "quarantine"
        with suppress(OSError):
            quarantine.mkdir(mode=0o700, exist_ok=True)
            path.rename(quarantine / aside)

    # --- writing

    def _publish_blob(self, output: Output, source: Path, staging: Path) -> None:
        target = self.blob_path(output.sha256)
        draft = staging / output.sha256
        digest = hand_over(source, draft, 0o444)
        if digest not in (None, output.sha256) or draft.lstat().st_size != output.size:
            raise Unpublishable(f"{output.path!r} changed while it was published")
        sync(draft)
        _make_directory(target.parent)
        draft.replace(target)
        sync(target.parent)

    def _publish_entry(self, address: Address, data: bytes, staging: Path) -> bool:
        target = self.entry_path(address)
        draft = staging / "entry.json"
        write_durably(draft, data)
        _make_directory(target.parent)
        try:
            os.link(draft, target)
        except FileExistsError:
            return False
        sync(target.parent)
        return True

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """Own a directory under tmp/ for as long as this process lives."""
        while True:
            path = self.root / "tmp" / f"{os.getpid()}-{secrets.token_hex(8)}"
            path.mkdir(mode=0o700)
            descriptor = _locked(path, fcntl.LOCK_EX)
            if descriptor is not None and path.exists():
                break
            if descriptor is not None:  # taken for a dead one between mkdir and flock
                os.close(descriptor)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)

    def reap(self) -> None:
        """Remove what publishers left that are dead: their locks are free."""
        for path in (self.root / "tmp").iterdir():
            with suppress(OSError):
                descriptor = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if descriptor is not None:
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(descriptor)

    @contextmanager
    def no_gc(self) -> Iterator[None]:
        """Keep collectors from removing blobs that a publisher or reader is about to name.

        Raises `StoreUnavailable` after waiting long for one: it may be stopped.
        """
        descriptor = None
        with suppress(OSError):  # nobody collects where nobody can write
            descriptor = open_regular(self._gc_lock)
        try:
            if descriptor is not None and not flock_within(descriptor, fcntl.LOCK_SH, LOCK_WAIT_S):
                raise StoreUnavailable(str(self.root), "it has been locked by a collector too long")
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    @contextmanager
    def collecting(self, wait_s: float) -> Iterator[bool]:
        """Keep publishers and readers out for a moment; yield False when they would not let go."""
        self._need("write")
        descriptor = open_regular(self._gc_lock)
        try:
            yield flock_within(descriptor, fcntl.LOCK_EX, wait_s)
        finally:
            os.close(descriptor)

    @property
    def _gc_lock(self) -> Path:
        return self.root / "locks/gc.lock"

    # --- opening

    def _open(self) -> Capability:
        if problem := _unsafe(self.root):
            return Capability("off", problem)
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._prepare()
        except OSError as error:
            if (self.root / "VERSION").is_file():
                self._always_hash = self._always_hash or _is_on_network(self.root)
                return Capability("read-only", said(error))
            return Capability("off", said(error))
        except StoreUnavailable as error:
            return Capability("off", error.message)
        if problem := _unsafe(self.root):
            return Capability("off", problem)
        self._always_hash = self._always_hash or _is_on_network(self.root)
        return Capability("read-write")

    def _prepare(self) -> None:
        """Lay out the directories and write once, so that a full or odd disk shows at start."""
        version = self.root / "VERSION"
        if os.path.lexists(version) and bounded_bytes(version, len(LAYOUT)) != LAYOUT:
            raise StoreUnavailable(str(self.root), "another version laid it out")
        for name in ("tmp", "locks", "ac", "cas"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)
        (self.root / "locks/gc.lock").touch(mode=0o600)
        self.reap()
        with self._staging() as staging:
            write_durably(staging / "VERSION", LAYOUT)
            with suppress(FileExistsError):
                os.link(staging / "VERSION", version)

    def _need(self, right: str) -> None:
        capability = self.capability()
        if capability.mode == "off" or (right == "write" and capability.mode != "read-write"):
            raise StoreUnavailable(str(self.root), capability.reason)

    def _unavailable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(str(self.root), said(error))

    def entry_path(self, address: Address) -> Path:
        """Give the place of an entry."""
        return self.root / "ac" / address.kind / address.key[:2] / f"{address.key}.json"

    def blob_path(self, sha256: str) -> Path:
        """Give the place of a blob."""
        return self.root / "cas/sha256" / sha256[:2] / sha256

    def stamp_path(self, sha256: str) -> Path:
        """Give the place of a blob's stamp."""
        return self.root / "stamp" / sha256[:2] / sha256

    def use_path(self, key: str) -> Path:
        """Give the file whose mtime is the last use of an entry."""
        return self.root / "use" / key[:2] / key


def _hand_over_existing(blob: Path, target: Path, mode: int) -> str | None:
    """Hand a blob over, also while publishers put equal ones in its place.

    The kernel refuses to link to a file that was replaced since its name was
    looked up (ENOENT from `vfs_link`), as if the name were not there.
    """
    for _ in range(REPLACED_AGAIN):
        try:
            return hand_over(blob, target, mode)
        except FileNotFoundError:
            blob.lstat()  # raises when it is really gone
    return hand_over(blob, target, mode)


def _unsafe(root: Path) -> str:
    """Say why others could plant files here; empty when they cannot, or nothing is there."""
    try:
        status = root.lstat()
    except OSError:
        return ""
    if stat.S_ISLNK(status.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to it; `chmod 700 {root}` keeps them out"
    return ""


def _locked(path: Path, how: int) -> int | None:
    """Open a directory and lock it; None when it is gone. Raises OSError when it is in use."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_on_network(root: Path) -> bool:
    """Say whether other machines may write here; no when the system does not tell."""
    try:
        status = root.stat()
        device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
            fields = line.split()
            if fields[2] == device:
                return fields[fields.index("-") + 1].startswith(NETWORK_FILE_SYSTEMS)
    except (OSError, ValueError, IndexError):
        pass
    return False


def _make_directory(path: Path) -> None:
    """Create a directory whose name survives a crash, and its parents."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync(path.parent)


def _touch(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)


def _looks(path: Path) -> dict[str, int]:
    status = path.lstat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "ino": status.st_ino}


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _same_file(path: Path, status: os.stat_result) -> bool:
    return _inode(path) == status.st_ino
