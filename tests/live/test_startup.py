"""`packager bench --startup`: containers started from nothing in a real Docker Engine.

Pulls are of an engine that starts in a blink; the phases of a real one are in `test_bench.py`'s
image of vLLM, started once more there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

PREFIX = "packager-start-"


@pytest.fixture
def client(engine: str) -> Any:
    import docker

    return docker.DockerClient(base_url=engine)


@pytest.fixture
def pushed(image: str, client: Any, registry: str) -> str:
    """The image with the tiny engine, as it is in a registry."""
    name = f"{registry}/startup/tiny:1"
    assert client.images.get(image.partition("@")[0].removeprefix("docker:")).tag(name)
    lines = client.api.push(name, stream=True, decode=True)
    assert not [line for line in lines if "error" in line]
    return name


def left(client: Any) -> list[str]:
    return [one.name for one in client.containers.list(all=True) if one.name.startswith(PREFIX)]


@pytest.mark.capability("cold-start")
def test_a_pulled_image_is_timed_from_the_registry_to_its_first_token(
    packager: Packager, client: Any, pushed: str, tmp_path: Path
) -> None:
    client.images.remove(pushed)

    done = packager(
        *("bench", pushed, "--startup", "--pull", "--rounds", "2", "--output", "out/"), status=0
    )

    (variant,) = json.loads((tmp_path / "out" / "startup.json").read_text())["startups"]
    assert [one["round"] for one in variant["starts"]] == [0, 1]
    for start in variant["starts"]:
        phases = start["phases"]
        assert [*phases] == ["pull", "unpack", "container", "first_token"]  # its log tells no more
        assert all(seconds >= 0 for seconds in phases.values())
        assert sum(phases.values()) + start["untold_s"] == pytest.approx(start["seconds"], abs=0.2)
        assert start["cpu_seconds"] > 0
    assert variant["next"]["change"]
    assert "its log does not tell import, weights, compile, ready" in done.out
    assert (tmp_path / "out" / "startup.html").read_text().startswith("<!doctype html>")
    assert left(client) == []


def test_an_image_that_does_not_start_fails_and_leaves_nothing(
    packager: Packager, client: Any, pushed: str
) -> None:
    done = packager(
        "bench", pushed, "--startup", "--rounds", "2", "--env", "TINY_FAULT=start", status=4
    )

    assert "ended with status 3" in done.err
    assert left(client) == []
