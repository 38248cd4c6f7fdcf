"""A warm-up on a real Ray cluster whose processes are killed while it works."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from artifact_cache import Address
from tests.conftest import unavailable
from tests.live.ray_work import Work, busy_workers, environment_of, naming
from tests.live.waiting import wait_until
from tests.support.cache_opening import open_cache
from tests.support.commandline import TINY
from tests.support.doubles.ray_nodes import ray_nodes
from tests.support.doubles.s3 import Bucket, bucket_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

JOBS = 40 if os.environ.get("PACKAGER_FAULTS") == "long" else 8


@pytest.fixture(scope="module", autouse=True)
def ray() -> None:
    if importlib.util.find_spec("ray") is None:
        unavailable("ray")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


class Warmth(Work):
    """A plan of short builds, a shared store, and who works on it."""

    def __init__(self, place: Path, server: str) -> None:
        self.bucket = Bucket(server)
        own = {
            "PACKAGER_CACHE": str(place / "driver/cache"),
            "PACKAGER_TOOLS": str(place / "tools"),
        }
        super().__init__(place, environment_of(self.bucket) | own)
        self.ran = place / "ran"
        self.shared = f"{self.bucket.url}/warm?endpoint_url={server}"

    def plan(self, count: int = JOBS, way: str = "demo-slow") -> Path:
        grid = {
            "defaults": {"model": str(TINY), "instance": "local", "family": "vllm"},
            "axes": {"quantize": [f"{way},seed={n},ran={self.ran}" for n in range(count)]},
        }
        (self.place / "grid.json").write_text(json.dumps(grid))
        self.run("tools", "install", "demo-tool")
        shared = ("--cache-shared", self.shared)
        done = self.run("warm", "plan", "grid.json", "--output", "plan.json", *shared)
        assert done.status == 0, done.err
        return self.place / "plan.json"

    def warm(self, address: str, *more: str) -> subprocess.Popen[bytes]:
        words = ("warm", "run", "plan.json", "--executor", "ray", "--address", address)
        return self.start(*words, "--cache-shared", self.shared, *more)

    @property
    def builds(self) -> int:
        return len(self.ran.read_text()) if self.ran.exists() else 0

    def wait_for_builds(self, count: int, driver: subprocess.Popen[bytes]) -> None:
        wait_until(lambda: self.builds >= count or driver.poll() is not None)
        assert driver.poll() is None, self.err

    def demo_of(self, key: str) -> object:
        """What the artifact was made for, read from the shared store alone."""
        fresh = open_cache(self.place / "fresh", [self.shared])
        stored = fresh.store.get(Address("quantized-checkpoint", key))
        assert stored is not None, key
        into = self.place / "out" / key
        into.mkdir(parents=True)
        stored.extract(into)
        for shard in TINY.glob("*.safetensors"):
            assert (into / shard.name).read_bytes() == shard.read_bytes()
        return json.loads((into / "config.json").read_text())["demo"]


@pytest.fixture
def warmth(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> Warmth:
    made = Warmth(tmp_path, server)
    for name, value in made.bucket.environment.items():
        monkeypatch.setenv(name, value)
    return made


def test_every_key_is_there_after_worker_raylet_and_head_were_killed(warmth: Warmth) -> None:
    plan = json.loads(warmth.plan().read_text())
    keys = [job["key"] for job in plan["jobs"]]
    assert len(set(keys)) == JOBS
    killed = 0

    with ray_nodes(warmth.place, warmth.environment) as nodes:
        driver = warmth.warm(nodes.address)
        warmth.wait_for_builds(JOBS // 8, driver)
        wait_until(lambda: bool(busy_workers(nodes)))
        os.kill(busy_workers(nodes)[0], signal.SIGKILL)
        killed += 1
        warmth.wait_for_builds(JOBS // 4, driver)
        os.kill(nodes.raylets[0], signal.SIGKILL)
        killed += 1  # it had one processor
        warmth.wait_for_builds(JOBS // 2, driver)
        for pid in nodes.head:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed += 2  # what the two others were doing
        # On a fast machine the rest may have been built before the head was gone.
        assert driver.wait(300) != 0 or warmth.builds >= JOBS, warmth.err

    with ray_nodes(warmth.place, warmth.environment) as nodes:
        driver = warmth.warm(nodes.address)
        assert driver.wait(300) == 0, warmth.err
        assert warmth.warm(nodes.address).wait(300) == 0, warmth.err
        assert f"{JOBS} there" in warmth.out

    assert JOBS <= warmth.builds <= JOBS + killed
    seeds = [job["request"]["quantize"].split("seed=")[1].split(",")[0] for job in plan["jobs"]]
    assert [str(warmth.demo_of(key)) for key in keys] == seeds
    wait_until(lambda: not naming(str(warmth.place)))


def test_ctrl_c_leaves_nothing_on_the_nodes(warmth: Warmth) -> None:
    pids = warmth.place / "pids"
    warmth.plan(1, f"demo-orphan,pids={pids}")

    with ray_nodes(warmth.place, warmth.environment, count=2) as nodes:
        driver = warmth.warm(nodes.address)
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        driver.send_signal(signal.SIGINT)

        assert driver.wait(300) == 130
        left = pids.read_text().split()
        wait_until(lambda: not any(os.path.lexists(f"/proc/{pid}") for pid in left))


@pytest.mark.capability("warm-up")
def test_what_no_node_can_do_is_said_at_once_and_what_fails_for_good_is_not_repeated(
    warmth: Warmth,
) -> None:
    place = warmth.plan(3, "demo-copy")
    plan = json.loads(place.read_text())
    plan["jobs"][0]["resources"] |= {"accelerator": "nvidia", "device": "H100", "devices": 8}
    plan["jobs"][1]["resources"] |= {"accelerator": "nvidia", "device": "A10G", "devices": 2}
    plan["jobs"][2]["request"]["quantize"] = "demo-refuse,seed=9"
    place.write_text(json.dumps(plan))

    with ray_nodes(warmth.place, warmth.environment, count=2) as nodes:
        assert warmth.warm(nodes.address, "--format", "json").wait(300) == 6, warmth.err

        ended = json.loads(warmth.out)["jobs"]
        assert [one["state"] for one in ended] == ["infeasible", "built", "failed"]
        assert "none of 3 machines has 8 × H100" in ended[0]["reason"]
        assert (ended[2]["exit_code"], ended[2]["tries"]) == (65, 1)

        there = ("--executor", "ray", "--address", nodes.address)
        alone = warmth.run("warm", "run", "plan.json", *there)
        assert alone.status == 2
        assert "no shared store takes their results" in alone.err
    wait_until(lambda: not naming(str(warmth.place)))
