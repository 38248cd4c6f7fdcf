"""What every store promises, and what the local one leaves on the disk."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from artifact_cache.entry import Entry, Writer
from artifact_cache.errors import Corrupt, NewerEntry, StoreUnavailable, Unpublishable
from artifact_cache.files import describe, seal
from artifact_cache.key import KeyDocument, key_of, plain
from artifact_cache.store import Address, CacheStore, Capability, address_of
from tests.support.cache_entries import (
    CHECKPOINT,
    NEURON,
    NEWER,
    VLLM,
    Build,
    files_below,
    files_of,
)
from tests.support.cache_opening import LocalStore
from tests.support.doubles.stores import MemoryStore, ReadOnlyStore

STORES: list[Callable[[Path], CacheStore]] = [LocalStore, lambda root: MemoryStore()]


@pytest.fixture(params=STORES, ids=["local", "memory"])
def store(request: pytest.FixtureRequest, root: Path) -> CacheStore:
    made: CacheStore = request.param(root)
    return made


def built(directory: Path, document: KeyDocument, content: bytes = b"tensors") -> Entry:
    """Run a build in a new directory and describe what it left."""
    directory.mkdir(parents=True)
    Build(content)(directory)
    return Entry(
        key=key_of(document),
        keydoc=plain(document),
        outputs=describe(seal(directory, document.kind)),
        writer=Writer(nonce=os.urandom(16).hex(), builder_id="", version=""),
        built_at=1795000000,
        build_s=1,
    )


def published(
    store: CacheStore, directory: Path, document: KeyDocument, content: bytes = b"tensors"
) -> Entry:
    entry = built(directory, document, content)
    assert store.put(entry, directory)
    return entry


def extracted(store: CacheStore, document: KeyDocument, into: Path) -> dict[str, bytes]:
    stored = store.get(address_of(document))
    assert stored is not None
    into.mkdir()
    stored.extract(into)
    return files_below(into)


def the_blob(root: Path, content: bytes) -> Path:
    """Find the blob with that content."""
    return next(path for path in root.glob("cas/*/*/*") if path.read_bytes() == content)


def damage(path: Path, content: bytes) -> None:
    """Change a file in place, as a bad disk or a careless root would."""
    path.chmod(0o644)
    path.write_bytes(content)


def test_what_was_put_comes_out_again(store: CacheStore, tmp_path: Path) -> None:
    entry = published(store, tmp_path / "a", CHECKPOINT)

    stored = store.get(address_of(CHECKPOINT))

    assert stored is not None
    assert stored.entry == entry
    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_files_come_out_read_only_and_programs_stay_programs(
    store: CacheStore, tmp_path: Path
) -> None:
    published(store, tmp_path / "a", CHECKPOINT)
    extracted(store, CHECKPOINT, tmp_path / "out")

    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert modes == {"config.json": 0o444, "kernel.so": 0o555, "model.bin": 0o444}


def test_an_unknown_address_is_a_miss(store: CacheStore) -> None:
    assert store.get(address_of(CHECKPOINT)) is None
    assert not store.delete(address_of(CHECKPOINT))


def test_the_first_entry_stays(store: CacheStore, tmp_path: Path) -> None:
    published(store, tmp_path / "a", CHECKPOINT, b"first")
    second = built(tmp_path / "b", CHECKPOINT, b"second")

    assert not store.put(second, tmp_path / "b")
    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"first")


def test_entries_are_listed_by_kind(store: CacheStore, tmp_path: Path) -> None:
    published(store, tmp_path / "a", CHECKPOINT)
    published(store, tmp_path / "b", VLLM)

    assert {entry.kind for entry in store.list()} == {"quantized-checkpoint", "vllm-compile"}
    assert [entry.kind for entry in store.list("vllm-compile")] == ["vllm-compile"]


def test_a_deleted_entry_is_a_miss(store: CacheStore, tmp_path: Path) -> None:
    published(store, tmp_path / "a", CHECKPOINT)

    assert store.delete(address_of(CHECKPOINT))
    assert store.get(address_of(CHECKPOINT)) is None


def test_files_that_changed_since_they_were_described_are_refused(
    store: CacheStore, tmp_path: Path
) -> None:
    entry = built(tmp_path / "a", CHECKPOINT)
    damage(tmp_path / "a/config.json", b"{...}")

    with pytest.raises(Unpublishable):
        store.put(entry, tmp_path / "a")
    assert store.get(address_of(CHECKPOINT)) is None


def test_a_read_only_store_gives_and_takes_nothing(store: CacheStore, tmp_path: Path) -> None:
    published(store, tmp_path / "a", CHECKPOINT)
    other = built(tmp_path / "b", VLLM)
    reader = ReadOnlyStore(store, "this is a fork")

    assert reader.capability() == Capability("read-only", "this is a fork")
    assert extracted(reader, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    assert len(list(reader.list())) == 1
    with pytest.raises(StoreUnavailable, match="this is a fork"):
        reader.put(other, tmp_path / "b")
    with pytest.raises(StoreUnavailable, match="this is a fork"):
        reader.delete(address_of(CHECKPOINT))


@pytest.mark.parametrize("document", [CHECKPOINT, NEURON], ids=lambda document: document.kind)
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(b"TENSORS" * 100, id="other bytes"),
        pytest.param(b"tensors" * 99, id="cut"),
        pytest.param(b"tensors" * 101, id="grown"),
        pytest.param(b"", id="emptied"),
    ],
)
def test_a_damaged_blob_is_set_aside(
    root: Path, tmp_path: Path, document: KeyDocument, wrong: bytes
) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", document)
    damage(the_blob(root, b"tensors" * 100), wrong)

    with pytest.raises(Corrupt, match=r"model\.bin"):
        extracted(store, document, tmp_path / "out")

    assert store.get(address_of(document)) is None
    assert sorted(path.suffix for path in (root / "quarantine").iterdir()) == [".blob", ".json"]


def test_a_single_flipped_bit_is_noticed_after_the_blob_was_stamped(
    root: Path, tmp_path: Path
) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    blob = the_blob(root, b"tensors" * 100)
    os.utime(blob, (1, 1))  # long ago, so that a stamp is worth something
    extracted(store, CHECKPOINT, tmp_path / "out")
    assert len(list(root.glob("stamp/*/*"))) == 1

    damage(blob, b"uensors" + b"tensors" * 99)

    with pytest.raises(Corrupt):
        extracted(store, CHECKPOINT, tmp_path / "again")


def test_a_stamped_blob_of_plain_tensors_is_not_read_again(root: Path, tmp_path: Path) -> None:
    """Shown by a change that only a full read can see: the very same size and time."""
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    blob = the_blob(root, b"tensors" * 100)
    os.utime(blob, (1, 1))
    extracted(store, CHECKPOINT, tmp_path / "out")
    damage(blob, b"TENSORS" * 100)
    blob.chmod(0o444)
    os.utime(blob, (1, 1))

    assert extracted(store, CHECKPOINT, tmp_path / "again")["rank0/model.bin"] == b"TENSORS" * 100


def test_a_blob_that_holds_code_is_read_every_time(root: Path, tmp_path: Path) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", NEURON)
    blob = the_blob(root, b"tensors" * 100)
    os.utime(blob, (1, 1))
    extracted(store, NEURON, tmp_path / "out")
    damage(blob, b"TENSORS" * 100)
    blob.chmod(0o444)
    os.utime(blob, (1, 1))

    with pytest.raises(Corrupt):
        extracted(store, NEURON, tmp_path / "again")


def test_a_blob_written_a_moment_ago_gets_no_stamp(root: Path, tmp_path: Path) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    extracted(store, CHECKPOINT, tmp_path / "out")

    assert list(root.glob("stamp/*/*")) == []


def unread_change(root: Path) -> None:
    """Change a blob so that only a full read can see it."""
    blob = the_blob(root, b"tensors" * 100)
    mtime_ns = blob.stat().st_mtime_ns
    damage(blob, b"TENSORS" * 100)
    blob.chmod(0o444)
    os.utime(blob, ns=(mtime_ns, mtime_ns))


def test_tensors_that_were_done_well_before_their_build_ended_are_stamped_at_once(
    root: Path, tmp_path: Path
) -> None:
    """So that the first hit on 140 GB reads none of them."""
    store = LocalStore(root)
    entry = built(tmp_path / "a", CHECKPOINT).model_copy(update={"built_at": int(time.time())})
    for path in (tmp_path / "a").rglob("*"):
        os.utime(path, (1, 1))
    assert store.put(entry, tmp_path / "a")

    assert len(list(root.glob("stamp/*/*"))) == 2  # and not the program: it was copied just now
    unread_change(root)
    assert extracted(store, CHECKPOINT, tmp_path / "out")["rank0/model.bin"] == b"TENSORS" * 100


def test_tensors_written_since_their_build_ended_are_not_stamped(
    root: Path, tmp_path: Path
) -> None:
    """Somebody may have written them after they were hashed."""
    store = LocalStore(root)
    entry = built(tmp_path / "a", CHECKPOINT).model_copy(update={"built_at": 1000})
    for path in (tmp_path / "a").rglob("*"):
        os.utime(path, (999, 999))
    assert store.put(entry, tmp_path / "a")

    assert list(root.glob("stamp/*/*")) == []


def test_a_store_that_always_hashes_believes_no_stamp(root: Path, tmp_path: Path) -> None:
    published(LocalStore(root), tmp_path / "a", CHECKPOINT)
    os.utime(the_blob(root, b"tensors" * 100), (1, 1))
    extracted(LocalStore(root), CHECKPOINT, tmp_path / "out")
    unread_change(root)

    with pytest.raises(Corrupt):
        extracted(LocalStore(root, always_hash=True), CHECKPOINT, tmp_path / "again")


@pytest.mark.parametrize(
    ("kind", "hashed"), [("nfs4", True), ("fuse.sshfs", True), ("ext4", False)]
)
def test_on_a_network_file_system_no_stamp_is_believed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, hashed: bool
) -> None:
    published(LocalStore(root), tmp_path / "a", CHECKPOINT)
    os.utime(the_blob(root, b"tensors" * 100), (1, 1))
    extracted(LocalStore(root), CHECKPOINT, tmp_path / "out")
    unread_change(root)
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


def test_a_lost_blob_is_a_corrupt_entry(root: Path, tmp_path: Path) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    the_blob(root, b"{}").unlink()

    with pytest.raises(Corrupt, match="is missing"):
        extracted(store, CHECKPOINT, tmp_path / "out")
    assert store.get(address_of(CHECKPOINT)) is None


def test_a_blob_replaced_while_it_is_linked_to_is_not_lost(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linking to a file that was just replaced fails as if it were not there."""
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    link = os.link
    refused: list[Path] = []

    def refusing(source: Path, target: Path, **options: bool) -> None:
        if len(refused) < 3:
            refused.append(source)
            raise FileNotFoundError(2, "No such file or directory", str(source))
        link(source, target, **options)

    monkeypatch.setattr(os, "link", refusing)

    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    assert len(refused) == 3


