"""Faults of all sorts on the way to a bucket: right files or a build, and no other end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.locks import KeyLocks
from artifact_cache.stores.tiered import Tier, TieredStore
from tests.faults.counters import never, tried
from tests.faults.scale import LONG
from tests.support.cache_buckets import PART, Place
from tests.support.cache_entries import CHECKPOINT, Build, files_of
from tests.support.cache_opening import LocalStore
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.places import files_below

ROUNDS = 200 if LONG else 8
ACTIONS = ("reset", "drop", "flip", "truncate", "cut", "answer", "answer", "half-close")
STATUSES = (200, 403, 404, 408, 409, 412, 429, 500, 503)


class LargeBuild(Build):
    """Leaves a file, too, that goes up in parts."""

    def __call__(self, directory: Path) -> None:
        super().__call__(directory)
        (directory / "large.bin").write_bytes(large(self.content))


def large(content: bytes) -> bytes:
    return content * (PART // len(content) + 1000)


def expected(content: bytes) -> dict[str, bytes]:
    return {**files_of(content), "large.bin": large(content)}


def machine(place: Place, root: Path, url: str = "") -> ArtifactCache:
    store = TieredStore(
        LocalStore(root), [Tier("s3", place.store(url, root / "partial"), "write-through")]
    )
    return ArtifactCache(store, KeyLocks(root / "locks"))


def random_fault(dice: random.Random) -> Fault:
    return Fault(
        dice.choice(ACTIONS),  # type: ignore[arg-type]
        method=dice.choice(["GET", "PUT", "HEAD", "POST", "DELETE", ""]),
        path=dice.choice(["/ac/", "/cas/", "VERSION", "partNumber", "uploads", ""]),
        skip=dice.randrange(4),
        times=dice.choice([1, 1, 2, 99]),
        at=dice.choice([0, 0, 1, 100, 700, -1]),
        status=dice.choice(STATUSES),
        seconds=3,
    )


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_whatever_happens_the_files_are_right(place: Place, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    known = {b"publisher", b"reader", b"heir", b"last"}
    with FaultProxy(place.server.removeprefix("http://")) as proxy:
        proxy.add(*(random_fault(dice) for _ in range(dice.randrange(1, 4))))
        for name in (b"publisher", b"reader"):
            cache = machine(place, tmp_path / name.decode(), proxy.url)
            result = cache.get_or_build(
                CHECKPOINT, LargeBuild(name), tmp_path / f"out-{name.decode()}"
            )
            found = files_below(result.path)
            tried()
            with never("wrong_bytes"):
                assert found in [expected(content) for content in known]

    heir = machine(place, tmp_path / "heir").get_or_build(
        CHECKPOINT, LargeBuild(b"heir"), tmp_path / "out-heir"
    )
    with never("manual_cleanup"):
        assert heir.stored
    last = machine(place, tmp_path / "last").get_or_build(
        CHECKPOINT, LargeBuild(b"last"), tmp_path / "out-last"
    )
    with never("manual_cleanup"):
        assert last.hit
    with never("wrong_bytes"):
        assert files_below(last.path) == files_below(heir.path)
        assert files_below(last.path) in [expected(content) for content in known]
