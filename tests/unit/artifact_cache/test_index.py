"""The index answers as reading every entry would, and is never believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.index import Index
from artifact_cache.key import plain
from artifact_cache.locks import KeyLocks
from tests.support.cache_entries import CHECKPOINT, NEURON, NEWER, VLLM, Build, document
from tests.support.cache_sites import Site, address, key
from tests.support.known import known


def listed(root: Path, kind: str | None = None) -> set[str]:
    return {summary.key for summary in Index(root).summaries(kind)}


def keys(*seeds: int) -> set[str]:
    return {key(seed) for seed in seeds}


def test_entries_are_listed_as_they_come_and_go(site: Site) -> None:
    assert listed(site.root) == set()
    site.build(1, 2)
    assert listed(site.root) == keys(1, 2)
    site.store.delete(address(1))
    site.build(3)

    assert listed(site.root) == keys(2, 3)
    assert listed(site.root, "neuron") == set()


def test_a_summary_says_what_a_list_shows(site: Site) -> None:
    labels = {"model": "tiny"}
    entry = known(site.open().get_or_build(NEURON, Build(), site.work / "a", labels=labels).entry)

    (summary,) = Index(site.root).summaries()

    assert (summary.kind, summary.key) == ("neuron", entry.key)
    assert (summary.built_at, summary.build_s) == (entry.built_at, entry.build_s)
    assert (summary.bytes, summary.labels) == (entry.total_bytes, labels)


def test_settled_shards_are_not_read_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build(1, 2)
    for shard in site.root.glob("ac/*/*"):
        os.utime(shard, (1, 1))
    listed(site.root)
    read: list[Path] = []
    monkeypatch.setattr("artifact_cache.index._peek", read.append)

    assert listed(site.root) == keys(1, 2)
    assert read == []


@pytest.mark.parametrize("data", [b"", b"no database" * 1000, b"SQLite format 3\0" + b"x" * 4096])
def test_a_damaged_index_is_made_anew(site: Site, data: bytes) -> None:
    site.build(1)
    listed(site.root)
    (site.root / "index.sqlite").write_bytes(data)

    assert listed(site.root) == keys(1)


def test_an_index_of_another_form_is_made_anew(site: Site) -> None:
    import sqlite3

    site.build(1)
    listed(site.root)
    with sqlite3.connect(site.root / "index.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
        database.execute("DROP TABLE groups")
    database.close()

    assert listed(site.root) == keys(1)


def test_entries_that_cannot_be_read_are_left_out(site: Site) -> None:
    site.build(1, 2, 3)
    for seed, data in ((1, b"{"), (2, NEWER)):
        path = site.store.entry_path(address(seed))
        path.chmod(0o644)
        path.write_bytes(data)

    assert listed(site.root) == keys(3)


def test_it_explains_as_reading_all_would(site: Site) -> None:
    site.build(1, 2)
    far = document(1).model_copy(update={"sharding": None, "calibration": None})
    site.open().get_or_build(far, Build(), site.work / "far")
    site.open().get_or_build(VLLM, Build(), site.work / "other kind")
    slow = ArtifactCache(site.store, KeyLocks(site.root / "locks"))

    for wanted in (document(1), document(7), CHECKPOINT, far):
        assert site.open().explain(wanted) == slow.explain(wanted)


def test_an_index_that_lies_is_not_believed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.build(1)
    cache = site.open()
    monkeypatch.setattr(Index, "nearest", lambda *_: ("0" * 64, key(1)))

    assert [one.entry.key for one in cache.explain(document(2)).nearest] == [key(1)]


def test_ties_are_settled_by_age_and_key(site: Site) -> None:
    site.build(1, 2, 3)

    nearest = Index(site.root).nearest(plain(document(9)), 2)

    assert set(nearest) <= keys(1, 2, 3)
    built_at = {one.key: one.built_at for one in Index(site.root).summaries()}
    assert list(nearest) == sorted(nearest, key=lambda key: (-built_at[key], key))
