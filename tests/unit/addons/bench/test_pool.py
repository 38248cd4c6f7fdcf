"""Which servers of a benchmark are up, and that only one of them computes."""

from __future__ import annotations

from typing import cast

import pytest

from packager.addons.bench.pool import ServerPool
from packager.addons.bench.targets import BenchTarget
from packager.cli.serving.opening import MeasuredServer, Opener
from packager.core.errors import SmokeFailed
from tests.support.cases import cases
from tests.support.fake_servers import FakeOpener


def target(name: str, *, gpus: bool = False) -> BenchTarget:
    return BenchTarget(name=name, server=MeasuredServer(name=name, env={}, gpus=gpus))


def pool(opener: FakeOpener, *, free: int | None = 100, used: int | None = 10) -> ServerPool:
    return ServerPool(
        cast("Opener", opener), free_bytes=lambda: free, used_bytes=lambda server: used
    )


A, B = target("a"), target("b")


def test_containers_that_fit_together_are_paused_in_turn() -> None:
    opener = FakeOpener()

    with pool(opener) as servers:
        assert servers.can_be_together([A, B])
        with servers.use(A) as server:
            assert server.shown == "a"
        with servers.use(B):
            pass

    assert opener.done == [
        *("start a", "pause a", "start b", "pause b"),
        *("resume a", "pause a", "resume b", "pause b"),
        *("resume a", "end a", "resume b", "end b"),
    ]


@cases("no_room")
def test_without_room_beside_the_first_each_is_started_for_its_turn(
    free: int | None, used: int, network: str
) -> None:
    opener = FakeOpener(network=network)

    with pool(opener, free=free, used=used) as servers:
        assert not servers.can_be_together([A, B])
        with servers.use(A, alone=True):
            pass

    started = [words for words in opener.done if not words.startswith(("pause", "resume"))]
    assert started == ["start a", "end a", "start a", "end a"]


def test_containers_with_gpus_are_never_up_together() -> None:
    opener = FakeOpener()

    with pool(opener) as servers:
        assert not servers.can_be_together([target("a", gpus=True), target("b", gpus=True)])

    assert opener.done == []


def test_one_container_beside_addresses_is_not_paused() -> None:
    opener = FakeOpener()

    with pool(opener) as servers:
        assert servers.can_be_together([A, target("http://there:8000")])
        with servers.use(A):
            pass
        with servers.use(target("http://there:8000")) as server:
            assert server.container is None

    assert "pause a" not in opener.done


def test_a_server_that_does_not_start_is_kept_with_its_reason_and_not_started_again() -> None:
    opener = FakeOpener(broken="a")

    with pool(opener) as servers:
        assert servers.can_be_together([A, B])
        with pytest.raises(SmokeFailed, match="a ended"), servers.use(A):
            pass

    assert servers.failures["a"].message == "a ended"
    assert opener.done.count("start a") == 1
    assert opener.done[-1] == "end b"


def test_the_first_start_of_a_server_is_the_one_that_counts() -> None:
    with pool(FakeOpener()) as servers:
        with servers.use(A, alone=True):
            pass
        with servers.use(A, alone=True):
            pass

    assert servers.start_s == {"a": 3.0}
    assert servers.models["a"] == "m"
