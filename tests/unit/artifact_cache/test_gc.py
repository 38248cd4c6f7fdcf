"""What is collected: the old, the many, the litter; never the pinned, the new, the used."""

from __future__ import annotations

import hashlib
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

import pytest

from artifact_cache import gc
from artifact_cache.errors import CacheError, StoreUnavailable, UnusablePin
from artifact_cache.gc import GcPolicy
from artifact_cache.pins import Pin
from artifact_cache.stores import local
from artifact_cache.trust import generate_key, load_signer
from tests.support.cache_entries import NEURON, Build, document, files_of
from tests.support.cache_opening import LocalStore
from tests.support.cache_sites import DAY, HOUR, RUTHLESS, Site, address, key
from tests.support.cache_stores import damage, stored
from tests.support.places import files_below

MONTH = GcPolicy(max_age_s=30 * DAY)


@pytest.mark.parametrize(
    ("policy", "in_s"),
    [(GcPolicy(), 1000 * DAY), (GcPolicy(max_bytes=0, max_age_s=0), 0)],
    ids=["without limits", "within the grace"],
)
def test_nothing_sound_goes(site: Site, policy: GcPolicy, in_s: float) -> None:
    site.build(1, 2)

    report = site.collect(policy, in_s=in_s)

    assert (report.removed, report.blobs, report.kept_entries) == ((), 0, 2)
    assert site.seeds() == [1, 2]


def test_what_was_not_used_for_long_goes_with_its_blobs(site: Site) -> None:
    site.build(1, 2, 3)
    site.let_be_used(1, 40 * DAY)
    site.let_be_used(2, 20 * DAY)

    report = site.collect(MONTH, in_s=2 * HOUR)

    gone = [(row.key, row.reason, row.model) for row in report.removed]
    assert gone == [(key(1), "age", "model 1")]
    assert site.seeds() == [2, 3]
    assert site.is_whole()


def test_the_least_recently_used_go_until_the_rest_fits(site: Site) -> None:
    site.build(1, 2, 3)
    for seed, ago in ((1, 3 * HOUR), (2, 9 * HOUR), (3, 6 * HOUR)):
        site.let_be_used(seed, ago)
    one = 700 + 11  # its tensors and its program; config.json is shared by all

    report = site.collect(GcPolicy(max_bytes=2 * one, grace_s=0))

    assert [row.key for row in report.removed] == [key(2), key(3)]
    assert [(row.reason, row.bytes) for row in report.removed] == [("size", one)] * 2
    assert (report.bytes, report.kept_bytes) == (2 * one, one + 2)
    assert site.seeds() == [1]
    assert site.is_whole()


def test_a_hit_counts_as_use(site: Site) -> None:
    site.build(1, 2)
    site.let_be_used(1, 40 * DAY)
    site.let_be_used(2, 40 * DAY)
    site.take(1)

    site.collect(MONTH, in_s=2 * HOUR)

    assert site.seeds() == [1]


def test_a_dry_run_says_the_same_and_changes_nothing(site: Site) -> None:
    site.build(1, 2)
    before = files_below(site.root)

    dry = site.collect(dry_run=True)
    after = files_below(site.root)
    done = site.collect()

    assert after == before
    assert (dry.dry_run, done.dry_run) == (True, False)
    assert [row.key for row in dry.removed] == [row.key for row in done.removed]
    assert (dry.bytes, dry.blobs) == (done.bytes, done.blobs)
    assert dry.by_model() == {
        ("quantized-checkpoint", "model 1"): dry.removed[0].bytes,
        ("quantized-checkpoint", "model 2"): dry.removed[1].bytes,
    }
    assert sum(dry.by_model().values()) == dry.bytes


def test_blobs_no_entry_names_go_after_the_grace(site: Site) -> None:
    site.build(1, 2)
    site.store.delete(address(1))

    assert site.collect(GcPolicy()).blobs == 0
    report = site.collect(GcPolicy(), in_s=2 * HOUR)

    assert (report.blobs, report.orphan_bytes) == (2, report.bytes)
    assert site.is_whole()
    assert site.seeds() == [2]


