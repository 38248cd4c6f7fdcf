"""A warm-up on a real Ray cluster whose processes are killed while it works."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from artifact_cache import Address
from tests.conftest import unavailable
from tests.support.cache_opening import open_cache
from tests.support.commandline import TINY, packager_in
from tests.support.doubles.ray_nodes import Nodes, ray_nodes
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.processes import parent_of
from tests.support.tool_steps import OUTSIDE

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


class Warmth:
    """A plan of short builds, a shared store, and who works on it."""

    def __init__(self, place: Path, server: str) -> None:
        self.place = place
        self.ran = place / "ran"
        self.bucket = Bucket(server)
        self.shared = f"{self.bucket.url}/warm?endpoint_url={server}"
        self.environment = {
            **self.bucket.environment,
            "PYTHONPATH": os.pathsep.join((str(OUTSIDE), str(Path.cwd()))),
            "PACKAGER_CACHE": str(place / "driver/cache"),
            "PACKAGER_TOOLS": str(place / "tools"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self.run = packager_in(place)

    def plan(self, count: int = JOBS, way: str = "demo-slow") -> Path:
        grid = {
            "defaults": {"model": str(TINY), "instance": "local", "family": "vllm"},
            "axes": {"quantize": [f"{way},seed={n},ran={self.ran}" for n in range(count)]},
        }
        (self.place / "grid.json").write_text(json.dumps(grid))
        self.run("tools", "install", "demo-tool", env=self.environment)
        done = self.run(
            *("warm", "plan", "grid.json", "--output", "plan.json"),
            *("--cache-shared", self.shared),
            env=self.environment,
        )
        assert done.status == 0, done.err
        return self.place / "plan.json"

    def start(self, address: str, *more: str) -> subprocess.Popen[bytes]:
        words = ("warm", "run", "plan.json", "--executor", "ray", "--address", address)
        with (
            (self.place / "driver.out").open("wb") as out,
            (self.place / "driver.err").open("ab") as err,
        ):
            return subprocess.Popen(
                [sys.executable, "-m", "packager", *words, "--cache-shared", self.shared, *more],
                cwd=self.place,
                env={**os.environ, **self.environment},
                stdout=out,
                stderr=err,
            )

    @property
    def builds(self) -> int:
        return len(self.ran.read_text()) if self.ran.exists() else 0

    @property
    def err(self) -> str:
        return (self.place / "driver.err").read_text()

    def wait_for_builds(self, count: int, driver: subprocess.Popen[bytes]) -> None:
        wait_until(lambda: self.builds >= count or driver.poll() is not None, 240)
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

    def left(self) -> list[str]:
        """Processes that still have to do with this plan."""
        return [words for _, words in processes() if str(self.place) in words]


def wait_until(is_so: Callable[[], bool], limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.1)


def processes() -> list[tuple[int, str]]:
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append((int(place.name), words))
    return found


def busy_workers(nodes: Nodes) -> list[int]:
    """Workers of this cluster that have a job now."""
    found = []
    for pid, words in processes():
        with suppress(OSError):  # it has ended meanwhile
            if words.startswith("ray::packager") and parent_of(pid) in nodes.raylets:
                found.append(pid)
    return found


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
        driver = warmth.start(nodes.address)
        warmth.wait_for_builds(JOBS // 8, driver)
        wait_until(lambda: bool(busy_workers(nodes)), 240)
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
        driver = warmth.start(nodes.address)
        assert driver.wait(300) == 0, warmth.err
        again = warmth.start(nodes.address)
        assert again.wait(300) == 0, warmth.err
        assert f"{JOBS} there" in (warmth.place / "driver.out").read_text()

    assert JOBS <= warmth.builds <= JOBS + killed
    seeds = [job["request"]["quantize"].split("seed=")[1].split(",")[0] for job in plan["jobs"]]
    assert [str(warmth.demo_of(key)) for key in keys] == seeds
    wait_until(lambda: not warmth.left(), 240)


def test_ctrl_c_leaves_nothing_on_the_nodes(warmth: Warmth) -> None:
    pids = warmth.place / "pids"
    warmth.plan(1, f"demo-orphan,pids={pids}")

    with ray_nodes(warmth.place, warmth.environment, count=2) as nodes:
        driver = warmth.start(nodes.address)
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, 240)
        driver.send_signal(signal.SIGINT)

        assert driver.wait(300) == 130
        left = pids.read_text().split()
        wait_until(lambda: not any(os.path.lexists(f"/proc/{pid}") for pid in left), 240)


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
        driver = warmth.start(nodes.address, "--format", "json")
        assert driver.wait(300) == 6, warmth.err

        ended = json.loads((warmth.place / "driver.out").read_text())["jobs"]
        assert [one["state"] for one in ended] == ["infeasible", "built", "failed"]
        assert "none of 3 machines has 8 × H100" in ended[0]["reason"]
        assert (ended[2]["exit_code"], ended[2]["tries"]) == (65, 1)

        alone = warmth.run(
            *("warm", "run", "plan.json", "--executor", "ray", "--address", nodes.address),
            env=warmth.environment,
        )
        assert alone.status == 2
        assert "no shared store takes their results" in alone.err
    wait_until(lambda: not warmth.left(), 240)
