"""Every look-up is counted, by however many processes, and costs nobody anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.errors import Corrupt, NewerEntry, Rejected, StoreUnavailable, Untrusted
from artifact_cache.locks import KeyLocks
from artifact_cache.stats import StatsLog, Total, event_of, prometheus
from tests.support.cache_entries import Build, document
from tests.support.cache_opening import LocalStore, open_local
from tests.support.cases import cases, read_tables
from tests.support.doubles.stores import ReadOnlyStore

TABLES = read_tables(__file__)


def counts(root: Path) -> dict[tuple[str, str], int]:
    totals = StatsLog(root / "stats.jsonl").totals()
    return {(total.tier, total.event): total.count for total in totals}


def reject(directory: Path) -> None:
    raise Rejected("no")


def test_what_happened_is_counted(root: Path, cache: ArtifactCache, tmp_path: Path) -> None:
    cache.get_or_build(document(1), Build(), tmp_path / "a")
    cache.get_or_build(document(1), Build(), tmp_path / "b")
    cache.get_or_build(document(1), Build(), tmp_path / "c")
    with pytest.raises(Rejected):
        cache.get_or_build(document(2), reject, tmp_path / "d")
    with pytest.raises(Rejected):
        cache.get_or_build(document(2), reject, tmp_path / "e")

    told = {f"{event} {tier}": count for (tier, event), count in counts(root).items()}
    assert told == TABLES["what_happened"]


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (Corrupt("blob", "is lost"), "integrity"),
        (Untrusted("a" * 64, "it is not signed"), "policy"),
        (NewerEntry(2), "newer"),
        (StoreUnavailable("s3", "503"), "transport"),
        (OSError(5, "Input/output error"), "transport"),
    ],
)
def test_faults_are_told_apart(error: OSError, event: str) -> None:
    assert event_of(error) == event


def test_hits_say_what_they_saved(root: Path, tmp_path: Path) -> None:
    now = iter([0.0] * 100)
    cache = ArtifactCache(
        LocalStore(root),
        KeyLocks(root / "locks"),
        stats=StatsLog(root / "stats.jsonl"),
        clock=lambda: next(now),
    )
    built = cache.get_or_build(document(1), Build(), tmp_path / "a")
    cache.get_or_build(document(1), Build(), tmp_path / "b")
    assert built.entry is not None

    (hit,) = [total for total in cache.stats.totals() if total.event == "hit"]  # type: ignore[union-attr]
    assert (hit.tier, hit.kind, hit.count) == ("local", "quantized-checkpoint", 1)
    assert (hit.bytes, hit.seconds) == (built.entry.total_bytes, built.entry.build_s)


def test_compacting_changes_no_total(root: Path) -> None:
    root.mkdir()
    log = StatsLog(root / "stats.jsonl")
    for turn in range(10):
        log.count("hit", tier="local", kind="neuron", size=turn, seconds=0.5)
        log.count("miss", tier="all", kind="neuron")
    before = log.totals()

    log.compact()

    assert log.totals() == before == StatsLog(root / "stats.jsonl").totals()
    assert len((root / "stats.jsonl").read_text().splitlines()) == 2
    assert before[1] == Total(
        tier="local", kind="neuron", event="hit", count=10, bytes=45, seconds=5.0
    )


@cases("torn")
def test_an_unreadable_line_is_not_counted_and_costs_no_other(root: Path, torn: bytes) -> None:
    root.mkdir()
    path = root / "stats.jsonl"
    log = StatsLog(path)
    log.count("hit", tier="local", kind="neuron")
    with path.open("ab") as file:
        file.write(torn)
    log.count("hit", tier="local", kind="neuron")

    assert [total.count for total in log.totals()] == [2]


def test_where_nothing_can_be_written_nothing_is_counted(root: Path, tmp_path: Path) -> None:
    reader = ArtifactCache(
        ReadOnlyStore(LocalStore(root)),
        KeyLocks(root / "locks"),
        stats=StatsLog(root / "stats.jsonl"),
    )
    reader.get_or_build(document(1), Build(), tmp_path / "a")
    StatsLog(tmp_path / "nowhere/stats.jsonl").count("hit", tier="local", kind="neuron")

    assert not (root / "stats.jsonl").exists()
    assert not (tmp_path / "nowhere").exists()
    assert StatsLog(root / "stats.jsonl").totals() == ()


def test_a_line_is_small_and_plain(root: Path, tmp_path: Path) -> None:
    open_local(root).get_or_build(document(1), Build(), tmp_path / "a")

    lines = (root / "stats.jsonl").read_bytes().splitlines()
    assert all(len(line) < 4096 for line in lines)
    assert {tuple(json.loads(line)) for line in lines} == {
        ("tier", "kind", "event", "count", "bytes", "seconds")
    }


def test_totals_in_prometheus_form() -> None:
    total = Total(tier="local", kind='a"b', event="hit", count=3, bytes=30, seconds=1.5)

    text = prometheus((total,))

    labels = '{tier="local",kind="a\\"b",event="hit"}'
    assert text == TABLES["prometheus"].format(labels=labels)
