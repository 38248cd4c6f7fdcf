"""Leases in a bucket: they save work, and nothing else depends on them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.locks import KeyLocks
from artifact_cache.results import Notice
from artifact_cache.store import Address, address_of
from artifact_cache.stores.s3_lease import S3Lease
from artifact_cache.stores.tiered import Tier, TieredStore
from tests.support.cache_buckets import Place
from tests.support.cache_entries import CHECKPOINT, Build
from tests.support.cache_opening import LocalStore, open_local
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.places import files_below
from tests.support.running_jobs import until

ADDRESS = address_of(CHECKPOINT)
LEASE = f"leases/{ADDRESS.key}.json"


def lease_in(place: Place, url: str = "", *, duration_s: float = 20, holder: str = "") -> S3Lease:
    return S3Lease(
        place.store(url).bucket,
        "p/v1/",
        holder=holder,
        duration_s=duration_s,
        beat_s=0.1,
        poll_s=0.05,
    )


def machine(
    place: Place,
    root: Path,
    lease: S3Lease | None,
    notify: Callable[[Notice], None] = lambda notice: None,
) -> ArtifactCache:
    """A cache with a directory of its own, which shares only the bucket."""
    store = TieredStore(LocalStore(root), [Tier("s3", place.store())])
    return ArtifactCache(store, KeyLocks(root / "locks"), lease=lease, notify=notify)


def never() -> bool:
    return False


def test_two_machines_make_one_build(place: Place, tmp_path: Path) -> None:
    started, waiting = threading.Event(), threading.Event()
    builds: list[str] = []

    def build(directory: Path) -> None:
        builds.append(directory.name)
        started.set()
        waiting.wait(120)
        Build(directory.name.encode())(directory)

    first = machine(place, tmp_path / "A", lease_in(place, holder="ci@org"))
    second = machine(place, tmp_path / "B", lease_in(place), lambda notice: waiting.set())
    running = threading.Thread(target=first.get_or_build, args=(CHECKPOINT, build, tmp_path / "a"))
    running.start()
    started.wait(120)
    result = second.get_or_build(CHECKPOINT, build, tmp_path / "b")
    running.join()

    assert builds == ["a"]
    assert result.hit
    assert [notice.message for notice in result.notices] == [
        "ci@org is building the same quantized-checkpoint"
    ]
    assert files_below(tmp_path / "a") == files_below(tmp_path / "b")
    assert place.keys("leases/") == []


def test_who_waits_looks_for_the_entry_and_not_for_the_lease(place: Place) -> None:
    """A holder that published and was killed before it let go holds up nobody."""
    with lease_in(place).hold(ADDRESS, 60, print, never) as ours:
        assert ours
        started = time.monotonic()
        with lease_in(place).hold(ADDRESS, 60, lambda holder: None, lambda: True) as theirs:
            assert not theirs
        assert time.monotonic() - started < 40  # of the 60 that it would wait for the lease


class BeatenTime:
    """A clock of whoever waits, on which the holder beats within every two seconds."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += 1.0
        if self.now_s % 2:
            return  # it is most likely found unchanged
        seen = self.place.read(LEASE)
        until(lambda: self.place.read(LEASE) != seen, within_s=120)


def test_a_living_holder_is_not_taken_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease_in(place).hold(ADDRESS, 60, print, never):
        monkeypatch.setattr("artifact_cache.stores.s3_lease.time", BeatenTime(place))
        waited: list[str] = []
        contender = lease_in(place, duration_s=2.5)
        with contender.hold(ADDRESS, 20, waited.append, never) as ours:
            assert not ours
        assert waited == ["another machine"]


HOLDER = """
import sys, time
from artifact_cache.stores.s3_lease import S3Lease
from tests.support.cache_buckets import Place
from tests.integration.artifact_cache.test_s3_lease import ADDRESS, lease_in, never
place = Place.__new__(Place)
place.server, place.name = sys.argv[1:3]
with lease_in(place).hold(ADDRESS, 60, print, never) as ours:
    assert ours
    open(sys.argv[3], "w").close()
    time.sleep(600)
"""


def test_a_killed_holder_is_taken_over_after_the_duration(place: Place, tmp_path: Path) -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", HOLDER, place.server, place.name, tmp_path / "held"]
    )
    until((tmp_path / "held").exists, within_s=120)
    victim.kill()
    victim.wait()
    started = time.monotonic()

    with lease_in(place, duration_s=1).hold(ADDRESS, 60, lambda holder: None, never) as ours:
        assert ours
        assert 1 <= time.monotonic() - started < 45  # of the 60 that it waits at most
    assert place.keys("leases/") == []


