"""Servers of candidates: up together where there is room, paused, ended, and taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from packager.bench.open_servers import OpenServers
from packager.errors import SmokeFailed
from packager.serving.opening import OpenServer
from packager.tune.workshop import Servers, purpose_of, remove_leftovers


@dataclass
class Container:
    """Writes down what is done with it."""

    image: str
    done: list[str]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def pause(self) -> None:
        self.done.append(f"pause {self.image}")

    def unpause(self) -> None:
        self.done.append(f"unpause {self.image}")


@dataclass
class Opener:
    """Starts servers in memory."""

    network: str = "bridge"
    broken: str = ""
    done: list[str] = field(default_factory=list)

    @contextmanager
    def open(self, target: Any) -> Iterator[OpenServer]:
        if target.name == self.broken:
            raise SmokeFailed(f"{target.name} does not start")
        self.done.append(f"start {target.name}")
        place = {"HostConfig": {"NetworkMode": self.network}}
        try:
            yield OpenServer(
                server=cast("Any", None),
                model="m",
                shown=target.name,
                url="http://here",
                container=Container(target.name, self.done, place),
            )
        finally:
            self.done.append(f"end {target.name}")


@contextmanager
def servers(
    opener: Any, *, gpus: bool = False, free: Callable[[], int | None] = lambda: 100
) -> Iterator[Servers]:
    with OpenServers(opener, free_bytes=free, used_bytes=lambda server: 40) as found:
        yield Servers(found, env={}, gpus=gpus)


def used(found: Servers, *images: str) -> None:
    for image in images:
        with found.use(image) as server:
            assert server.container.image == image


def test_servers_stay_up_paused_where_memory_has_room() -> None:
    opener = Opener()

    with servers(opener) as found:
        used(found, "a", "b", "a")
        assert opener.done == [
            "start a", "pause a", "start b", "pause b", "unpause a", "pause a",
        ]  # fmt: skip

    assert opener.done[-4:] == ["unpause b", "end b", "unpause a", "end a"]


@pytest.mark.parametrize("free", [49, None], ids=["less than 1.25 of the largest", "nobody knows"])
def test_the_longest_unused_is_ended_where_memory_has_no_room(free: int | None) -> None:
    opener = Opener()

    with servers(opener, free=lambda: free) as found:
        used(found, "a", "b")

    assert opener.done == [
        "start a", "pause a", "unpause a", "end a", "start b", "pause b", "unpause b", "end b",
    ]  # fmt: skip


@pytest.mark.parametrize(("network", "gpus"), [("host", False), ("bridge", True)])
def test_servers_that_share_a_port_or_devices_are_up_one_at_a_time(
    network: str, *, gpus: bool
) -> None:
    opener = Opener(network=network)

    with servers(opener, gpus=gpus) as found:
        used(found, "a", "b")
        assert opener.done.index("end a") < opener.done.index("start b")


def test_a_server_that_fails_is_ended_and_started_anew() -> None:
    opener = Opener()

    with servers(opener) as found:
        with pytest.raises(SmokeFailed), found.use("a"):
            raise SmokeFailed("it stopped answering")
        assert opener.done == ["start a", "unpause a", "end a"]
        used(found, "a")

    assert opener.done.count("start a") == 2


def test_a_server_that_does_not_start_leaves_the_others_up() -> None:
    opener = Opener(broken="b")

    with servers(opener) as found:
        used(found, "a")
        with pytest.raises(SmokeFailed), found.use("b"):
            pass
        assert opener.done == ["start a", "pause a"]


class Api:
    """An engine with containers of a killed run and of others."""

    def __init__(self, *names: str) -> None:
        self.api = self
        self.names = list(names)

    def containers(self, *, all: bool, filters: Mapping[str, str]) -> list[dict[str, str]]:
        assert all
        return [{"Id": name} for name in self.names if filters["name"] in name]

    def remove_container(self, name: str, *, force: bool, v: bool) -> None:
        assert force
        assert v
        self.names.remove(name)


def test_containers_of_a_killed_run_of_the_same_journal_are_removed() -> None:
    purpose = purpose_of(Path("/state/one.jsonl"))
    ours, others = f"packager-{purpose}-01", f"packager-{purpose_of(Path('/state/two'))}-01"
    engine = Api(ours, others, "packager-bench-01")

    remove_leftovers(engine, purpose)

    assert engine.names == [others, "packager-bench-01"]