def test_a_link_in_place_of_a_blob_is_not_followed(root: Path, tmp_path: Path) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    blob = the_blob(root, b"{}")
    copy = tmp_path / "copy"
    blob.rename(copy)
    blob.symlink_to(copy)

    with pytest.raises(Corrupt):
        extracted(store, CHECKPOINT, tmp_path / "out")


def test_publishing_again_heals_a_damaged_blob(root: Path, tmp_path: Path) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    damage(the_blob(root, b"{}"), b"[]")

    published(store, tmp_path / "b", NEURON)  # it shares the blob

    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"schema":1}', id="incomplete"),
        pytest.param(b"x" * 2**21, id="huge"),
    ],
)
def test_a_broken_entry_is_set_aside(root: Path, tmp_path: Path, data: bytes) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    damage(next(root.glob("ac/*/*/*.json")), data)

    assert list(store.list()) == []
    with pytest.raises(Corrupt):
        store.get(address_of(CHECKPOINT))
    assert store.get(address_of(CHECKPOINT)) is None


def test_an_entry_copied_to_another_address_is_refused(root: Path, tmp_path: Path) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    elsewhere = root / "ac/quantized-checkpoint/00" / f"{'0' * 64}.json"
    elsewhere.parent.mkdir()
    os.link(next(root.glob("ac/*/*/*.json")), elsewhere)

    with pytest.raises(Corrupt, match="another address"):
        store.get(Address("quantized-checkpoint", "0" * 64))


