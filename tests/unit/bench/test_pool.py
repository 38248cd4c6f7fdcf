"""Which servers of a benchmark are up, and that only one of them computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from packager.bench.pool import ServerPool
from packager.bench.targets import BenchTarget
from packager.errors import SmokeFailed
from packager.serving.opening import MeasuredServer, Opener, OpenServer


@dataclass
class FakeContainer:
    name: str
    said: list[str]
    network: str = "bridge"
    attrs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.attrs = {"HostConfig": {"NetworkMode": self.network}}

    def pause(self) -> None:
        self.said.append(f"pause {self.name}")

    def unpause(self) -> None:
        self.said.append(f"resume {self.name}")


@dataclass
class FakeOpener:
    said: list[str] = field(default_factory=list)
    broken: frozenset[str] = frozenset()
    network: str = "bridge"

    @contextmanager
    def open(self, target: MeasuredServer) -> Iterator[OpenServer]:
        self.said.append(f"start {target.name}")
        if target.name in self.broken:
            raise SmokeFailed(f"{target.name} ended")
        container = None
        if not target.is_address:
            container = FakeContainer(target.name, self.said, self.network)
        server = OpenServer(
            server=cast("Any", None),
            model="m",
            shown=target.name,
            url="http://here",
            container=container,
            start_s=None if target.is_address else 3.0,
        )
        try:
            yield server
        finally:
            self.said.append(f"end {target.name}")


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

    assert opener.said == [
        *("start a", "pause a", "start b", "pause b"),
        *("resume a", "pause a", "resume b", "pause b"),
        *("resume a", "end a", "resume b", "end b"),
    ]


@pytest.mark.parametrize(
    ("free", "used", "network"),
    [(12, 10, "bridge"), (None, 10, "bridge"), (100, 10, "host")],
    ids=["memory", "memory-unknown", "one-port-for-all"],
)
def test_without_room_beside_the_first_each_is_started_for_its_turn(
    free: int | None, used: int, network: str
) -> None:
    opener = FakeOpener(network=network)

    with pool(opener, free=free, used=used) as servers:
        assert not servers.can_be_together([A, B])
        with servers.use(A, alone=True):
            pass

    started = [words for words in opener.said if not words.startswith(("pause", "resume"))]
    assert started == ["start a", "end a", "start a", "end a"]


def test_containers_with_gpus_are_never_up_together() -> None:
    opener = FakeOpener()

    with pool(opener) as servers:
        assert not servers.can_be_together([target("a", gpus=True), target("b", gpus=True)])

    assert opener.said == []


def test_one_container_beside_addresses_is_not_paused() -> None:
    opener = FakeOpener()

    with pool(opener) as servers:
        assert servers.can_be_together([A, target("http://there:8000")])
        with servers.use(A):
            pass
        with servers.use(target("http://there:8000")) as server:
            assert server.container is None

    assert "pause a" not in opener.said


def test_a_server_that_does_not_start_is_kept_with_its_reason_and_not_started_again() -> None:
    opener = FakeOpener(broken=frozenset(("a",)))

    with pool(opener) as servers:
        assert servers.can_be_together([A, B])
        with pytest.raises(SmokeFailed, match="a ended"), servers.use(A):
            pass

    assert servers.failures["a"].message == "a ended"
    assert opener.said.count("start a") == 1
    assert opener.said[-1] == "end b"


def test_the_first_start_of_a_server_is_the_one_that_counts() -> None:
    with pool(FakeOpener()) as servers:
        with servers.use(A, alone=True):
            pass
        with servers.use(A, alone=True):
            pass

    assert servers.start_s == {"a": 3.0}
    assert servers.models["a"] == "m"