BY_KEY, BY_LABEL = Pin(keys=(key(1),)), Pin(labels={"model": "model 1"})


@pytest.mark.parametrize(
    "pin", [BY_KEY, Pin(where={"/calibration/seed": 1}), BY_LABEL], ids=["key", "query", "label"]
)
def test_what_is_pinned_stays(site: Site, pin: Pin) -> None:
    site.build(1, 2)
    site.pins.add("production", pin)

    report = site.collect(RUTHLESS, in_s=1000 * DAY)

    assert site.seeds() == [1]
    assert report.pinned_entries == 1
    assert site.take(1).hit


@pytest.mark.parametrize("pin, left", [(BY_LABEL, 1), (None, 0)])
def test_a_damaged_entry_is_held_for_what_it_says(site: Site, pin: Pin | None, left: int) -> None:
    """Nobody judges 100,000 entries to remove a few."""
    site.build(1)
    [path] = site.entries()
    damage(path, path.read_bytes().replace(b'"build_s":', b'"build_s":1'))
    if pin:
        site.pins.add("production", pin)

    site.collect()

    assert len(site.entries()) == left


@pytest.mark.parametrize("data", [b"", b"{", b'{"schema":2}', b'{"keys":[1]}'])
def test_a_pin_that_cannot_be_read_stops_the_collector(site: Site, data: bytes) -> None:
    site.build(1)
    site.pin(1)
    damage(site.root / "pins/release.json", data)

    with pytest.raises(UnusablePin, match="'release'"):
        site.collect()
    assert site.seeds() == [1]


@pytest.mark.parametrize(
    ("name", "pin"),
    [*((name, BY_KEY) for name in ("", "../x", ".x", "a/b", "x" * 101)), ("holds nothing", Pin())],
)
def test_a_pin_has_a_plain_name_and_holds_something(site: Site, name: str, pin: Pin) -> None:
    with pytest.raises(UnusablePin, match="holds nothing" if pin == Pin() else None):
        site.pins.add(name, pin)


def test_a_pin_set_meanwhile_is_heeded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build(1)
    collecting = local.LocalStore.collecting

    def pin_first(self: LocalStore, wait_s: float):  # type: ignore[no-untyped-def]
        site.pin(1, "late")
        return collecting(self, wait_s)

    monkeypatch.setattr(local.LocalStore, "collecting", pin_first)
    assert site.collect().removed == ()
    assert site.seeds() == [1]
    assert site.is_whole()


def build_meanwhile(monkeypatch: pytest.MonkeyPatch, site: Site, seed: int) -> None:
    """Let somebody get or build after the collector has looked, before it locks."""
    entries = gc._Collection.entries

    def before_others(self: gc._Collection, blobs: Container[str]) -> list[gc.SeenEntry]:
        found = list(entries(self, blobs))
        site.take(seed, "meanwhile", b"tensor1")
        return found

    monkeypatch.setattr(gc._Collection, "entries", before_others)


def test_what_is_used_meanwhile_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build(1)
    site.let_be_used(1, DAY)
    build_meanwhile(monkeypatch, site, 1)

    assert site.collect().removed == ()
    assert site.take(1).hit


