"""What is collected: the old, the many, the litter; never the pinned, the new, the used."""

from __future__ import annotations

import os
import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

import pytest

from artifact_cache import gc
from artifact_cache.cache import ArtifactCache
from artifact_cache.entry import parse_entry
from artifact_cache.errors import CacheError, StoreUnavailable, UnusablePin
from artifact_cache.fsck import check
from artifact_cache.gc import Collected, GcPolicy, collect
from artifact_cache.key import KeyDocument, key_of
from artifact_cache.pins import Pin, Pins
from artifact_cache.store import address_of
from artifact_cache.stores import local
from tests.support.cache_entries import (
    NEURON,
    NEWER,
    Build,
    document,
    files_below,
    files_of,
)
from tests.support.cache_opening import LocalStore, open_local

HOUR = 3600.0
DAY = 24 * HOUR
AT_ONCE = GcPolicy(max_bytes=0, grace_s=0)


def built(root: Path, tmp_path: Path, *seeds: int) -> None:
    """Build an entry per seed, of 700 bytes and a little, and let go of the files."""
    for seed in seeds:
        into = tmp_path / f"built{seed}"
        labels = {"model": f"model {seed}"}
        content = f"tensor{seed}".encode()
        open_local(root).get_or_build(document(seed), Build(content), into, labels=labels)


def used(root: Path, seed: int, ago_s: float) -> None:
    """Let the last use, and the publishing, of an entry be a while ago."""
    address = address_of(document(seed))
    store = LocalStore(root)
    use = store.use_path(address.key)
    use.parent.mkdir(parents=True, exist_ok=True)
    use.touch()
    for path in (use, store.entry_path(address)):
        os.utime(path, (time.time() - ago_s, time.time() - ago_s))


def later(seconds: float) -> float:
    return time.time() + seconds


def collected(root: Path, policy: GcPolicy, *, in_s: float = 1, dry_run: bool = False) -> Collected:
    return collect(LocalStore(root), policy, dry_run=dry_run, clock=lambda: later(in_s))


def seeds_left(root: Path) -> list[int]:
    return [seed for seed in range(10) if open_local(root).find(document(seed))]


def is_whole(root: Path) -> bool:
    """Say whether every entry has all its blobs, and no blob is without an entry."""
    named = {
        output.sha256
        for path in root.glob("ac/*/*/*.json")
        for output in parse_entry(path.read_bytes()).outputs
    }
    return named == {path.name for path in root.glob("cas/*/*/*")}


def test_without_limits_nothing_sound_goes(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2)

    report = collected(root, GcPolicy(), in_s=1000 * DAY)

    assert (report.removed, report.blobs, report.kept_entries) == ((), 0, 2)
    assert seeds_left(root) == [1, 2]


def test_what_was_not_used_for_long_goes_with_its_blobs(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2, 3)
    used(root, 1, 40 * DAY)
    used(root, 2, 20 * DAY)

    report = collected(root, GcPolicy(max_age_s=30 * DAY), in_s=2 * HOUR)

    assert [(row.key, row.reason, row.model) for row in report.removed] == [
        (key_of(document(1)), "age", "model 1")
    ]
    assert seeds_left(root) == [2, 3]
    assert is_whole(root)


def test_the_least_recently_used_go_until_the_rest_fits(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2, 3)
    for seed, ago in ((1, 3 * HOUR), (2, 9 * HOUR), (3, 6 * HOUR)):
        used(root, seed, ago)
    one = 700 + 11  # its tensors and its program; config.json is shared by all

    report = collected(root, GcPolicy(max_bytes=2 * one, grace_s=0))

    assert [row.key for row in report.removed] == [
        key_of(document(2)),
        key_of(document(3)),
    ]
    assert [(row.reason, row.bytes) for row in report.removed] == [("size", one)] * 2
    assert report.bytes == 2 * one
    assert report.kept_bytes == one + 2
    assert seeds_left(root) == [1]
    assert is_whole(root)


