"""Tiers: near before far, and no fault of a far one in anybody's way."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.errors import Corrupt, NewerEntry, StoreUnavailable
from artifact_cache.locks import KeyLocks
from artifact_cache.store import Address, Capability, StoredEntry, address_of
from artifact_cache.stores.tiered import Tier, TieredStore
from tests.support.cache_entries import CHECKPOINT, NEWER, VLLM, Build, files_of
from tests.support.cache_opening import LocalStore
from tests.support.cache_stores import (
    FailingStore,
    built,
    damage,
    extracted,
    published,
    stored,
    the_blob,
)
from tests.support.doubles.stores import MemoryStore, ReadOnlyStore
from tests.support.places import files_below

ADDRESS = address_of(CHECKPOINT)
both_policies = pytest.mark.parametrize("policy", ["write-through", "write-back"])


def failing(mode: str = "read-write") -> FailingStore:
    """A store whose network goes away after the start."""
    capability = Capability(mode, "it does not answer")  # type: ignore[arg-type]
    return FailingStore(StoreUnavailable("far", "it does not answer"), capability)


@pytest.fixture
def local(root: Path) -> LocalStore:
    return LocalStore(root)


@pytest.fixture
def far() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(local: LocalStore, far: MemoryStore) -> TieredStore:
    return TieredStore(local, [Tier("far", far)])


def test_what_is_found_far_is_kept_near(
    store: TieredStore, local: LocalStore, far: MemoryStore, tmp_path: Path
) -> None:
    entry = published(far, tmp_path / "a", CHECKPOINT)

    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")

    far.blobs.clear()
    assert stored(local, CHECKPOINT).entry == entry
    assert extracted(store, CHECKPOINT, tmp_path / "again") == files_of(b"tensors")


def test_the_nearest_entry_is_used(
    store: TieredStore, local: LocalStore, far: MemoryStore, tmp_path: Path
) -> None:
    published(local, tmp_path / "a", CHECKPOINT, b"near")
    published(far, tmp_path / "b", CHECKPOINT, b"far")

    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"near")


@both_policies
def test_what_is_published_goes_to_every_tier(
    local: LocalStore, far: MemoryStore, tmp_path: Path, policy: str
) -> None:
    store = TieredStore(local, [Tier("far", far, policy)])  # type: ignore[arg-type]
    entry = published(store, tmp_path / "a", CHECKPOINT)

    assert [stored(one, CHECKPOINT).entry for one in (local, far)] == [entry, entry]


def test_nothing_goes_to_a_tier_that_is_only_read(
    local: LocalStore, far: MemoryStore, tmp_path: Path
) -> None:
    published(TieredStore(local, [Tier("far", far, "read-only")]), tmp_path / "a", CHECKPOINT)

    assert far.entries == {}
    assert local.get(ADDRESS) is not None


def test_a_tier_that_may_only_be_read_breaks_nothing(local: LocalStore, tmp_path: Path) -> None:
    """As sccache#2773: the shared tier had become read-only, and the local one stopped."""
    messages: list[str] = []
    reader = ReadOnlyStore(MemoryStore(), "it refuses access (403)")
    store = TieredStore(local, [Tier("far", reader)], notify=messages.append)

    assert store.capability() == Capability(
        "read-write", "far is read-only: it refuses access (403)"
    )
    published(store, tmp_path / "a", CHECKPOINT)
    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    assert store.delete(ADDRESS)
    assert messages == []


class Late(MemoryStore):
    """A far store in which another host publishes while we build."""

    late = False

    def get(self, address: Address) -> StoredEntry | None:
        return super().get(address) if self.late else None


def test_the_first_entry_written_through_wins_everywhere(local: LocalStore, tmp_path: Path) -> None:
    """Two hosts must not serve a mix: the loser takes the winner's files."""
    shared = Late()
    published(shared, tmp_path / "theirs", CHECKPOINT, b"first")
    cache = ArtifactCache(TieredStore(local, [Tier("far", shared)]), KeyLocks(tmp_path / "locks"))

    def build(directory: Path) -> None:
        Build(b"second")(directory)
        shared.late = True

    result = cache.get_or_build(CHECKPOINT, build, tmp_path / "out")

    assert [notice.code for notice in result.notices] == ["adopted"]
    assert files_below(tmp_path / "out") == files_of(b"first")
    assert extracted(local, CHECKPOINT, tmp_path / "near") == files_of(b"first")


