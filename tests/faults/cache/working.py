"""What a process does with the cache in these tests: one operation, to be traced and killed.

It works in one thread, so that the number of a system call stands for one place in the code.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import artifact_cache.cache
import artifact_cache.files
import artifact_cache.fsck
import artifact_cache.index  # imported here so that no run has to
import artifact_cache.opening
import artifact_cache.stores.archive
from artifact_cache.errors import BuildFailed, CacheError, Rejected
from artifact_cache.fsck import check
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.key import KeyDocument
from artifact_cache.pins import Pin, Pins
from artifact_cache.store import address_of
from artifact_cache.stores.archive import import_archive
from tests.support.cache_entries import CHECKPOINT, Build, document, files_of
from tests.support.cache_opening import LocalStore, open_cache, open_local
from tests.support.cache_stores import described
from tests.support.places import files_below

NOTHING_STAYS = GcPolicy(grace_s=0, partial_s=0, quarantine_s=0, failures_s=0)
HOUR_S = 3600
Item = TypeVar("Item")
Made = TypeVar("Made")


class OldBuild(Build):
    """Leaves files that were written long before the build ended, so that they are stamped."""

    def __call__(self, directory: Path) -> None:
        try:
            super().__call__(directory)
            past = time.time() - HOUR_S
            for path in directory.rglob("*"):
                os.utime(path, (past, past))
        except OSError as error:
            raise BuildFailed("the disk does not work") from error


def publish_straight(store: LocalStore, wanted: KeyDocument, content: bytes, at: Path) -> None:
    """Publish past the lock of the key, as another machine would; its own disk may fail, too."""
    try:
        at.mkdir()
        OldBuild(content)(at)
        entry = described(at, wanted).model_copy(update={"built_at": int(time.time())})
    except OSError:
        return
    store.put(entry, at)


# --- operations; each gives the files it ended with, if it was asked for files


def get_or_build(scene: Path) -> dict[str, bytes]:
    result = open_local(scene / "cache").get_or_build(CHECKPOINT, OldBuild(b"ours"), scene / "out")
    return files_below(result.path)


def adopt(scene: Path) -> dict[str, bytes]:
    """Another process publishes the key while this one builds."""

    def build(directory: Path) -> None:
        OldBuild(b"ours")(directory)
        with suppress(CacheError):
            publish_straight(LocalStore(scene / "cache"), CHECKPOINT, b"theirs", scene / "theirs")

    result = open_local(scene / "cache").get_or_build(CHECKPOINT, build, scene / "out")
    return files_below(result.path)


def fetch_far(scene: Path) -> dict[str, bytes]:
    cache = open_cache(scene / "cache", [f"dir:{scene / 'far'}"])
    return files_below(cache.get_or_build(CHECKPOINT, OldBuild(b"ours"), scene / "out").path)


def publish_far(scene: Path) -> dict[str, bytes]:
    return fetch_far(scene)


def reject(scene: Path) -> None:
    def build(_: Path) -> None:
        raise Rejected("no such shape")

    open_local(scene / "cache").get_or_build(document(9), build, scene / "out")


def gc(scene: Path) -> None:
    policy = GcPolicy(max_age_s=60, grace_s=0, partial_s=0, quarantine_s=0, failures_s=0)
    collect(LocalStore(scene / "cache"), policy)


def fsck(scene: Path) -> None:
    check(LocalStore(scene / "cache"))


def pin(scene: Path) -> None:
    Pins(LocalStore(scene / "cache")).add("second", Pin(keys=(address_of(CHECKPOINT).key,)))


def explain(scene: Path) -> None:
    open_local(scene / "cache").explain(document(9))


def unpack(scene: Path) -> None:
    store = LocalStore(scene / "cache")
    with store.scratch() as scratch, (scene / "archive").open("rb") as reader:
        import_archive(reader, store, scratch)


OPERATIONS: dict[str, Callable[[Path], dict[str, bytes] | None]] = {
    "publish": get_or_build,
    "fetch": get_or_build,
    "heal": get_or_build,
    "heal-entry": get_or_build,
    "adopt": adopt,
    "fetch-far": fetch_far,
    "publish-far": publish_far,
    "reject": reject,
    "gc": gc,
    "fsck": fsck,
    "pin": pin,
    "explain": explain,
    "unpack": unpack,
}


def work(operation: str, scene: str) -> None:
    """Do one operation once `go` is there; say in `said` how it ended."""
    in_one_thread()
    at = Path(scene)
    (at / "ready").touch()
    while not os.path.exists(at / "go"):  # noqa: PTH110 - one call, and not one that is counted
        time.sleep(0.001)
    said: dict[str, object] = {"error": "", "explained": True, "right": None}
    try:
        files = OPERATIONS[operation](at)
        if files is not None:
            said["right"] = files in (files_of(b"ours"), files_of(b"theirs"))
    except BaseException as error:
        said.update(error=repr(error), explained=isinstance(error, CacheError))
    (at / "said").write_text(json.dumps(said))


def in_one_thread() -> None:
    """Have every pool of the cache do its work where it is called."""
    for module in (artifact_cache.files, artifact_cache.fsck):
        module.ThreadPoolExecutor = _Inline  # type: ignore[attr-defined,misc]


class _Inline:
    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> _Inline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        pass

    def map(self, do: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
        return map(do, items)
