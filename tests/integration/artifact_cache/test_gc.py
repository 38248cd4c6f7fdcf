"""What is collected: the old, the many, the litter; never the pinned, the new, the used."""

from __future__ import annotations

import fcntl
import subprocess
import threading
from pathlib import Path

import pytest

from artifact_cache import gc
from artifact_cache.errors import Rejected
from artifact_cache.gc import GcPolicy
from artifact_cache.stores import local
from tests.support.cache_entries import CHECKPOINT, files_of
from tests.support.cache_opening import LocalStore
from tests.support.cache_sites import DAY, HOUR, Site
from tests.support.places import files_below


def test_a_publisher_half_done_is_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen in a race: blobs looked at before the entry came, and taken for garbage."""
    halfway, may_go_on = threading.Event(), threading.Event()
    publish_entry = local.LocalStore._publish_entry
    blobs = gc._Collection.blobs

    def slowly(self: LocalStore, *arguments: object) -> bool:
        halfway.set()
        assert may_go_on.wait(60)
        return publish_entry(self, *arguments)  # type: ignore[arg-type]

    def look(self: gc._Collection) -> dict[str, gc.SeenBlob]:
        found = blobs(self)
        threading.Timer(0.2, may_go_on.set).start()
        return found

    monkeypatch.setattr(local.LocalStore, "_publish_entry", slowly)
    monkeypatch.setattr(gc._Collection, "blobs", look)
    publisher = threading.Thread(target=site.build, args=(1,))
    publisher.start()
    assert halfway.wait(60)
    site.collect(GcPolicy(grace_s=0), in_s=DAY)
    publisher.join()

    assert site.seeds() == [1]
    assert site.is_whole()


def reject(directory: Path) -> None:
    raise Rejected("no")


def test_litter_goes_and_what_is_in_use_stays(site: Site) -> None:
    site.build(1)
    root = site.root
    litter = ("tmp/stray", "stamp/ab/ab", "use/ab/ab", "pins/.a.1")
    for name in (*litter, "partial/a.part", "partial/b.part", "quarantine/x.blob"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    with (root / "partial/b.part").open("rb") as download:
        fcntl.flock(download, fcntl.LOCK_EX)
        running = subprocess.Popen(["sleep", "600"], stdin=download)  # which has the lock, too
    with pytest.raises(Rejected):
        site.open().get_or_build(CHECKPOINT, reject, site.work / "rejected")
    before = set(files_below(root))

    early = site.collect(GcPolicy())
    after_hours = site.collect(GcPolicy(), in_s=2 * HOUR)
    gone = before - set(files_below(root))
    long_after = site.collect(GcPolicy(), in_s=40 * DAY)
    running.kill()
    running.wait()

    assert (early.litter, after_hours.litter, long_after.litter) == (0, 4, 3)
    assert gone == set(litter)
    assert list(root.glob("neg/*/*/*")) == site.quarantine() == []
    assert [path.name for path in root.glob("partial/*")] == ["b.part"]
    assert site.seeds() == [1]


def test_a_busy_publisher_is_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build(1)
    monkeypatch.setattr("artifact_cache.gc.LOCK_WAIT_S", 0.1)
    with site.store.no_gc():
        report = site.collect()

    assert (report.removed, report.blobs) == ((), 0)
    assert report.problem.startswith("publishers or readers were busy")
    assert site.seeds() == [1]


def test_a_stopped_collector_stops_no_build(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build(1)
    monkeypatch.setattr(local, "LOCK_WAIT_S", 0.1)
    with site.store.collecting(1) as alone:
        assert alone
        result = site.take(1, content=b"mine")

    assert files_below(result.path) == files_of(b"mine")
    assert [notice.code for notice in result.notices] == ["store", "not-stored"]
