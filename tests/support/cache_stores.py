"""Entries that tests put into stores and take out of them, and blobs that they damage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from artifact_cache.entry import Entry, Writer
from artifact_cache.files import describe, seal
from artifact_cache.key import KeyDocument, key_of, plain
from artifact_cache.store import Address, CacheStore, Capability, StoredEntry, address_of
from tests.support.cache_entries import Build
from tests.support.known import known
from tests.support.places import files_below

TENSORS = b"tensors" * 100  # what a build leaves as rank0/model.bin


def described(directory: Path, document: KeyDocument) -> Entry:
    """Return the entry of the files in a directory."""
    return Entry(
        key=key_of(document),
        keydoc=plain(document),
        outputs=describe(seal(directory, document.kind)),
        writer=Writer(nonce=os.urandom(16).hex(), builder_id="", version=""),
        built_at=1795000000,
        build_s=1,
    )


def built(directory: Path, document: KeyDocument, content: bytes = b"tensors") -> Entry:
    """Run a build in a new directory and describe what it left."""
    directory.mkdir(parents=True)
    Build(content)(directory)
    return described(directory, document)


def published(
    store: CacheStore, directory: Path, document: KeyDocument, content: bytes = b"tensors"
) -> Entry:
    """Run a build and put what it left into a store."""
    entry = built(directory, document, content)
    assert store.put(entry, directory)
    return entry


def stored(store: CacheStore, document: KeyDocument) -> StoredEntry:
    """Return an entry that is there."""
    return known(store.get(address_of(document)))


def extracted(store: CacheStore, document: KeyDocument, into: Path) -> dict[str, bytes]:
    """Take the files of an entry out into a new directory, and return them."""
    found = stored(store, document)
    into.mkdir()
    found.extract(into)
    return files_below(into)


def the_blob(root: Path, content: bytes = TENSORS) -> Path:
    """Find the blob with that content."""
    return next(path for path in root.glob("cas/*/*/*") if path.read_bytes() == content)


def the_entry(root: Path) -> Path:
    """Find the file of the only entry."""
    return next(root.glob("ac/*/*/*.json"))


def damage(path: Path, content: bytes) -> None:
    """Change a file in place, as a bad disk or a careless root would."""
    path.chmod(0o644)
    path.write_bytes(content)


def damage_unseen(path: Path, content: bytes = b"TENSORS" * 100) -> None:
    """Change a blob so that only a full read can see it: size, mode and time stay."""
    mtime_ns = path.stat().st_mtime_ns
    damage(path, content)
    path.chmod(0o444)
    os.utime(path, ns=(mtime_ns, mtime_ns))


class FailingStore:
    """A store in which everything fails, the way networks and disks do."""

    def __init__(self, error: Exception, capability: Capability | None = None) -> None:
        self.asked = 0
        self._error = error
        self._capability = capability or Capability("read-write")

    def capability(self) -> Capability:
        """Say what it was told to say."""
        return self._capability

    def get(self, address: Address) -> StoredEntry | None:
        """Fail."""
        raise self._failure()

    def put(self, entry: Entry, directory: Path) -> bool:
        """Fail."""
        raise self._failure()

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        """Fail."""
        raise self._failure()

    def delete(self, address: Address) -> bool:
        """Fail."""
        raise self._failure()

    def _failure(self) -> Exception:
        self.asked += 1
        return self._error