def test_a_hit_counts_as_use(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2)
    used(root, 1, 40 * DAY)
    used(root, 2, 40 * DAY)
    open_local(root).get_or_build(document(1), Build(), tmp_path / "hit")

    collected(root, GcPolicy(max_age_s=30 * DAY), in_s=2 * HOUR)

    assert seeds_left(root) == [1]


def test_within_the_grace_nothing_goes(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)

    report = collected(root, GcPolicy(max_bytes=0, max_age_s=0))

    assert (report.removed, report.blobs) == ((), 0)
    assert seeds_left(root) == [1]


def test_a_dry_run_says_the_same_and_changes_nothing(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2)
    before = files_below(root)

    dry = collected(root, AT_ONCE, dry_run=True)
    after = files_below(root)
    done = collected(root, AT_ONCE)

    assert after == before
    assert (dry.dry_run, done.dry_run) == (True, False)
    assert [row.key for row in dry.removed] == [row.key for row in done.removed]
    assert (dry.bytes, dry.blobs) == (done.bytes, done.blobs)
    assert dry.by_model() == {
        ("quantized-checkpoint", "model 1"): dry.removed[0].bytes,
        ("quantized-checkpoint", "model 2"): dry.removed[1].bytes,
    }
    assert sum(dry.by_model().values()) == dry.bytes


def test_blobs_no_entry_names_go_after_the_grace(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2)
    LocalStore(root).delete(address_of(document(1)))

    assert collected(root, GcPolicy()).blobs == 0
    report = collected(root, GcPolicy(), in_s=2 * HOUR)

    assert (report.blobs, report.orphan_bytes) == (2, report.bytes)
    assert is_whole(root)
    assert seeds_left(root) == [2]


@pytest.mark.parametrize(
    "pin",
    [
        pytest.param(Pin(keys=(key_of(document(1)),)), id="key"),
        pytest.param(Pin(where={"/calibration/seed": 1}), id="query"),
        pytest.param(Pin(labels={"model": "model 1"}), id="label"),
    ],
)
def test_what_is_pinned_stays(root: Path, tmp_path: Path, pin: Pin) -> None:
    built(root, tmp_path, 1, 2)
    Pins(LocalStore(root)).add("production", pin)

    report = collected(root, GcPolicy(max_bytes=0, max_age_s=0, grace_s=0), in_s=1000 * DAY)

    assert seeds_left(root) == [1]
    assert report.pinned_entries == 1
    assert open_local(root).get_or_build(document(1), Build(), tmp_path / "hit").hit


@pytest.mark.parametrize("pin, left", [(Pin(labels={"model": "model 1"}), 1), (None, 0)])
def test_a_damaged_entry_is_held_for_what_it_says_and_else_ages(
    root: Path, tmp_path: Path, pin: Pin | None, left: int
) -> None:
    """Nobody judges 100,000 entries to remove a few."""
    built(root, tmp_path, 1)
    path = next(root.glob("ac/*/*/*.json"))
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'"build_s":', b'"build_s":1'))
    if pin:
        Pins(LocalStore(root)).add("production", pin)

    collected(root, AT_ONCE)

    assert len(list(root.glob("ac/*/*/*.json"))) == left


def test_a_query_holds_what_is_built_later(root: Path, tmp_path: Path) -> None:
    Pins(LocalStore(root)).add("all", Pin(where={"/kind": "quantized-checkpoint"}))
    built(root, tmp_path, 1)

    collected(root, AT_ONCE)

    assert seeds_left(root) == [1]