def test_an_entry_of_a_newer_version_is_left_alone(root: Path, tmp_path: Path) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    path = next(root.glob("ac/*/*/*.json"))
    damage(path, NEWER)

    with pytest.raises(NewerEntry):
        store.get(address_of(CHECKPOINT))
    assert path.read_bytes() == NEWER


def test_a_hit_on_the_same_disk_copies_no_tensors(root: Path, tmp_path: Path) -> None:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    extracted(store, CHECKPOINT, tmp_path / "out")

    assert (tmp_path / "out/rank0/model.bin").samefile(the_blob(root, b"tensors" * 100))


def test_a_new_store_is_private(root: Path) -> None:
    assert LocalStore(root).capability() == Capability("read-write")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_directory_others_can_write_to_is_not_used(root: Path) -> None:
    root.mkdir()
    root.chmod(0o770)

    capability = LocalStore(root).capability()

    assert capability.mode == "off"
    assert "others can write to it" in capability.reason


def test_a_linked_directory_is_not_used(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    root.symlink_to(tmp_path / "elsewhere")

    assert LocalStore(root).capability() == Capability("off", "it is a symbolic link")


def test_a_file_in_its_place_is_not_used(root: Path) -> None:
    root.touch()

    assert LocalStore(root).capability() == Capability("off", "it is not a directory")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_a_directory_of_another_user_is_not_used(root: Path) -> None:
    root.mkdir()
    os.chown(root, 12345, 12345)

    assert LocalStore(root).capability() == Capability("off", "it belongs to user 12345")


def test_a_layout_of_another_version_is_not_touched(root: Path) -> None:
    root.mkdir(mode=0o700)
    (root / "VERSION").write_text('{"layout":2}\n')

    store = LocalStore(root)

    assert store.capability() == Capability(
        "off", f"the cache {str(root)!r} cannot be used: another version laid it out"
    )
    assert [path.name for path in root.iterdir()] == ["VERSION"]


def test_a_store_that_is_off_says_why_when_it_is_used_anyway(root: Path, tmp_path: Path) -> None:
    root.touch()
    store = LocalStore(root)

    with pytest.raises(StoreUnavailable, match="it is not a directory"):
        store.get(address_of(CHECKPOINT))
    with pytest.raises(StoreUnavailable, match="it is not a directory"):
        list(store.list())