def test_a_holder_that_was_taken_over_does_not_remove_the_new_lease(place: Place) -> None:
    with lease_in(place).hold(ADDRESS, 60, print, never) as ours:
        assert ours
        place.client.put_object(
            Bucket=place.name,
            Key=f"p/v1/{LEASE}",
            Body=json.dumps({"nonce": "f" * 32, "holder": "heir", "beat": 1}).encode(),
        )
        time.sleep(0.5)
    assert json.loads(place.read(LEASE))["holder"] == "heir"


def test_an_own_lease_whose_answer_was_lost_is_ours(place: Place, server: str) -> None:
    with FaultProxy(server.removeprefix("http://")) as proxy:
        lease = lease_in(place, proxy.url)
        proxy.add(Fault("drop", method="PUT", path="leases/"))
        with lease.hold(ADDRESS, 60, print, never) as ours:
            assert ours
            assert json.loads(place.read(LEASE))["beat"] >= 2
        assert proxy.faults[0].hits == 1
    assert place.keys("leases/") == []


@pytest.mark.parametrize("found", [b"", b"[]", b'{"nonce": 1}', b"\xff" * 9000])
def test_a_lease_that_cannot_be_read_is_taken_over_in_time(place: Place, found: bytes) -> None:
    place.client.put_object(Bucket=place.name, Key=f"p/v1/{LEASE}", Body=found)

    with lease_in(place, duration_s=0.3).hold(ADDRESS, 60, lambda holder: None, never) as ours:
        assert ours


def test_a_holders_name_cannot_steer_the_terminal(place: Place) -> None:
    place.client.put_object(
        Bucket=place.name,
        Key=f"p/v1/{LEASE}",
        Body=b'{"nonce": "x", "holder": "\\u001b[2Jevil\\n", "beat": 1}',
    )
    heard: list[str] = []
    with lease_in(place).hold(ADDRESS, 60, heard.append, lambda: True):
        pass
    assert heard == ["[2Jevil"]


def test_without_a_bucket_the_work_goes_on(place: Place) -> None:
    started = time.monotonic()
    lease = lease_in(place, "http://127.0.0.1:9")
    with lease.hold(Address("neuron", "0" * 64), 60, print, never) as ours:
        assert not ours
    assert time.monotonic() - started < 45  # of the 60 that it waits at most


class EndlessLease:
    """A lease that somebody goes on rewriting; it notes for how long it was to be waited for."""

    def __init__(self) -> None:
        self.wait_s = 0.0

    @contextmanager
    def hold(
        self,
        address: Address,
        wait_s: float,
        on_wait: Callable[[str], None],
        is_published: Callable[[], bool],
    ) -> Iterator[bool]:
        del address, is_published
        self.wait_s = wait_s
        on_wait("somebody")
        yield False


def test_a_lease_delays_a_build_for_an_hour_at_most(root: Path, tmp_path: Path) -> None:
    """Whoever can write to a bucket could hold up every builder for as long as it liked."""
    lease = EndlessLease()

    result = open_local(root, lease=lease).get_or_build(CHECKPOINT, Build(), tmp_path / "out")

    assert lease.wait_s == 3600
    assert [notice.message for notice in result.notices] == [
        "somebody is building the same quantized-checkpoint",
        "waited long enough for another machine; building too",
    ]
    assert (result.hit, result.stored) == (False, True)


def test_a_lease_of_ever_new_holders_is_waited_for_once(place: Place, tmp_path: Path) -> None:
    over = threading.Event()

    def rewrite() -> None:
        beat = 0
        while not over.wait(0.02):
            beat += 1
            body = json.dumps({"nonce": f"{beat:032x}", "holder": f"host {beat}", "beat": 1})
            place.client.put_object(Bucket=place.name, Key=f"p/v1/{LEASE}", Body=body.encode())
            (tmp_path / "rewritten").touch()

    rewriting = threading.Thread(target=rewrite)
    rewriting.start()
    try:
        until((tmp_path / "rewritten").exists, within_s=120)
        cache = machine(place, tmp_path / "cache", lease_in(place))
        cache._wait_s = 1.0
        result = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "out")
    finally:
        over.set()
        rewriting.join()

    assert [notice.code for notice in result.notices] == ["waiting", "lock"]
    assert (result.hit, result.stored) == (False, True)