def test_blobs_published_again_meanwhile_stay(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another entry with the same files: its blobs were garbage a moment ago."""
    site.build(1)
    site.store.delete(address(1))
    build_meanwhile(monkeypatch, site, 2)

    site.collect(in_s=DAY)  # a clock that runs ahead must not matter

    result = site.take(2)
    assert result.hit
    assert files_below(result.path) == files_of(b"tensor1")


def test_a_reader_of_an_entry_that_was_just_collected_misses(site: Site) -> None:
    site.build(1)
    found = stored(site.store, document(1))
    site.collect()

    (site.work / "out").mkdir()
    with pytest.raises(StoreUnavailable, match="removed meanwhile"):
        found.extract(site.work / "out")
    assert site.quarantine() == []


def test_an_entry_of_a_later_version_and_all_it_names_stay(site: Site) -> None:
    site.build(1)
    [path] = site.entries()
    blob = next(path for path in site.blobs() if path.read_bytes() == b"{}").name
    later = b'"schema":2,"x":"%s"' % blob.encode()
    check = hashlib.sha256(b"packager-entry-v1\n{" + later + b"}").hexdigest()
    data = b'{"check":"%s",%s}' % (check.encode(), later)
    damage(path, data)

    site.collect(RUTHLESS, in_s=1000 * DAY)

    assert path.read_bytes() == data
    assert [path.name for path in site.blobs()] == [blob]


def test_clocks_that_jumped_lose_nothing_pinned_or_used(site: Site) -> None:
    site.build(1, 2)
    site.let_be_used(1, -400 * DAY)  # used in the future
    site.pin(2)

    for in_s in (-DAY, DAY, -400 * DAY):
        site.collect(GcPolicy(max_bytes=0, max_age_s=DAY), in_s=in_s)

    assert 2 in site.seeds()
    assert site.is_whole()


def test_a_store_that_cannot_be_written_is_not_collected(site: Site) -> None:
    site.root.touch()
    with pytest.raises(StoreUnavailable, match="not a directory"):
        site.collect()


def test_an_unreadable_entry_lets_no_blob_go(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build(1)

    def broken_disk(path: Path, most: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("artifact_cache.gc.bounded_bytes", broken_disk)
    foreseen = site.collect(dry_run=True)
    report = site.collect()
    monkeypatch.undo()

    assert "cannot be read: input/output error" in report.problem
    assert (foreseen.blobs, foreseen.bytes) == (0, 0)
    assert site.seeds() == [1]
    assert site.is_whole()


def test_signed_entries_keep_their_blobs(site: Site) -> None:
    generate_key(site.work / "key.pem")
    cache = site.open(signer=load_signer(site.work / "key.pem"))
    cache.get_or_build(NEURON, Build(), site.work / "a")

    site.collect(GcPolicy(), in_s=10 * DAY)

    assert cache.get_or_build(NEURON, Build(), site.work / "b").hit


def test_collecting_raises_only_what_the_cache_explains(site: Site) -> None:
    site.build(1)
    (site.root / "locks/gc.lock").unlink()
    (site.root / "locks/gc.lock").mkdir()
    with suppress(CacheError):
        site.collect()
    assert site.is_whole()


def actions(site: Site) -> list[str]:
    return [one.action for one in site.check().problems]


@pytest.mark.parametrize("pin", [BY_KEY, BY_LABEL], ids=["by key", "by label"])
def test_what_is_pinned_stays_whole_while_its_entry_is_in_quarantine(site: Site, pin: Pin) -> None:
    """A blob was lost for a moment; a check set the entry aside; a collector ran."""
    site.build(1)
    site.pins.add("release", pin)
    lost = max(site.blobs(), key=lambda path: path.stat().st_size)
    lost.rename(site.work / "lost")
    assert actions(site) == ["set-aside"]

    report = site.collect(in_s=30 * DAY)

    assert (report.blobs, report.bytes) == (0, 0)
    (site.work / "lost").rename(lost)
    assert actions(site) == ["restored"]
    assert site.seeds() == [1]
    assert site.is_whole()


def test_a_blob_in_quarantine_stays_while_a_pin_needs_it(site: Site) -> None:
    site.build(1)
    site.pin(1)
    for path in site.blobs():
        site.store.set_aside(path, ".blob")
    site.set_aside(1)

    site.collect(in_s=30 * DAY)

    assert set(actions(site)) == {"restored"}
    assert site.seeds() == [1]


def test_what_no_pin_holds_leaves_quarantine_as_before(site: Site) -> None:
    site.build(1)
    site.pin(2)
    site.set_aside(1)

    assert site.collect(in_s=30 * DAY).blobs == 3
    assert site.quarantine() == []
