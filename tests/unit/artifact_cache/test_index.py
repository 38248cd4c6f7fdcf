"""The index answers as reading every entry would, and is never believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.index import Index
from artifact_cache.key import key_of, plain
from artifact_cache.locks import KeyLocks
from artifact_cache.store import address_of
from tests.support.cache_entries import CHECKPOINT, NEURON, NEWER, VLLM, Build, document
from tests.support.cache_opening import LocalStore, open_local


def built(root: Path, tmp_path: Path, *seeds: int) -> None:
    for seed in seeds:
        open_local(root).get_or_build(document(seed), Build(), tmp_path / f"built{seed}")


def listed(root: Path, kind: str | None = None) -> set[str]:
    return {summary.key for summary in Index(root).summaries(kind)}


def keys(*seeds: int) -> set[str]:
    return {key_of(document(seed)) for seed in seeds}


def test_entries_are_listed_as_they_come_and_go(root: Path, tmp_path: Path) -> None:
    assert listed(root) == set()
    built(root, tmp_path, 1, 2)
    assert listed(root) == keys(1, 2)
    LocalStore(root).delete(address_of(document(1)))
    built(root, tmp_path, 3)

    assert listed(root) == keys(2, 3)
    assert listed(root, "neuron") == set()


def test_a_summary_says_what_a_list_shows(root: Path, tmp_path: Path) -> None:
    labels = {"model": "tiny"}
    entry = open_local(root).get_or_build(NEURON, Build(), tmp_path / "a", labels=labels).entry
    assert entry is not None

    (summary,) = Index(root).summaries()

    assert (summary.kind, summary.key) == ("neuron", entry.key)
    assert (summary.built_at, summary.build_s) == (entry.built_at, entry.build_s)
    assert (summary.bytes, summary.labels) == (entry.total_bytes, labels)


def test_settled_shards_stay(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(root, tmp_path, 1, 2)
    for shard in root.glob("ac/*/*"):
        os.utime(shard, (1, 1))
    listed(root)
    read: list[Path] = []
    monkeypatch.setattr("artifact_cache.index._peek", read.append)

    assert listed(root) == keys(1, 2)
    assert read == []


@pytest.mark.parametrize("data", [b"", b"no database" * 1000, b"SQLite format 3\0" + b"x" * 4096])
def test_a_damaged_index_is_made_anew(root: Path, tmp_path: Path, data: bytes) -> None:
    built(root, tmp_path, 1)
    listed(root)
    (root / "index.sqlite").write_bytes(data)

    assert listed(root) == keys(1)


def test_an_index_of_another_form_is_made_anew(root: Path, tmp_path: Path) -> None:
    import sqlite3

    built(root, tmp_path, 1)
    listed(root)
    with sqlite3.connect(root / "index.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
        database.execute("DROP TABLE groups")
    database.close()

    assert listed(root) == keys(1)


def test_entries_that_cannot_be_read_are_left_out(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2, 3)
    for seed, data in ((1, b"{"), (2, NEWER)):
        path = LocalStore(root).entry_path(address_of(document(seed)))
        path.chmod(0o644)
        path.write_bytes(data)

    assert listed(root) == keys(3)


def test_it_explains_as_reading_all_would(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2)
    far = document(1).model_copy(update={"sharding": None, "calibration": None})
    open_local(root).get_or_build(far, Build(), tmp_path / "far")
    open_local(root).get_or_build(VLLM, Build(), tmp_path / "other kind")
    slow = ArtifactCache(LocalStore(root), KeyLocks(root / "locks"))

    for wanted in (document(1), document(7), CHECKPOINT, far):
        assert open_local(root).explain(wanted) == slow.explain(wanted)


def test_an_index_that_lies_is_not_believed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(root, tmp_path, 1)
    cache = open_local(root)
    monkeypatch.setattr(Index, "nearest", lambda *_: ("0" * 64, key_of(document(1))))

    assert [one.entry.key for one in cache.explain(document(2)).nearest] == [key_of(document(1))]


def test_ties_are_settled_by_age_and_key(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1, 2, 3)

    nearest = Index(root).nearest(plain(document(9)), 2)

    assert set(nearest) <= keys(1, 2, 3)
    built_at = {one.key: one.built_at for one in Index(root).summaries()}
    assert list(nearest) == sorted(nearest, key=lambda key: (-built_at[key], key))
