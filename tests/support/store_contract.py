"""What every store of the artifact cache promises.

A class that inherits one of these has the fixtures that it names: `store`, and `at_rest` for what
lies in that store, which may be damaged there.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Protocol

import pytest

from artifact_cache.errors import Corrupt, NewerEntry, Unpublishable
from artifact_cache.key import KeyDocument
from artifact_cache.store import CacheStore, address_of
from tests.support.cache_entries import CHECKPOINT, NEURON, NEWER, VLLM, files_of
from tests.support.cache_stores import TENSORS, built, damage, extracted, published, stored


class AtRest(Protocol):
    """The bytes of a store, where it keeps them."""

    def change_blob(self, content: bytes, wrong: bytes | None) -> None:
        """Let the blob with this content hold other bytes; None: lose it."""
        ...

    def read_entry(self) -> bytes:
        """Return the bytes of the only entry."""
        ...

    def change_entry(self, data: bytes) -> None:
        """Let the only entry hold other bytes."""
        ...


class StoreContract:
    """Putting, getting, listing and deleting."""

    def test_what_was_put_comes_out_again(self, store: CacheStore, tmp_path: Path) -> None:
        entry = published(store, tmp_path / "a", CHECKPOINT)

        assert stored(store, CHECKPOINT).entry == entry
        assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
        files = filter(Path.is_file, (tmp_path / "out").rglob("*"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}
        assert modes == {"config.json": 0o444, "kernel.so": 0o555, "model.bin": 0o444}

    def test_an_unknown_address_is_a_miss(self, store: CacheStore) -> None:
        assert store.get(address_of(CHECKPOINT)) is None
        assert not store.delete(address_of(CHECKPOINT))

    def test_the_first_entry_stays(self, store: CacheStore, tmp_path: Path) -> None:
        published(store, tmp_path / "a", CHECKPOINT, b"first")
        second = built(tmp_path / "b", CHECKPOINT, b"second")

        assert not store.put(second, tmp_path / "b")
        assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"first")

    def test_entries_are_listed_by_kind(self, store: CacheStore, tmp_path: Path) -> None:
        published(store, tmp_path / "a", CHECKPOINT)
        published(store, tmp_path / "b", VLLM)

        kinds = sorted(entry.kind for entry in store.list())
        assert kinds == ["quantized-checkpoint", "vllm-compile"]
        assert [entry.kind for entry in store.list("vllm-compile")] == ["vllm-compile"]

    def test_a_deleted_entry_is_a_miss(self, store: CacheStore, tmp_path: Path) -> None:
        published(store, tmp_path / "a", CHECKPOINT)

        assert store.delete(address_of(CHECKPOINT))
        assert store.get(address_of(CHECKPOINT)) is None

    def test_files_that_changed_since_they_were_described_are_refused(
        self, store: CacheStore, tmp_path: Path
    ) -> None:
        entry = built(tmp_path / "a", CHECKPOINT)
        damage(tmp_path / "a/config.json", b"{...}")

        with pytest.raises(Unpublishable):
            store.put(entry, tmp_path / "a")
        assert store.get(address_of(CHECKPOINT)) is None


class DamageContract:
    """Damage at rest is a miss, and the next publisher heals it."""

    @pytest.mark.parametrize("document", [CHECKPOINT, NEURON], ids=lambda document: document.kind)
    @pytest.mark.parametrize(
        "wrong",
        [b"TENSORS" * 100, b"tensors" * 99, b"tensors" * 101, b"", None],
        ids=["other bytes", "cut", "grown", "emptied", "lost"],
    )
    def test_a_damaged_blob_is_a_miss(
        self,
        store: CacheStore,
        at_rest: AtRest,
        tmp_path: Path,
        document: KeyDocument,
        wrong: bytes | None,
    ) -> None:
        published(store, tmp_path / "a", document)
        at_rest.change_blob(TENSORS, wrong)

        with pytest.raises(Corrupt, match=r"model\.bin"):
            extracted(store, document, tmp_path / "out")

        assert store.get(address_of(document)) is None
        published(store, tmp_path / "b", document)
        assert extracted(store, document, tmp_path / "again") == files_of(b"tensors")

    @pytest.mark.parametrize(
        "data", [b"", b'{"schema":1}', b"x" * 2**21], ids=["empty", "incomplete", "huge"]
    )
    def test_a_broken_entry_is_a_miss(
        self, store: CacheStore, at_rest: AtRest, tmp_path: Path, data: bytes
    ) -> None:
        published(store, tmp_path / "a", CHECKPOINT)
        at_rest.change_entry(data)

        assert list(store.list()) == []
        with pytest.raises(Corrupt):
            store.get(address_of(CHECKPOINT))
        assert store.get(address_of(CHECKPOINT)) is None
        published(store, tmp_path / "b", CHECKPOINT)
        assert len(list(store.list())) == 1

    def test_an_entry_of_a_newer_version_is_left_alone(
        self, store: CacheStore, at_rest: AtRest, tmp_path: Path
    ) -> None:
        published(store, tmp_path / "a", CHECKPOINT)
        at_rest.change_entry(NEWER)

        with pytest.raises(NewerEntry):
            store.get(address_of(CHECKPOINT))
        assert not store.put(built(tmp_path / "b", CHECKPOINT), tmp_path / "b")
        assert at_rest.read_entry() == NEWER
