"""Everything is read, what is broken is set aside, what is whole comes back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from artifact_cache import fsck
from artifact_cache.errors import StoreUnavailable
from artifact_cache.files import sha256_of
from artifact_cache.fsck import Checked, Problem, check
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.key import key_of
from artifact_cache.store import address_of
from artifact_cache.trust import Trust
from tests.support.cache_entries import NEWER, Build, document, files_below, files_of
from tests.support.cache_opening import LocalStore, open_local
from tests.unit.artifact_cache.test_stores import damage, the_blob


def built(root: Path, tmp_path: Path, *seeds: int) -> None:
    for seed in seeds:
        open_local(root).get_or_build(
            document(seed), Build(f"tensor{seed}".encode()), tmp_path / f"built{seed}"
        )


def checked(root: Path, *, repair: bool = True) -> Checked:
    return check(LocalStore(root), repair=repair)


def actions(report: Checked) -> list[str]:
    return [problem.action for problem in report.problems]


def test_a_sound_cache_is_counted(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2)

    report = checked(root)

    assert (report.entries, report.blobs, report.bytes) == (2, 5, 2 * 711 + 2)
    assert (report.problems, report.orphans, report.sound) == ((), (), True)


def test_an_empty_cache_is_sound(root: Path) -> None:
    assert checked(root).sound


@pytest.mark.parametrize("stamped", [False, True])
def test_a_broken_blob_goes_with_its_entries(root: Path, tmp_path: Path, stamped: bool) -> None:
    """Also where a stamp says that it is as it was."""
    built(root, tmp_path, 1, 2)
    blob = the_blob(root, b"tensor1" * 100)
    if stamped:
        os.utime(blob, (1, 1))
        open_local(root).get_or_build(document(1), Build(), tmp_path / "hit")
    damage(blob, b"TENSOR1" * 100)
    blob.chmod(0o444)
    os.utime(blob, (1, 1))

    report = checked(root)

    assert report.problems == (
        Problem(f"blob {blob.name[:12]}", "holds other bytes than were published", "set-aside"),
        Problem(
            f"entry quantized-checkpoint/{key_of(document(1))[:12]}",
            "has lost rank0/model.bin",
            "set-aside",
        ),
    )
    assert report.sound
    assert open_local(root).find(document(1)) is None
    assert open_local(root).find(document(2)) is not None
    assert checked(root).problems == ()


def test_without_repair_nothing_is_touched(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    damage(the_blob(root, b"tensor1" * 100), b"TENSOR1" * 100)
    before = files_below(root)

    report = checked(root, repair=False)

    assert actions(report) == ["left", "left"]
    assert not report.sound
    assert files_below(root) == before


@pytest.mark.parametrize("data", [b"", b"{}", b"x" * 2**21], ids=["empty", "no entry", "huge"])
def test_a_broken_entry_goes(root: Path, tmp_path: Path, data: bytes) -> None:
    built(root, tmp_path, 1)
    damage(next(root.glob("ac/*/*/*.json")), data)

    report = checked(root)

    assert (report.entries, actions(report), len(report.orphans)) == (0, ["set-aside"], 3)
    assert report.orphan_bytes == 713


def test_an_entry_at_another_address_goes(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    elsewhere = root / "ac/neuron/00" / f"{'0' * 64}.json"
    elsewhere.parent.mkdir(parents=True)
    os.link(next(root.glob("ac/*/*/*.json")), elsewhere)

    report = checked(root)

    assert (report.entries, actions(report)) == (1, ["set-aside"])


def test_an_entry_that_cannot_be_read_is_left(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that fails once says nothing of the bytes."""
    built(root, tmp_path, 1)

    def broken_disk(path: Path, most: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(fsck, "bounded_bytes", broken_disk)
    report = checked(root)

    assert report.problems[0].reason == "cannot be read: input/output error"
    assert (actions(report), report.unread, report.sound) == (["left"], 1, False)
    assert len(list(root.glob("ac/*/*/*.json"))) == 1
    assert not (root / "quarantine").exists()


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOSPC], ids=errno.errorcode.get
)
def test_a_blob_that_cannot_be_read_is_left_with_its_entry(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    built(root, tmp_path, 1)
    blobs = sorted(path.name for path in root.glob("cas/*/*/*"))

    def broken_disk(path: Path) -> str:
        if path.name == blobs[0]:
            raise OSError(number, os.strerror(number))
        return sha256_of(path)

    monkeypatch.setattr(fsck, "sha256_of", broken_disk)
    report = checked(root)

    assert (actions(report), report.unread, report.sound) == (["left"], 1, False)
    assert report.orphans == ()
    assert sorted(path.name for path in root.glob("cas/*/*/*")) == blobs
    monkeypatch.undo()
    report = checked(root)
    assert (report.entries, report.blobs, report.problems, report.unread) == (1, 3, (), 0)


def test_entries_of_later_versions_are_counted_and_left(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    path = next(root.glob("ac/*/*/*.json"))
    damage(path, NEWER)

    report = checked(root)

    assert (report.entries, report.newer, report.problems) == (0, 1, ())
    assert path.read_bytes() == NEWER


def test_an_entry_returns_when_somebody_published_its_lost_blob(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    the_blob(root, b"tensor1" * 100).unlink()
    assert actions(checked(root)) == ["set-aside"]
    open_local(root).get_or_build(document(2), Build(b"tensor1"), tmp_path / "same files")

    report = checked(root)

    assert (report.entries, actions(report)) == (2, ["restored"])
    result = open_local(root).get_or_build(document(1), Build(b"no"), tmp_path / "hit")
    assert result.hit
    assert files_below(result.path) == files_of(b"tensor1")


def test_a_sound_blob_returns_from_quarantine(root: Path, tmp_path: Path) -> None:
    """Set aside by a disk that read wrongly once."""
    built(root, tmp_path, 1)
    store = LocalStore(root)
    store.set_aside(the_blob(root, b"tensor1" * 100), ".blob")
    store.set_aside(store.entry_path(address_of(document(1))), ".json")

    report = checked(root)

    assert actions(report) == ["restored", "restored"]
    assert open_local(root).get_or_build(document(1), Build(), tmp_path / "hit").hit
    assert list(root.glob("quarantine/*")) == []


def test_a_broken_blob_does_not_return(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    damage(the_blob(root, b"tensor1" * 100), b"TENSOR1" * 100)
    checked(root)

    assert checked(root).problems == ()
    assert len(list(root.glob("quarantine/*"))) == 2


def test_an_entry_does_not_return_over_a_newer_build(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    LocalStore(root).set_aside(LocalStore(root).entry_path(address_of(document(1))), ".json")
    open_local(root).get_or_build(document(1), Build(b"second"), tmp_path / "second")

    assert checked(root).problems == ()
    result = open_local(root).get_or_build(document(1), Build(), tmp_path / "hit")
    assert files_below(result.path) == files_of(b"second")


def test_a_deleted_entry_does_not_return(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    store = LocalStore(root)
    store.set_aside(store.entry_path(address_of(document(1))), ".json")
    store.delete(address_of(document(1)))

    assert checked(root).problems == ()
    assert open_local(root).find(document(1)) is None


def test_what_was_restored_survives_a_collector_that_looked_before(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from artifact_cache import gc

    built(root, tmp_path, 1)
    LocalStore(root).set_aside(LocalStore(root).entry_path(address_of(document(1))), ".json")
    entries = gc._Collection.entries

    def before_the_check(self: gc._Collection, blobs: object) -> list[gc.SeenEntry]:
        found = list(entries(self, blobs))
        assert actions(checked(root)) == ["restored"]
        return found

    monkeypatch.setattr(gc._Collection, "entries", before_the_check)
    collect(LocalStore(root), GcPolicy(grace_s=0), clock=lambda: 4e9)

    assert open_local(root).get_or_build(document(1), Build(), tmp_path / "hit").hit


def test_a_blob_that_could_be_written_to_is_protected(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    blob = the_blob(root, b"{}")
    blob.chmod(0o644)

    assert actions(checked(root)) == ["protected"]
    assert blob.stat().st_mode & 0o777 == 0o444


def test_a_link_in_place_of_a_blob_goes(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    blob = the_blob(root, b"{}")
    blob.rename(tmp_path / "copy")
    blob.symlink_to(tmp_path / "copy")

    assert checked(root).problems[0].reason == "is not a file"
    assert not blob.is_symlink()


def test_entries_nobody_vouches_for_are_counted(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)

    report = check(LocalStore(root), trust=Trust({}, require_signed=True))

    assert (report.entries, report.refused, report.problems) == (1, 1, ())


def test_a_disk_that_fails_while_it_is_listed_is_explained(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(root, tmp_path, 1)
    store = LocalStore(root)
    assert store.capability().mode == "read-write"

    def broken(path: Path, pattern: str) -> list[Path]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "glob", broken)
    with pytest.raises(StoreUnavailable, match="input/output error"):
        check(store)


def test_a_check_says_how_far_it_is(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2)
    told: list[tuple[int, int]] = []

    found = check(LocalStore(root), on_bytes=lambda done, size: told.append((done, size)))

    assert len(told) == found.blobs
    assert told[-1] == (found.bytes, found.bytes)


def test_a_file_that_cannot_go_to_quarantine_is_never_removed(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    blob = the_blob(root, b"tensor1" * 100)
    damage(blob, b"TENSOR1" * 100)
    (root / "quarantine").write_bytes(b"")  # in the way

    report = checked(root)

    assert set(actions(report)) == {"left"}
    assert blob.read_bytes() == b"TENSOR1" * 100
    assert len(list(root.glob("ac/*/*/*.json"))) == 1
