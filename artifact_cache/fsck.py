"""Full verification of a local store: every byte of every blob, every entry.

What is broken goes to quarantine, where `get` would have put it.  What is in
quarantine and is sound comes back when it makes an entry whole again: an entry
set aside for a lost blob returns once somebody published that blob.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from artifact_cache.entry import MAX_STORED_BYTES, Entry, parse_entry
from artifact_cache.errors import CacheError, MalformedEntry, NewerEntry, StoreUnavailable
from artifact_cache.files import HASHING_THREADS, NotRegular, bounded_bytes, said, sha256_of
from artifact_cache.results import ignore
from artifact_cache.store import Address
from artifact_cache.stores.local import LocalStore
from artifact_cache.trust import Trust

Action = Literal[
    "set-aside",  # it is in quarantine
    "restored",  # it is back from quarantine
    "protected",  # it could be written to, and cannot any more
    "left",  # nothing was done
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that was not as it should be."""

    what: str  # `blob 0123456789ab`, `entry KIND/0123456789ab`
    reason: str
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Counts of a check."""

    entries: int  # sound ones
    blobs: int
    bytes: int
    newer: int  # entries of later versions, left alone
    refused: int  # sound entries that the trust policy does not let anybody use
    orphans: tuple[str, ...]  # sound blobs no entry names; the collector's matter
    orphan_bytes: int
    problems: tuple[Problem, ...]
    unread: int = 0  # blobs and entries that the system did not let us read; left where they are

    @property
    def sound(self) -> bool:
        """Whether all that is left can be used: problems that were dealt with do not count."""
        return all(problem.action != "left" for problem in self.problems)


class _Check:
    def __init__(
        self,
        store: LocalStore,
        trust: Trust | None,
        *,
        repair: bool,
        on_bytes: Callable[[int, int], None],
    ) -> None:
        self.store = store
        self.trust = trust
        self.repair = repair
        self.on_bytes = on_bytes
        self.problems: list[Problem] = []
        self.sizes: dict[str, int] = {}  # of sound blobs
        self.spare: dict[str, Path] = {}  # sound blobs in quarantine
        self.named: set[str] = set()
        self.judged: dict[Path, int] = {}  # inodes: a publisher may heal a blob meanwhile
        self.unread: dict[str, str] = {}  # blobs nobody can judge now, and why
        self.unread_entries = 0
        self.entries = self.newer = self.refused = 0

    def run(self) -> Checked:
        root = self.store.root
        paths = [path for path in root.glob("cas/sha256/??/*") if not path.is_dir()]
        with ThreadPoolExecutor(HASHING_THREADS, "artifact-cache") as pool:
            size, done = sum(map(_size_of, paths)), 0
            for path, problem in zip(paths, pool.map(self._judge_blob, paths), strict=True):
                done += _size_of(path)
                self.on_bytes(done, size)
                if reason := self.unread.get(path.name):
                    self._note(f"blob {path.name[:12]}", reason, "left")
                if problem and self._is_still_there(path):
                    self._set_aside(path, ".blob", f"blob {path.name[:12]}", problem)
        blobs, size = len(self.sizes), sum(self.sizes.values())
        self._look_into_quarantine()
        for path in sorted(root.glob("ac/*/??/*.json")):
            self._check_entry(path)
        for path in sorted(root.glob("quarantine/*.json"), reverse=True):  # newest first
            self._restore_entry(path)
        orphans = tuple(sorted(self.sizes.keys() - self.named))
        return Checked(
            entries=self.entries,
            blobs=blobs,
            bytes=size,
            newer=self.newer,
            refused=self.refused,
            orphans=orphans,
            orphan_bytes=sum(self.sizes[digest] for digest in orphans),
            problems=tuple(self.problems),
            unread=len(self.unread) + self.unread_entries,
        )

    # --- blobs

    def _judge_blob(self, path: Path) -> str:
        """Return what is wrong with a blob; remember a sound one, and one that cannot be read.

        A read that fails says nothing of the bytes: the next one may succeed.
        """
        try:
            status = path.lstat()
            self.judged[path] = status.st_ino
            if not stat.S_ISREG(status.st_mode):
                return "is not a file"
            if sha256_of(path) != path.name:
                return "holds other bytes than were published"
        except FileNotFoundError:
            return ""  # collected meanwhile
        except OSError as error:
            self.unread[path.name] = f"cannot be read: {said(error)}"
            return ""
        self.sizes[path.name] = status.st_size
        if status.st_mode & 0o222:
            self._protect(path)
        return ""

    def _is_still_there(self, path: Path) -> bool:
        try:
            return path.lstat().st_ino == self.judged[path]
        except OSError:
            return False

    def _protect(self, path: Path) -> None:
        action: Action = "left"
        if self.repair:
            with suppress(OSError):
                path.chmod(0o444)
                action = "protected"
        self.problems.append(Problem(f"blob {path.name[:12]}", "could be written to", action))

    def _is_sound(self, digest: str, size: int) -> bool:
        """Check again a blob that was missing before: it may have been published since."""
        if digest not in self.sizes:
            path = self.store.blob_path(digest)
            if path.is_file():
                self._judge_blob(path)
        if digest not in self.sizes and digest in self.spare and self.repair:
            self._restore_blob(digest)
        return self.sizes.get(digest) == size

    def _look_into_quarantine(self) -> None:
        for path in self.store.root.glob("quarantine/*.blob"):
            with suppress(OSError):
                digest = sha256_of(path)
                if f"-{digest}-" in path.name:
                    self.spare[digest] = path

    def _restore_blob(self, digest: str) -> None:
        spare, blob = self.spare.pop(digest), self.store.blob_path(digest)
        with suppress(OSError), self.store.no_gc():
            blob.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            spare.chmod(0o444)
            os.link(spare, blob)  # never over one that came meanwhile
            spare.unlink()
            self.sizes[digest] = blob.lstat().st_size
            self._note(f"blob {digest[:12]}", "was in quarantine and is sound", "restored")

    # --- entries

    def _check_entry(self, path: Path) -> None:
        what = f"entry {path.parent.parent.name}/{path.stem[:12]}"
        try:
            entry = parse_entry(bounded_bytes(path, MAX_STORED_BYTES))
            if self.store.entry_path(Address(entry.kind, entry.key)) != path:
                raise MalformedEntry("it belongs to another address")
        except FileNotFoundError:
            return
        except NewerEntry:
            self.newer += 1
            return
        except MalformedEntry as error:
            self._set_aside(path, ".json", what, error.message)
            return
        except NotRegular:
            self._set_aside(path, ".json", what, "is not a file")
            return
        except OSError as error:
            self.unread_entries += 1
            self._note(what, f"cannot be read: {said(error)}", "left")
            return
        if lost := self._lost(entry):
            if path.exists():  # else it was collected meanwhile, and its blobs after it
                self._set_aside(path, ".json", what, f"has lost {', '.join(lost)}")
            return
        if self._has_unread(entry):
            self.named |= {output.sha256 for output in entry.outputs}
            return
        self._take_in(entry)

    def _restore_entry(self, aside: Path) -> None:
        try:
            entry = parse_entry(bounded_bytes(aside, MAX_STORED_BYTES))
        except (CacheError, OSError):
            return
        path = self.store.entry_path(Address(entry.kind, entry.key))
        if path.exists() or not self.repair or self._lost(entry) or self._has_unread(entry):
            return
        with suppress(OSError), self.store.no_gc():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for output in entry.outputs:  # a changed ctime keeps a collector's hands off
                self.store.blob_path(output.sha256).chmod(0o444)
            os.link(aside, path)
            aside.unlink()
            self._take_in(entry)
            what = f"entry {entry.kind}/{entry.key[:12]}"
            self._note(what, "was in quarantine and is intact again", "restored")

    def _lost(self, entry: Entry) -> list[str]:
        return [
            output.path
            for output in entry.outputs
            if not self._is_sound(output.sha256, output.size) and output.sha256 not in self.unread
        ]

    def _has_unread(self, entry: Entry) -> bool:
        return any(output.sha256 in self.unread for output in entry.outputs)

    def _take_in(self, entry: Entry) -> None:
        self.entries += 1
        self.named |= {output.sha256 for output in entry.outputs}
        if self.trust is not None:
            try:
                self.trust.check(entry)
            except CacheError:
                self.refused += 1

    def _set_aside(self, path: Path, suffix: str, what: str, reason: str) -> None:
        if not self.repair:
            self._note(what, reason, "left")
            return
        self.store.set_aside(path, suffix)
        self._note(what, reason, "left" if path.exists() else "set-aside")

    def _note(self, what: str, reason: str, action: Action) -> None:
        self.problems.append(Problem(what, reason, action))


def _size_of(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def check(
    store: LocalStore,
    *,
    trust: Trust | None = None,
    repair: bool = True,
    on_bytes: Callable[[int, int], None] = ignore,
) -> Checked:
    """Verify everything; with `repair`, set aside what is broken and bring back what is sound.

    `on_bytes` hears how many bytes of blobs have been read, and of how many.

    Safe beside publishers, readers and collectors.  Raises `StoreUnavailable`.
    """
    capability = store.capability()
    if capability.mode == "off" or (repair and capability.mode != "read-write"):
        raise StoreUnavailable(str(store.root), capability.reason)
    try:
        return _Check(store, trust, repair=repair, on_bytes=on_bytes).run()
    except OSError as error:
        raise StoreUnavailable(str(store.root), said(error)) from error
