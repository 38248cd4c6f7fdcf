"""Pipes, sockets, devices, links and directories where the cache expects files of its own.

Opening a pipe waits for a writer.  Each case runs in a process of its own with an alarm, so that
a wait fails the test instead of stopping all of them.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from artifact_cache import Index
from artifact_cache.errors import CacheError
from artifact_cache.fsck import check
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.store import address_of
from tests.support.cache_entries import CHECKPOINT, Build, document, files_below, files_of
from tests.support.cache_opening import LocalStore, open_local
from tests.unit.artifact_cache.test_not_regular import KINDS

HANGS_AFTER_S = 300  # processor speed decides nothing: what hangs, hangs for ever


def work_with(root: Path, into: Path) -> None:
    """Do what processes do with a cache: take, build, publish, list, explain, verify, collect."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's own is inherited
    signal.alarm(HANGS_AFTER_S)
    for number, wanted in enumerate((CHECKPOINT, document(7))):
        cache = open_local(root, wait_s=1)
        result = cache.get_or_build(wanted, Build(b"tensors"), into / str(number))
        assert files_below(result.path) == files_of(b"tensors")
        cache.explain(wanted)
        cache.failure(wanted)
    works: tuple[Callable[[], object], ...] = (
        lambda: list(LocalStore(root).list()),
        lambda: Index(root).summaries(),
        lambda: cache.stats.totals(),
        lambda: check(LocalStore(root)),
        lambda: collect(LocalStore(root), GcPolicy(grace_s=0)),
    )
    for work in works:
        with suppress(CacheError, OSError):
            work()


def use(root: Path, into: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=work_with, args=(root, into))
    process.start()
    process.join()
    assert process.exitcode == 0


def places(root: Path) -> dict[str, Path]:
    store = LocalStore(root)
    address = address_of(CHECKPOINT)
    blob = max(root.glob("cas/*/*/*"), key=lambda path: path.stat().st_size)
    return {
        "entry": store.entry_path(address),
        "blob": blob,
        "stamp": store.stamp_path(blob.name),
        "VERSION": root / "VERSION",
        "use": store.use_path(address.key),
        "gc lock": root / "locks/gc.lock",
        "key lock": root / f"locks/{address.key}.lock",
        "failure": root / "neg" / address.kind / address.key[:2] / f"{address.key}.json",
        "stats": root / "stats.jsonl",
        "stats lock": root / "stats.jsonl.lock",
        "index": root / "index.sqlite",
        "partial": root / "partial/0.part",
        "quarantined entry": root / "quarantine/20260101T000000Z-0-0.json",
        "quarantined blob": root / "quarantine/20260101T000000Z-0-0.blob",
        "leftover": root / "tmp/1-0",
        "pin": root / "pins/release.json",
    }


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "place",
    [
        "entry",
        "blob",
        "stamp",
        "VERSION",
        "use",
        "gc lock",
        "key lock",
        "failure",
        "stats",
        "stats lock",
        "index",
        "partial",
        "quarantined entry",
        "quarantined blob",
        "leftover",
        "pin",
    ],
)
def test_nothing_hangs_on_what_is_no_file(
    root: Path, tmp_path: Path, place: str, make: Callable[[Path], None]
) -> None:
    open_local(root).get_or_build(CHECKPOINT, Build(b"tensors"), tmp_path / "built")
    path = places(root)[place]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)

    use(root, tmp_path)
