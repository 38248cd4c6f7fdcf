"""Everything is read, what is broken is set aside, what is whole comes back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from artifact_cache import fsck, gc
from artifact_cache.errors import StoreUnavailable
from artifact_cache.files import sha256_of
from artifact_cache.fsck import Checked, Problem
from artifact_cache.gc import GcPolicy
from artifact_cache.trust import Trust
from tests.support.cache_entries import NEWER, Build, document, files_of
from tests.support.cache_sites import DAY, Site, address, key
from tests.support.cache_stores import damage, damage_unseen, the_blob
from tests.support.places import files_below

ONE, WRONG = b"tensor1" * 100, b"TENSOR1" * 100


def actions(report: Checked) -> list[str]:
    return [problem.action for problem in report.problems]


def test_a_sound_cache_is_counted(site: Site) -> None:
    site.build(1, 2)

    report = site.check()

    assert (report.entries, report.blobs, report.bytes) == (2, 5, 2 * 711 + 2)
    assert (report.problems, report.orphans, report.sound) == ((), (), True)


@pytest.mark.parametrize("stamped", [False, True])
def test_a_broken_blob_goes_with_its_entries(site: Site, stamped: bool) -> None:
    """Also where a stamp says that it is as it was."""
    site.build(1, 2)
    blob = the_blob(site.root, ONE)
    os.utime(blob, (1, 1))
    if stamped:
        site.take(1)
    damage_unseen(blob, WRONG)

    report = site.check()

    assert report.problems == (
        Problem(f"blob {blob.name[:12]}", "holds other bytes than were published", "set-aside"),
        Problem(
            f"entry quantized-checkpoint/{key(1)[:12]}", "has lost rank0/model.bin", "set-aside"
        ),
    )
    assert report.sound
    assert site.seeds() == [2]
    assert site.check().problems == ()
    assert len(site.quarantine()) == 2  # it does not return


def test_without_repair_nothing_is_touched(site: Site) -> None:
    site.build(1)
    damage(the_blob(site.root, ONE), WRONG)
    before = files_below(site.root)

    report = site.check(repair=False)

    assert (actions(report), report.sound) == (["left", "left"], False)
    assert files_below(site.root) == before


@pytest.mark.parametrize("data", [b"", b"{}", b"x" * 2**21], ids=["empty", "no entry", "huge"])
def test_a_broken_entry_goes(site: Site, data: bytes) -> None:
    site.build(1)
    damage(site.entries()[0], data)

    report = site.check()

    assert (report.entries, actions(report), len(report.orphans)) == (0, ["set-aside"], 3)
    assert report.orphan_bytes == 713


def test_an_entry_at_another_address_goes(site: Site) -> None:
    site.build(1)
    elsewhere = site.root / "ac/neuron/00" / f"{'0' * 64}.json"
    elsewhere.parent.mkdir(parents=True)
    os.link(site.entries()[0], elsewhere)

    report = site.check()

    assert (report.entries, actions(report)) == (1, ["set-aside"])


def test_an_entry_that_cannot_be_read_is_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that fails once says nothing of the bytes."""
    site.build(1)

    def broken_disk(path: Path, most: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(fsck, "bounded_bytes", broken_disk)
    report = site.check()

    assert report.problems[0].reason == "cannot be read: input/output error"
    assert (actions(report), report.unread, report.sound) == (["left"], 1, False)
    assert len(site.entries()) == 1
    assert not (site.root / "quarantine").exists()


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOSPC], ids=errno.errorcode.get
)
def test_a_blob_that_cannot_be_read_is_left_with_its_entry(
    site: Site, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    site.build(1)
    blobs = sorted(site.blobs())

    def broken_disk(path: Path) -> str:
        if path == blobs[0]:
            raise OSError(number, os.strerror(number))
        return sha256_of(path)

    monkeypatch.setattr(fsck, "sha256_of", broken_disk)
    report = site.check()

    assert (actions(report), report.unread, report.sound) == (["left"], 1, False)
    assert report.orphans == ()
    assert sorted(site.blobs()) == blobs
    monkeypatch.undo()
    report = site.check()
    assert (report.entries, report.blobs, report.problems, report.unread) == (1, 3, (), 0)


def test_entries_of_later_versions_are_counted_and_left(site: Site) -> None:
    site.build(1)
    [path] = site.entries()
    damage(path, NEWER)

    report = site.check()

    assert (report.entries, report.newer, report.problems) == (0, 1, ())
    assert path.read_bytes() == NEWER


def test_an_entry_returns_when_somebody_published_its_lost_blob(site: Site) -> None:
    site.build(1)
    the_blob(site.root, ONE).unlink()
    assert actions(site.check()) == ["set-aside"]
    site.open().get_or_build(document(2), Build(b"tensor1"), site.work / "same files")

    report = site.check()

    assert (report.entries, actions(report)) == (2, ["restored"])
    result = site.take(1)
    assert result.hit
    assert files_below(result.path) == files_of(b"tensor1")


def test_a_sound_blob_returns_from_quarantine(site: Site) -> None:
    """Set aside by a disk that read wrongly once."""
    site.build(1)
    site.store.set_aside(the_blob(site.root, ONE), ".blob")
    site.set_aside(1)

    assert actions(site.check()) == ["restored", "restored"]
    assert site.take(1).hit
    assert site.quarantine() == []


def test_an_entry_does_not_return_over_a_newer_build(site: Site) -> None:
    site.build(1)
    site.set_aside(1)
    site.take(1, "second", b"second")

    assert site.check().problems == ()
    assert files_below(site.take(1).path) == files_of(b"second")


def test_a_deleted_entry_does_not_return(site: Site) -> None:
    site.build(1)
    site.set_aside(1)
    site.store.delete(address(1))

    assert site.check().problems == ()
    assert site.seeds() == []


def test_what_was_restored_survives_collectors(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build(1)
    site.set_aside(1)
    entries = gc._Collection.entries

    def before_the_check(self: gc._Collection, blobs: object) -> list[gc.SeenEntry]:
        found = list(entries(self, blobs))
        assert actions(site.check()) == ["restored"]
        return found

    monkeypatch.setattr(gc._Collection, "entries", before_the_check)
    site.collect(GcPolicy(grace_s=0), in_s=10_000 * DAY)

    assert site.take(1).hit


def test_a_blob_that_could_be_written_to_is_protected(site: Site) -> None:
    site.build(1)
    blob = the_blob(site.root, b"{}")
    blob.chmod(0o644)

    assert actions(site.check()) == ["protected"]
    assert blob.stat().st_mode & 0o777 == 0o444


def test_a_link_in_place_of_a_blob_goes(site: Site) -> None:
    site.build(1)
    blob = the_blob(site.root, b"{}")
    blob.rename(site.work / "copy")
    blob.symlink_to(site.work / "copy")

    assert site.check().problems[0].reason == "is not a file"
    assert not blob.is_symlink()


def test_entries_nobody_vouches_for_are_counted(site: Site) -> None:
    site.build(1)

    report = site.check(trust=Trust({}, require_signed=True))

    assert (report.entries, report.refused, report.problems) == (1, 1, ())


def test_a_disk_that_fails_is_explained(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build(1)
    store = site.store
    assert store.capability().mode == "read-write"

    def broken(path: Path, pattern: str) -> list[Path]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "glob", broken)
    with pytest.raises(StoreUnavailable, match="input/output error"):
        fsck.check(store)


def test_a_check_says_how_far_it_is(site: Site) -> None:
    site.build(1, 2)
    told: list[tuple[int, int]] = []

    found = site.check(on_bytes=lambda done, size: told.append((done, size)))

    assert len(told) == found.blobs
    assert told[-1] == (found.bytes, found.bytes)


def test_a_file_that_cannot_go_to_quarantine_is_never_removed(site: Site) -> None:
    site.build(1)
    blob = the_blob(site.root, ONE)
    damage(blob, WRONG)
    (site.root / "quarantine").write_bytes(b"")  # in the way

    assert set(actions(site.check())) == {"left"}
    assert blob.read_bytes() == WRONG
    assert len(site.entries()) == 1
