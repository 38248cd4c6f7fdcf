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
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
    in_parallel,
    link_or_copy,
    open_regular,
    said,
    sealed_mode,
    sha256_of,
    sync,
    write_durably,
)
from artifact_cache.kinds import ASSUME_NOTHING, KindPolicy
from artifact_cache.locks import flock_within
from artifact_cache.store import Address, Capability, StoredEntry
from artifact_cache.stores.directories import (
    is_on_network,
    lock_directory,
    make_directory_durably,
    why_unsafe,
)
from artifact_cache.stores.stamps import fits_stamp, inode_of, write_first_stamp, write_stamp

LAYOUT = b'{"layout":1}\n'


LOCK_WAIT_S = 60.0  # for a collector's batch; one that was stopped must not stop everybody

REPLACED_AGAIN = 16  # times that a blob may be replaced while one link to it is made


class LocalStore:
    """Entries and blobs below one directory, which it creates.

    Stamps are for the kinds that `kinds` calls plain data.  With `always_hash`
    none is believed.  On a network file system that is so without being asked.
    """

    def __init__(
        self, root: Path, *, kinds: KindPolicy = ASSUME_NOTHING, always_hash: bool = False
    ) -> None:
        self.root = root
        self._stamped = kinds.stamped
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
                    if address.kind in self._stamped:
                        write_first_stamp(
                            self.stamp_path(output.sha256),
                            self.blob_path(output.sha256),
                            entry.built_at,
                        )
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
        """Yield an empty directory on this disk. After a kill the next start removes it."""
        self._need("write")
        with ExitStack() as stack:
            try:
                staging = stack.enter_context(self._staging())
            except OSError as error:
                raise self._unavailable(error) from error
            yield staging

    # --- reading

    def _extract(self, address: Address, entry: Entry, into: Path) -> None:
        stamped = address.kind in self._stamped and not self._always_hash
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
        """Write one output, then verify what was written: nothing can change in between."""
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
            digest = _link_or_copy_blob(blob, target, sealed_mode(output))
        except FileNotFoundError:
            raise Corrupt(name, "is missing") from None
        if digest is None:
            if stamped and fits_stamp(target, self.stamp_path(output.sha256)):
                return
            digest = sha256_of(target)
        if digest != output.sha256:
            if inode_of(blob) == status.st_ino:  # another process may have healed it meanwhile
                self.set_aside(blob, ".blob")
            target.unlink(missing_ok=True)
            raise Corrupt(name, "holds other bytes than were published")
        if stamped:
            write_stamp(self.stamp_path(output.sha256), target, blob)

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
        digest = link_or_copy(source, draft, 0o444)
        if digest not in (None, output.sha256) or draft.lstat().st_size != output.size:
            raise Unpublishable(f"{output.path!r} changed while it was published")
        sync(draft)
        make_directory_durably(target.parent)
        draft.replace(target)
        sync(target.parent)

    def _publish_entry(self, address: Address, data: bytes, staging: Path) -> bool:
        target = self.entry_path(address)
        draft = staging / "entry.json"
        write_durably(draft, data)
        make_directory_durably(target.parent)
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
            descriptor = lock_directory(path, fcntl.LOCK_EX)
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
                descriptor = lock_directory(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        """Lock out publishers and readers; yield False when they did not finish in time."""
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
        if problem := why_unsafe(self.root):
            return Capability("off", problem)
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._prepare()
        except OSError as error:
            if (self.root / "VERSION").is_file():
                self._always_hash = self._always_hash or is_on_network(self.root)
                return Capability("read-only", said(error))
            return Capability("off", said(error))
        except StoreUnavailable as error:
            return Capability("off", error.message)
        if problem := why_unsafe(self.root):
            return Capability("off", problem)
        self._always_hash = self._always_hash or is_on_network(self.root)
        return Capability("read-write")

    def _prepare(self) -> None:
        """Create the directories and write once, so that a full or broken disk shows at start."""
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
        """Return the path of an entry."""
        return self.root / "ac" / address.kind / address.key[:2] / f"{address.key}.json"

    def blob_path(self, sha256: str) -> Path:
        """Return the path of a blob."""
        return self.root / "cas/sha256" / sha256[:2] / sha256

    def stamp_path(self, sha256: str) -> Path:
        """Return the path of a blob's stamp."""
        return self.root / "stamp" / sha256[:2] / sha256

    def use_path(self, key: str) -> Path:
        """Return the file whose mtime is the last use of an entry."""
        return self.root / "use" / key[:2] / key


def _link_or_copy_blob(blob: Path, target: Path, mode: int) -> str | None:
    """Link to a blob, or copy it, also while publishers put equal ones in its place.

    The kernel refuses to link to a file that was replaced since its name was
    looked up (ENOENT from `vfs_link`), as if the name were not there.
    """
    for _ in range(REPLACED_AGAIN):
        try:
            return link_or_copy(blob, target, mode)
        except FileNotFoundError:
            blob.lstat()  # raises when it is really gone
    return link_or_copy(blob, target, mode)


def _touch(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
