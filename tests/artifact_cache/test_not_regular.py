"""Pipes, sockets, devices, links and directories where the cache expects files of its own.

Opening a pipe waits for a writer.  Each case runs in a process of its own with an alarm, so that
a wait fails the test instead of stopping all of them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from artifact_cache.cache import open_local
from artifact_cache.errors import UnusableKeys, UnusablePin
from artifact_cache.files import NotRegular, bounded_bytes, open_regular, sha256_of
from artifact_cache.key import key_of
from artifact_cache.pins import Pin, Pins
from artifact_cache.store import address_of
from artifact_cache.stores.local import LocalStore
from artifact_cache.trust import load_signer, load_trusted_keys
from tests.artifact_cache.samples import CHECKPOINT, Build

HANGS_AFTER_S = 60  # processor speed decides nothing: what hangs, hangs for ever


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            one.bind(f"/proc/self/fd/{here}/{path.name}")  # a path may have 108 bytes
        finally:
            os.close(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # zero
    except PermissionError:
        if os.environ.get("CI"):
            raise
        pytest.skip("making devices needs root")


def link(path: Path) -> None:
    target = path.with_name(f"{path.name}-elsewhere")
    target.write_bytes(b"{}")
    path.symlink_to(target)


def directory(path: Path) -> None:
    path.mkdir()


KINDS: list[Callable[[Path], None]] = [pipe, unix_socket, device, link, directory]

# What processes do with a cache: take, build and publish, list, explain, verify, collect.
USE = """
import signal, sys
from pathlib import Path
signal.alarm({seconds})
from artifact_cache import Index
from artifact_cache.cache import open_local
from artifact_cache.errors import CacheError
from artifact_cache.fsck import check
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.stores.local import LocalStore
from tests.artifact_cache.samples import CHECKPOINT, Build, document, files_below, files_of

root, into = Path(sys.argv[1]), Path(sys.argv[2])
for number, wanted in enumerate((CHECKPOINT, document(7))):
    cache = open_local(root, wait_s=1)
    result = cache.get_or_build(wanted, Build(b"tensors"), into / str(number))
    assert files_below(result.path) == files_of(b"tensors")
    cache.explain(wanted)
    cache.failure(wanted)
for work in (
    lambda: list(LocalStore(root).list()),
    lambda: Index(root).summaries(),
    lambda: cache.stats.totals(),
    lambda: check(LocalStore(root)),
    lambda: collect(LocalStore(root), GcPolicy(grace_s=0)),
):
    try:
        work()
    except (CacheError, OSError) as error:
        print(type(error).__name__, error)
"""


def use(root: Path, into: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USE.format(seconds=HANGS_AFTER_S), str(root), str(into)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_an_entry_that_is_no_file_is_set_aside_and_built_again(
    root: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    open_local(root).get_or_build(CHECKPOINT, Build(b"tensors"), tmp_path / "built")
    entry = LocalStore(root).entry_path(address_of(CHECKPOINT))
    entry.unlink()
    make(entry)

    first = open_local(root).get_or_build(CHECKPOINT, Build(b"tensors"), tmp_path / "a")
    second = open_local(root).get_or_build(CHECKPOINT, Build(b"tensors"), tmp_path / "b")

    assert [notice.code for notice in first.notices] == ["corrupt"]
    assert (first.hit, first.stored, second.hit) == (False, True, True)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_no_file_is_never_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "odd"
    make(path)

    for read in (open_regular, sha256_of, lambda one: bounded_bytes(one, 10)):
        with pytest.raises(NotRegular, match="it is not a regular file"):
            read(path)


def test_a_pin_that_is_a_pipe_stops_the_collector(root: Path, tmp_path: Path) -> None:
    open_local(root).get_or_build(CHECKPOINT, Build(b"tensors"), tmp_path / "built")
    pins = Pins(LocalStore(root))
    pins.add("release", Pin(keys=(key_of(CHECKPOINT),)))
    (root / "pins/release.json").unlink()
    pipe(root / "pins/release.json")

    with pytest.raises(UnusablePin, match="it is not a regular file"):
        pins.all()


@pytest.mark.parametrize("load", [load_trusted_keys, load_signer], ids=["trusted", "signing"])
def test_keys_that_are_a_pipe_are_refused(tmp_path: Path, load: Callable[[Path], object]) -> None:
    pipe(tmp_path / "keys")

    with pytest.raises(UnusableKeys, match="it is not a regular file"):
        load(tmp_path / "keys")


def test_a_list_of_trusted_keys_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text('{"schema":1,"keys":{}}')
    (tmp_path / "here.json").symlink_to("there.json")

    assert load_trusted_keys(tmp_path / "here.json") == {}
