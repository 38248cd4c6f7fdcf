"""What every store promises, and what the local one leaves on the disk."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from artifact_cache.errors import Corrupt, StoreUnavailable
from artifact_cache.key import KeyDocument
from artifact_cache.store import CacheStore, Capability, address_of
from artifact_cache.stores.tiered import Tier, TieredStore
from tests.support.cache_entries import CHECKPOINT, NEURON, files_of
from tests.support.cache_opening import LocalStore
from tests.support.cache_stores import (
    TENSORS,
    damage,
    damage_unseen,
    extracted,
    published,
    the_blob,
    the_entry,
)
from tests.support.cache_stores import built as built
from tests.support.cases import cases
from tests.support.doubles.stores import MemoryStore
from tests.support.store_contract import AtRest, DamageContract, StoreContract


class TestEveryStore(StoreContract):
    @pytest.fixture(params=["local", "memory", "tiered"])
    def store(self, request: pytest.FixtureRequest, root: Path) -> CacheStore:
        if request.param == "memory":
            return MemoryStore()
        near = LocalStore(root)
        return near if request.param == "local" else TieredStore(near, [Tier("far", MemoryStore())])


@dataclass
class OnDisk:
    root: Path

    def change_blob(self, content: bytes, wrong: bytes | None) -> None:
        blob = the_blob(self.root, content)
        blob.unlink() if wrong is None else damage(blob, wrong)

    def read_entry(self) -> bytes:
        return the_entry(self.root).read_bytes()

    def change_entry(self, data: bytes) -> None:
        damage(the_entry(self.root), data)


@dataclass
class InMemory:
    store: MemoryStore

    def change_blob(self, content: bytes, wrong: bytes | None) -> None:
        [digest] = [name for name, data in self.store.blobs.items() if data == content]
        if wrong is None:
            del self.store.blobs[digest]
        else:
            self.store.blobs[digest] = wrong

    def read_entry(self) -> bytes:
        [data] = self.store.entries.values()
        return data

    def change_entry(self, data: bytes) -> None:
        [address] = self.store.entries
        self.store.entries[address] = data


class TestDamage(DamageContract):
    @pytest.fixture(params=["local", "memory"])
    def store(self, request: pytest.FixtureRequest, root: Path) -> CacheStore:
        return LocalStore(root) if request.param == "local" else MemoryStore()

    @pytest.fixture
    def at_rest(self, store: CacheStore, root: Path) -> AtRest:
        return InMemory(store) if isinstance(store, MemoryStore) else OnDisk(root)


@pytest.fixture
def local(root: Path) -> LocalStore:
    return LocalStore(root)


def stamped(store: LocalStore, tmp_path: Path, document: KeyDocument = CHECKPOINT) -> Path:
    """Publish an entry and take it out, so that its tensors are stamped; return their blob."""
    published(store, tmp_path / "a", document)
    blob = the_blob(store.root)
    os.utime(blob, (1, 1))  # long ago, so that a stamp is worth something
    extracted(store, document, tmp_path / "out")
    return blob


def stamps(root: Path) -> list[Path]:
    return list(root.glob("stamp/*/*"))


@pytest.mark.parametrize("document", [CHECKPOINT, NEURON], ids=lambda document: document.kind)
def test_a_damaged_blob_is_set_aside_with_its_entry(
    local: LocalStore, root: Path, tmp_path: Path, document: KeyDocument
) -> None:
    published(local, tmp_path / "a", document)
    damage(the_blob(root), b"TENSORS" * 100)

    with pytest.raises(Corrupt):
        extracted(local, document, tmp_path / "out")

    assert sorted(path.suffix for path in (root / "quarantine").iterdir()) == [".blob", ".json"]


def test_a_single_flipped_bit_is_noticed_after_the_blob_was_stamped(
    local: LocalStore, root: Path, tmp_path: Path
) -> None:
    blob = stamped(local, tmp_path)
    assert len(stamps(root)) == 1

    damage(blob, b"uensors" + b"tensors" * 99)

    with pytest.raises(Corrupt):
        extracted(local, CHECKPOINT, tmp_path / "again")


def test_a_stamped_blob_of_tensors_is_not_read_again(local: LocalStore, tmp_path: Path) -> None:
    """Shown by a change that only a full read can see: the very same size and time."""
    damage_unseen(stamped(local, tmp_path))

    assert extracted(local, CHECKPOINT, tmp_path / "again")["rank0/model.bin"] == b"TENSORS" * 100


def test_a_blob_that_holds_code_is_read_every_time(local: LocalStore, tmp_path: Path) -> None:
    damage_unseen(stamped(local, tmp_path, NEURON))

    with pytest.raises(Corrupt):
        extracted(local, NEURON, tmp_path / "again")


def test_a_blob_written_a_moment_ago_gets_no_stamp(
    local: LocalStore, root: Path, tmp_path: Path
) -> None:
    published(local, tmp_path / "a", CHECKPOINT)
    extracted(local, CHECKPOINT, tmp_path / "out")

    assert stamps(root) == []


@pytest.mark.parametrize(
    ("written_at", "built_at", "expected"),
    [(1, int(time.time()), 2), (999, 1000, 0)],
    ids=["well before their build ended", "since their build ended"],
)
def test_tensors_are_stamped_at_once_when_they_were_done_well_before_their_build_ended(
    local: LocalStore, root: Path, tmp_path: Path, written_at: int, built_at: int, expected: int
) -> None:
    """So that the first hit on 140 GB reads none of them; of others somebody may have written."""
    entry = built(tmp_path / "a", CHECKPOINT).model_copy(update={"built_at": built_at})
    for path in (tmp_path / "a").rglob("*"):
        os.utime(path, (written_at, written_at))
    assert local.put(entry, tmp_path / "a")

    assert len(stamps(root)) == expected  # and not the program: it was copied just now
    damage_unseen(the_blob(root))
    if expected:
        assert extracted(local, CHECKPOINT, tmp_path / "out")["rank0/model.bin"] == b"TENSORS" * 100


def test_a_store_that_always_hashes_believes_no_stamp(root: Path, tmp_path: Path) -> None:
    damage_unseen(stamped(LocalStore(root), tmp_path))

    with pytest.raises(Corrupt):
        extracted(LocalStore(root, always_hash=True), CHECKPOINT, tmp_path / "again")


@cases("on_a_network_file_system_no_stamp_is_believed")
def test_on_a_network_file_system_no_stamp_is_believed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, hashed: bool
) -> None:
    damage_unseen(stamped(LocalStore(root), tmp_path))
    device = root.stat().st_dev
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw - {kind} server:/export rw\n"
    read_text = Path.read_text
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda path, *rest: line if path.name == "mountinfo" else read_text(path, *rest),
    )

    store = LocalStore(root)
    assert store.capability().mode == "read-write"
    if hashed:
        with pytest.raises(Corrupt):
            extracted(store, CHECKPOINT, tmp_path / "again")
    else:
        extracted(store, CHECKPOINT, tmp_path / "again")


def test_a_blob_replaced_while_it_is_linked_to_is_not_lost(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linking to a file that was just replaced fails as if it were not there."""
    published(local, tmp_path / "a", CHECKPOINT)
    link = os.link
    refused: list[Path] = []

    def refusing(source: Path, target: Path, **options: bool) -> None:
        if len(refused) < 3:
            refused.append(source)
            raise FileNotFoundError(2, "No such file or directory", str(source))
        link(source, target, **options)

    monkeypatch.setattr(os, "link", refusing)

    assert extracted(local, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    assert len(refused) == 3


def test_a_link_for_a_blob_is_not_followed(local: LocalStore, root: Path, tmp_path: Path) -> None:
    published(local, tmp_path / "a", CHECKPOINT)
    blob = the_blob(root, b"{}")
    blob.rename(tmp_path / "copy")
    blob.symlink_to(tmp_path / "copy")

    with pytest.raises(Corrupt):
        extracted(local, CHECKPOINT, tmp_path / "out")


def test_another_entry_heals_a_damaged_blob(local: LocalStore, root: Path, tmp_path: Path) -> None:
    published(local, tmp_path / "a", CHECKPOINT)
    damage(the_blob(root, b"{}"), b"[]")

    published(local, tmp_path / "b", NEURON)  # it shares the blob

    assert extracted(local, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_a_hit_on_one_disk_copies_no_tensors(local: LocalStore, root: Path, tmp_path: Path) -> None:
    published(local, tmp_path / "a", CHECKPOINT)
    extracted(local, CHECKPOINT, tmp_path / "out")

    assert (tmp_path / "out/rank0/model.bin").samefile(the_blob(root, TENSORS))


def test_a_new_store_is_private(root: Path) -> None:
    assert LocalStore(root).capability() == Capability("read-write")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def open_to_others(root: Path) -> None:
    root.mkdir()
    root.chmod(0o770)


def linked(root: Path) -> None:
    root.with_name("elsewhere").mkdir()
    root.symlink_to(root.with_name("elsewhere"))


def of_another_user(root: Path) -> None:
    root.mkdir()
    os.chown(root, 12345, 12345)


def laid_out_otherwise(root: Path) -> None:
    root.mkdir(mode=0o700)
    (root / "VERSION").write_text('{"layout":2}\n')


UNUSABLE = [
    pytest.param(open_to_others, "others can write to it", id="others may write"),
    pytest.param(linked, "it is a symbolic link", id="a link"),
    pytest.param(Path.touch, "it is not a directory", id="a file"),
    pytest.param(laid_out_otherwise, "another version laid it out", id="another version"),
    pytest.param(
        *(of_another_user, "it belongs to user 12345"),
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root"),
        id="of another user",
    ),
]


@pytest.mark.parametrize(("make", "reason"), UNUSABLE)
def test_a_place_that_is_no_private_directory_is_not_used(
    root: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(root)
    before = sorted(root.iterdir()) if root.is_dir() else []

    store = LocalStore(root)

    assert store.capability().mode == "off"
    assert reason in store.capability().reason
    assert before == (sorted(root.iterdir()) if root.is_dir() else [])
    with pytest.raises(StoreUnavailable, match=reason):
        store.get(address_of(CHECKPOINT))
    with pytest.raises(StoreUnavailable, match=reason):
        list(store.list())
