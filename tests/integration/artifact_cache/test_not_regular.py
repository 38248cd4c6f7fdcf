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
from tests.support.cache_entries import CHECKPOINT, Build, document, files_of
from tests.support.cache_opening import LocalStore, open_local
from tests.support.cases import cases
from tests.support.odd_files import ODD_FILES
from tests.support.places import files_below

pytestmark = pytest.mark.extended

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


def path_in(root: Path, place: str) -> Path:
    address = address_of(CHECKPOINT)
    blob = max(root.glob("cas/*/*/*"), key=lambda path: path.stat().st_size).name
    for name, value in (("KEY", address.key), ("KE", address.key[:2]), ("KIND", address.kind)):
        place = place.replace(name, value)
    return root / place.replace("BLOB", blob).replace("BL", blob[:2])


@pytest.mark.parametrize("make", ODD_FILES, ids=lambda make: make.__name__)
@cases("places")
def test_nothing_hangs_on_what_is_no_file(
    root: Path, tmp_path: Path, place: str, make: Callable[[Path], None]
) -> None:
    open_local(root).get_or_build(CHECKPOINT, Build(b"tensors"), tmp_path / "built")
    path = path_in(root, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)

    use(root, tmp_path)