def test_what_is_unpinned_goes(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    pins = Pins(LocalStore(root))
    pins.add("production", Pin(keys=(key_of(document(1)),)))
    assert list(pins.all()) == ["production"]

    assert pins.remove("production")
    assert not pins.remove("production")
    collected(root, AT_ONCE)

    assert seeds_left(root) == []


@pytest.mark.parametrize("data", [b"", b"{", b'{"schema":2}', b'{"keys":[1]}'])
def test_a_pin_that_cannot_be_read_stops_the_collector(
    root: Path, tmp_path: Path, data: bytes
) -> None:
    built(root, tmp_path, 1)
    Pins(LocalStore(root)).add("production", Pin(keys=(key_of(document(1)),)))
    path = root / "pins/production.json"
    path.chmod(0o644)
    path.write_bytes(data)

    with pytest.raises(UnusablePin, match="'production'"):
        collected(root, AT_ONCE)
    assert seeds_left(root) == [1]


@pytest.mark.parametrize("name", ["", "../x", ".x", "a/b", "x" * 101])
def test_a_pin_has_a_plain_name(root: Path, name: str) -> None:
    with pytest.raises(UnusablePin):
        Pins(LocalStore(root)).add(name, Pin(keys=("a" * 64,)))


def test_a_pin_that_holds_nothing_is_refused(root: Path) -> None:
    with pytest.raises(UnusablePin, match="holds nothing"):
        Pins(LocalStore(root)).add("empty", Pin())


def test_a_pin_set_while_the_collector_looks_is_heeded(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(root, tmp_path, 1)
    collecting = local.LocalStore.collecting

    def pin_first(self: LocalStore, wait_s: float):  # type: ignore[no-untyped-def]
        Pins(LocalStore(root)).add("late", Pin(keys=(key_of(document(1)),)))
        return collecting(self, wait_s)

    monkeypatch.setattr(local.LocalStore, "collecting", pin_first)
    report = collected(root, AT_ONCE)

    assert report.removed == ()
    assert seeds_left(root) == [1]
    assert is_whole(root)


def between_looking_and_removing(
    monkeypatch: pytest.MonkeyPatch, root: Path, document: KeyDocument
) -> None:
    """Let somebody get or build after the collector has looked, before it locks."""
    entries = gc._Collection.entries

    def before_others(self: gc._Collection, blobs: Container[str]) -> list[gc.SeenEntry]:
        found = list(entries(self, blobs))
        open_local(root).get_or_build(document, Build(b"tensor1"), root.parent / "meanwhile")
        return found

    monkeypatch.setattr(gc._Collection, "entries", before_others)


def test_what_is_used_while_the_collector_looks_stays(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(root, tmp_path, 1)
    used(root, 1, DAY)
    between_looking_and_removing(monkeypatch, root, document(1))

    report = collected(root, AT_ONCE)

    assert report.removed == ()
    assert open_local(root).get_or_build(document(1), Build(), tmp_path / "hit").hit


def test_blobs_published_again_while_the_collector_looks_stay(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another entry with the same files: its blobs were garbage a moment ago."""
    built(root, tmp_path, 1)
    LocalStore(root).delete(address_of(document(1)))
    between_looking_and_removing(monkeypatch, root, document(2))

    collected(root, AT_ONCE, in_s=DAY)  # a clock that runs ahead must not matter

    result = open_local(root).get_or_build(document(2), Build(b"other"), tmp_path / "hit")
    assert result.hit
    assert files_below(result.path) == files_of(b"tensor1")


def test_a_reader_of_an_entry_that_was_just_collected_misses(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    stored = LocalStore(root).get(address_of(document(1)))
    assert stored is not None
    collected(root, AT_ONCE)

    (tmp_path / "out").mkdir()
    with pytest.raises(StoreUnavailable, match="removed meanwhile"):
        stored.extract(tmp_path / "out")
    assert list(root.glob("quarantine/*")) == []


def test_an_entry_of_a_later_version_and_all_it_names_stay(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    path = next(root.glob("ac/*/*/*.json"))
    blob = next(path for path in root.glob("cas/*/*/*") if path.read_bytes() == b"{}").name
    path.chmod(0o644)
    path.write_bytes(NEWER.replace(b'"schema":2', b'"x":"%s","schema":2' % blob.encode()))
    data = with_check(path.read_bytes())
    path.write_bytes(data)

    collected(root, GcPolicy(max_bytes=0, max_age_s=0, grace_s=0), in_s=1000 * DAY)

    assert path.read_bytes() == data
    assert [path.name for path in root.glob("cas/*/*/*")] == [blob]


def with_check(data: bytes) -> bytes:
    import hashlib
    import json

    plain = {name: value for name, value in json.loads(data).items() if name != "check"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    check = hashlib.sha256(b"packager-entry-v1\n" + text).hexdigest()
    return json.dumps({**plain, "check": check}, sort_keys=True, separators=(",", ":")).encode()


def test_clocks_that_jumped_lose_nothing_pinned_or_used(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2)
    used(root, 1, -400 * DAY)  # used in the future
    Pins(LocalStore(root)).add("two", Pin(keys=(key_of(document(2)),)))

    for in_s in (-DAY, DAY, -400 * DAY):
        collected(root, GcPolicy(max_bytes=0, max_age_s=DAY), in_s=in_s)

    assert 2 in seeds_left(root)
    assert is_whole(root)


def test_a_store_that_cannot_be_written_is_not_collected(root: Path) -> None:
    root.touch()
    with pytest.raises(StoreUnavailable, match="not a directory"):
        collected(root, AT_ONCE)


def test_an_unreadable_entry_lets_no_blob_go(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(root, tmp_path, 1)

    def broken_disk(path: Path, most: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("artifact_cache.gc.bounded_bytes", broken_disk)
    foreseen = collected(root, AT_ONCE, dry_run=True)
    report = collected(root, AT_ONCE)
    monkeypatch.undo()

    assert "cannot be read: input/output error" in report.problem
    assert (foreseen.blobs, foreseen.bytes) == (0, 0)
    assert seeds_left(root) == [1]
    assert is_whole(root)


def test_signed_entries_keep_their_blobs(root: Path, tmp_path: Path) -> None:
    from artifact_cache.trust import generate_key, load_signer

    generate_key(tmp_path / "key.pem")
    cache: ArtifactCache = open_local(root, signer=load_signer(tmp_path / "key.pem"))
    cache.get_or_build(NEURON, Build(), tmp_path / "a")

    collected(root, GcPolicy(), in_s=10 * DAY)

    assert cache.get_or_build(NEURON, Build(), tmp_path / "b").hit


def test_collecting_raises_only_what_the_cache_explains(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    (root / "locks/gc.lock").unlink()
    (root / "locks/gc.lock").mkdir()
    with suppress(CacheError):
        collected(root, AT_ONCE)
    assert is_whole(root)


@pytest.mark.parametrize(
    "pin",
    [Pin(keys=(key_of(document(1)),)), Pin(labels={"model": "model 1"})],
    ids=["by key", "by label"],
)
def test_what_is_pinned_stays_whole_while_its_entry_is_in_quarantine(
    root: Path, tmp_path: Path, pin: Pin
) -> None:
    """A blob was lost for a moment; a check set the entry aside; a collector ran."""
    built(root, tmp_path, 1)
    Pins(LocalStore(root)).add("release", pin)
    lost = max(root.glob("cas/*/*/*"), key=lambda path: path.stat().st_size)
    lost.rename(tmp_path / "lost")
    assert [one.action for one in check(LocalStore(root)).problems] == ["set-aside"]

    report = collected(root, AT_ONCE, in_s=30 * DAY)

    assert (report.blobs, report.bytes) == (0, 0)
    (tmp_path / "lost").rename(lost)
    assert [one.action for one in check(LocalStore(root)).problems] == ["restored"]
    assert seeds_left(root) == [1]
    assert is_whole(root)


def test_a_blob_in_quarantine_stays_while_a_pin_needs_it(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    Pins(LocalStore(root)).add("release", Pin(keys=(key_of(document(1)),)))
    store = LocalStore(root)
    for path in (*root.glob("cas/*/*/*"), *root.glob("ac/*/*/*")):
        store.set_aside(path, ".json" if path.suffix else ".blob")

    collected(root, AT_ONCE, in_s=30 * DAY)

    assert {one.action for one in check(LocalStore(root)).problems} == {"restored"}
    assert seeds_left(root) == [1]


def test_what_no_pin_holds_leaves_quarantine_as_before(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    Pins(LocalStore(root)).add("release", Pin(keys=(key_of(document(2)),)))
    entry = next(root.glob("ac/*/*/*"))
    LocalStore(root).set_aside(entry, ".json")

    report = collected(root, AT_ONCE, in_s=30 * DAY)

    assert report.blobs == 3
    assert list(root.glob("quarantine/*")) == []
