"""Servers of candidates: up together where there is room, paused, ended, and taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.open_servers import OpenServers
from packager.addons.bench.tune.workshop import TunedServers, purpose_of, remove_leftovers
from packager.core.errors import SmokeFailed
from tests.support.fake_servers import FakeOpener


@contextmanager
def servers(
    opener: Any, *, gpus: bool = False, free: Callable[[], int | None] = lambda: 100
) -> Iterator[TunedServers]:
    with OpenServers(opener, free_bytes=free, used_bytes=lambda server: 40) as found:
        yield TunedServers(found, env={}, gpus=gpus)


def used(found: TunedServers, *images: str) -> None:
    for image in images:
        with found.use(image) as server:
            assert server.container.image == image


def test_servers_stay_up_paused_where_memory_has_room() -> None:
    opener = FakeOpener()

    with servers(opener) as found:
        used(found, "a", "b", "a")
        assert opener.done == [
            "start a", "pause a", "start b", "pause b", "resume a", "pause a",
        ]  # fmt: skip

    assert opener.done[-4:] == ["resume b", "end b", "resume a", "end a"]


@pytest.mark.parametrize("free", [49, None], ids=["less than 1.25 of the largest", "nobody knows"])
def test_the_longest_unused_is_ended_where_memory_has_no_room(free: int | None) -> None:
    opener = FakeOpener()

    with servers(opener, free=lambda: free) as found:
        used(found, "a", "b")

    assert opener.done == [
        "start a", "pause a", "resume a", "end a", "start b", "pause b", "resume b", "end b",
    ]  # fmt: skip


@pytest.mark.parametrize(("network", "gpus"), [("host", False), ("bridge", True)])
def test_servers_that_share_something_are_up_one_at_a_time(network: str, *, gpus: bool) -> None:
    opener = FakeOpener(network=network)

    with servers(opener, gpus=gpus) as found:
        used(found, "a", "b")
        assert opener.done.index("end a") < opener.done.index("start b")


def test_a_server_that_fails_is_ended_and_started_anew() -> None:
    opener = FakeOpener()

    with servers(opener) as found:
        with pytest.raises(SmokeFailed), found.use("a"):
            raise SmokeFailed("it stopped answering")
        assert opener.done == ["start a", "resume a", "end a"]
        used(found, "a")

    assert opener.done.count("start a") == 2


def test_a_server_that_does_not_start_leaves_the_others_up() -> None:
    opener = FakeOpener(broken="b")

    with servers(opener) as found:
        used(found, "a")
        with pytest.raises(SmokeFailed), found.use("b"):
            pass
        assert opener.done == ["start a", "pause a", "start b"]


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
