"""Every JSON document of the cache is read by the strict parser: what is odd is a typed refusal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from artifact_cache import Index
from artifact_cache.entry import parse_entry
from artifact_cache.errors import MalformedEntry, Rejected, UnusableKeys, UnusablePin
from artifact_cache.fsck import check
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.key import key_of
from artifact_cache.negative import Failures
from artifact_cache.pins import Pins
from artifact_cache.stats import StatsLog
from artifact_cache.store import address_of
from artifact_cache.trust import load_trusted_keys
from tests.support.cache_entries import CHECKPOINT, Build, files_of
from tests.support.cache_opening import LocalStore, open_local
from tests.support.cases import cases
from tests.support.places import files_below

every_odd = cases("odd")


@every_odd
def test_an_odd_pin_is_refused(root: Path, tmp_path: Path, odd: bytes) -> None:
    open_local(root).get_or_build(CHECKPOINT, Build(), tmp_path / "built")
    (root / "pins").mkdir()
    (root / "pins/release.json").write_bytes(odd)

    with pytest.raises(UnusablePin, match="it is damaged or of a later version"):
        collect(LocalStore(root), GcPolicy())


def test_a_pin_whose_keys_stand_twice_is_refused(root: Path) -> None:
    """One reader would keep the first list, another the second."""
    (root / "pins").mkdir(parents=True)
    first, second = json.dumps([key_of(CHECKPOINT)]), json.dumps(["0" * 64])
    (root / "pins/release.json").write_text(f'{{"schema":1,"keys":{first},"keys":{second}}}')

    with pytest.raises(UnusablePin):
        Pins(LocalStore(root)).all()


@every_odd
def test_an_odd_list_of_keys_is_refused(tmp_path: Path, odd: bytes) -> None:
    (tmp_path / "keys.json").write_bytes(odd)

    with pytest.raises(UnusableKeys):
        load_trusted_keys(tmp_path / "keys.json")


@every_odd
def test_an_odd_entry_is_malformed(odd: bytes) -> None:
    with pytest.raises(MalformedEntry):
        parse_entry(odd)


@every_odd
def test_an_odd_stamp_does_not_fit(root: Path, tmp_path: Path, odd: bytes) -> None:
    open_local(root).get_or_build(CHECKPOINT, Build(b"tensors"), tmp_path / "built")
    for blob in root.glob("cas/*/*/*"):
        stamp = LocalStore(root).stamp_path(blob.name)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_bytes(odd)

    result = open_local(root).get_or_build(CHECKPOINT, Build(b"other"), tmp_path / "out")

    assert (result.hit, result.notices) == (True, ())
    assert files_below(result.path) == files_of(b"tensors")


@every_odd
def test_an_odd_failure_is_none(root: Path, odd: bytes) -> None:
    address = address_of(CHECKPOINT)
    failures = Failures(root / "neg")
    failures.record(address, Rejected("no"), 1795000000)
    [path] = root.glob("neg/*/*/*.json")
    path.write_bytes(odd)

    assert failures.get(address) is None
    assert not path.exists()


@every_odd
def test_an_odd_line_is_not_counted(root: Path, odd: bytes) -> None:
    root.mkdir()
    log = StatsLog(root / "stats.jsonl")
    log.count("hit", tier="local", kind="neuron")
    with (root / "stats.jsonl").open("ab") as file:
        file.write(odd + b"\n")
    log.count("hit", tier="local", kind="neuron")

    assert [(total.event, total.count) for total in log.totals()] == [("hit", 2)]


@every_odd
@pytest.mark.parametrize(
    "ask",
    [
        lambda root: Index(root).summaries(),
        lambda root: open_local(root).explain(CHECKPOINT),
        lambda root: collect(LocalStore(root), GcPolicy(max_bytes=0)),
        lambda root: check(LocalStore(root)),
        lambda root: list(LocalStore(root).list()),
    ],
    ids=["list", "explain", "collect", "verify", "store"],
)
def test_an_odd_file_among_entries_stops_nothing(
    root: Path, tmp_path: Path, odd: bytes, ask: Callable[[Path], object]
) -> None:
    open_local(root).get_or_build(CHECKPOINT, Build(), tmp_path / "built")
    stranger = root / "ac/quantized-checkpoint/00" / f"{'0' * 64}.json"
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(odd)

    ask(root)


def test_a_list_whose_keys_stand_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(b'{"schema":1,"keys":{},"keys":{}}')

    with pytest.raises(UnusableKeys, match="stands twice"):
        load_trusted_keys(tmp_path / "keys.json")