def test_an_entry_in_the_way_that_cannot_be_used_keeps_nobody_from_caching(
    store: TieredStore, far: MemoryStore, tmp_path: Path
) -> None:
    far.entries[ADDRESS] = NEWER

    published(store, tmp_path / "a", CHECKPOINT)
    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_who_is_late_with_a_copy_keeps_the_own_build(
    local: LocalStore, far: MemoryStore, tmp_path: Path
) -> None:
    published(far, tmp_path / "theirs", CHECKPOINT, b"first")
    store = TieredStore(local, [Tier("far", far, "write-back")])

    published(store, tmp_path / "a", CHECKPOINT, b"second")
    assert extracted(local, CHECKPOINT, tmp_path / "near") == files_of(b"second")
    assert extracted(far, CHECKPOINT, tmp_path / "far") == files_of(b"first")


@both_policies
def test_a_tier_that_fails_costs_one_notice(local: LocalStore, tmp_path: Path, policy: str) -> None:
    messages: list[str] = []
    far = Tier("far", failing(), policy)  # type: ignore[arg-type]
    store = TieredStore(local, [far], notify=messages.append)
    cache = ArtifactCache(store, KeyLocks(tmp_path / "locks"))

    first = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")
    second = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b")

    assert (first.stored, second.hit) == (True, True)
    assert list(store.list()) == [first.entry]
    assert messages == ["far: the cache 'far' cannot be used: it does not answer"]


def test_a_tier_that_is_off_is_not_asked(local: LocalStore, tmp_path: Path) -> None:
    broken = failing("off")
    store = TieredStore(local, [Tier("far", broken)])

    assert store.capability() == Capability("read-write", "far is off: it does not answer")
    published(store, tmp_path / "a", CHECKPOINT)
    assert store.get(address_of(VLLM)) is None
    assert broken.asked == 0


def test_a_shared_place_alone_still_serves(root: Path, far: MemoryStore, tmp_path: Path) -> None:
    root.touch()
    store = TieredStore(LocalStore(root), [Tier("far", far)])

    assert store.capability() == Capability("read-write", "local is off: it is not a directory")
    published(store, tmp_path / "a", CHECKPOINT)
    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_a_cache_of_which_nothing_can_be_written_says_so(
    root: Path, far: MemoryStore, tmp_path: Path
) -> None:
    root.touch()
    store = TieredStore(LocalStore(root), [Tier("far", far, "read-only")])

    assert store.capability() == Capability("read-only", "local is off: it is not a directory")
    with pytest.raises(StoreUnavailable, match="it is not a directory"):
        store.put(built(tmp_path / "a", CHECKPOINT), tmp_path / "a")


def test_a_blob_damaged_here_comes_from_the_shared_tier(
    store: TieredStore, local: LocalStore, root: Path, tmp_path: Path
) -> None:
    published(store, tmp_path / "a", CHECKPOINT)
    damage(the_blob(root), b"TENSORS" * 100)

    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    assert extracted(local, CHECKPOINT, tmp_path / "again") == files_of(b"tensors")


def test_files_of_another_build_do_not_stand_in_for_damaged_ones(
    store: TieredStore, local: LocalStore, far: MemoryStore, root: Path, tmp_path: Path
) -> None:
    """Who asked was told of the entry here; the other one is found by the next look."""
    published(local, tmp_path / "a", CHECKPOINT, b"mine")
    published(far, tmp_path / "b", CHECKPOINT, b"other")
    damage(the_blob(root, b"mine" * 100), b"MINE" * 100)

    with pytest.raises(Corrupt):
        extracted(store, CHECKPOINT, tmp_path / "out")
    assert extracted(store, CHECKPOINT, tmp_path / "again") == files_of(b"other")


@pytest.mark.parametrize(("data", "error"), [(b"{", Corrupt), (NEWER, NewerEntry)])
def test_an_entry_that_is_of_no_use_in_any_tier_is_reported(
    store: TieredStore, far: MemoryStore, data: bytes, error: type[Exception]
) -> None:
    far.entries[ADDRESS] = data

    with pytest.raises(error):
        store.get(ADDRESS)


def test_entries_are_listed_once(store: TieredStore, far: MemoryStore, tmp_path: Path) -> None:
    published(store, tmp_path / "a", CHECKPOINT)
    published(far, tmp_path / "b", VLLM)

    assert sorted(entry.kind for entry in store.list()) == ["quantized-checkpoint", "vllm-compile"]
    assert [entry.kind for entry in store.list("vllm-compile")] == ["vllm-compile"]
