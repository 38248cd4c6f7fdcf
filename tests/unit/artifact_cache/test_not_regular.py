"""Pipes, sockets, devices, links and directories where the cache expects files of its own.

Opening a pipe waits for a writer.  Each case runs in a process of its own with an alarm, so that
a wait fails the test instead of stopping all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from artifact_cache.errors import UnusableKeys, UnusablePin
from artifact_cache.files import NotRegular, bounded_bytes, open_regular, sha256_of
from artifact_cache.key import key_of
from artifact_cache.pins import Pin, Pins
from artifact_cache.store import address_of
from artifact_cache.trust import load_signer, load_trusted_keys
from tests.support.cache_entries import CHECKPOINT, Build
from tests.support.cache_opening import LocalStore, open_local
from tests.support.odd_files import ODD_FILES, pipe

every_kind = pytest.mark.parametrize("make", ODD_FILES, ids=lambda make: make.__name__)


@every_kind
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


@every_kind
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
