"""Builds whose steps run on the nodes of a real Ray cluster, and are killed there."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.core.tree_manifest import MANIFEST
from tests.conftest import unavailable
from tests.live.ray_work import Work, busy_workers, environment_of, naming
from tests.live.waiting import wait_until
from tests.support.adapters import tiny_modules, write_adapter
from tests.support.commandline import TINY, Done
from tests.support.doubles.ray_nodes import Nodes, ray_nodes
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.sagemaker_bodies import quantization

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]


class Cluster:
    """A cluster with two nodes, and a bucket that all reach."""

    def __init__(self, bucket: Bucket, server: str, tools: dict[str, str]) -> None:
        self.bucket = bucket
        self.shared = f"{bucket.url}/builds?endpoint_url={server}"
        self.environment = environment_of(bucket) | tools
        self.nodes = Nodes("", (), ())


class Laptop(Work):
    """Somebody who builds: with caches of their own."""

    def __init__(self, place: Path, cluster: Cluster) -> None:
        own = {"PACKAGER_CACHE": str(place / "cache"), "XDG_STATE_HOME": str(place / "state")}
        super().__init__(place, cluster.environment | own)
        self.cluster = cluster

    def words(self, quantize: str, *more: str, far: bool = True) -> tuple[str, ...]:
        there = ("--executor", "ray", "--address", self.cluster.nodes.address)
        return (
            *("build", "--model", str(TINY), "--instance", "local", "--family", "vllm"),
            *("--base", "scratch", "--quantize", quantize, "--output", "oci:out"),
            *("--record", "record.json", *more),
            *((*there, "--cache-shared", self.cluster.shared) if far else ()),
        )

    def build(self, quantize: str, *more: str, far: bool = True) -> Done:
        done = self.run(*self.words(quantize, *more, far=far))
        assert done.status == 0, done.err
        return done

    def begin(self, quantize: str) -> subprocess.Popen[bytes]:
        return self.start(*self.words(quantize), "--progress", "plain")

    def job(self, method: str) -> dict[str, Any]:
        """Run a document of the API whose steps run in the cluster; give its build's record."""
        bucket = self.cluster.bucket
        bucket.upload(TINY, "tiny")
        document = {
            **quantization(OPTION_QUANTIZE=method),
            "ModelSource": {"S3": {"S3Uri": f"{bucket.url}/tiny/"}},
            "OutputConfig": {"S3OutputLocation": f"{bucket.url}/out/"},
        }
        there = ("--executor", "ray", "--address", self.cluster.nodes.address)
        self.environment["PACKAGER_CACHE_SHARED"] = self.cluster.shared
        done = self.run(
            *("optimize", "--cli-input-json", json.dumps(document), *there),
            *("--instance", "local", "--base", "scratch"),
        )
        assert done.status == 0, done.err
        assert f"out/{MANIFEST}" in bucket.names()
        [record] = (self.place / "state/packager/jobs").glob("*/record.json")
        return dict(json.loads(record.read_text()))

    @property
    def step(self) -> dict[str, object]:
        [step] = json.loads((self.place / "record.json").read_text())["steps"]
        return dict(step)


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, quantizing_fast: dict[str, str]
) -> Iterator[Cluster]:
    if importlib.util.find_spec("ray") is None:
        unavailable("ray")
    place = tmp_path_factory.mktemp("cluster")
    with bucket_server() as server:
        made = Cluster(Bucket(server), server, quantizing_fast)
        with ray_nodes(place, made.environment, count=2) as made.nodes:
            yield made


@pytest.fixture
def laptop(tmp_path: Path, cluster: Cluster) -> Laptop:
    return Laptop(tmp_path, cluster)


@pytest.fixture
def colleague(tmp_path: Path, cluster: Cluster) -> Laptop:
    (tmp_path / "colleague").mkdir()
    return Laptop(tmp_path / "colleague", cluster)


def test_a_killed_worker_costs_a_try_and_a_second_build_waits_for_the_first(
    laptop: Laptop, colleague: Laptop
) -> None:
    ran = laptop.place / "ran"
    way = f"demo-slow,seed=1,seconds=6,ran={ran}"

    first = laptop.begin(way)
    wait_until(lambda: ran.exists() or first.poll() is not None)
    assert first.poll() is None, laptop.err
    os.kill(busy_workers(laptop.cluster.nodes)[0], signal.SIGKILL)
    wait_until(lambda: len(ran.read_text()) == 2 or first.poll() is not None)
    second = colleague.begin(way)
    assert first.wait(500) == 0, laptop.err
    assert second.wait(500) == 0, colleague.err

    assert ran.read_text() == "xx"  # the killed one, and one for both builds
    assert laptop.step["reused"] is False
    assert colleague.step["reused"] is True
    [ours], [theirs] = (
        laptop.out.splitlines(),
        colleague.out.splitlines(),
    )  # nothing of Ray's is on stdout
    assert ours.rpartition("@")[2] == theirs.rpartition("@")[2]
    assert "was tried again in the cluster: WorkerCrashedError" in laptop.err


def test_a_build_in_the_cluster_gives_the_image_that_a_local_one_gives(
    laptop: Laptop, colleague: Laptop
) -> None:
    """With the real quantizer in a job, and with an evaluation of what that left in the cache."""
    job = laptop.job("llmcompressor:fp8")
    far = laptop.build("llmcompressor:fp8", "--evaluate", "default", "--evaluate-samples", "2")
    near = colleague.build("llmcompressor:fp8", far=False)

    assert far.out.rpartition("@")[2] == near.out.rpartition("@")[2]
    record = json.loads((laptop.place / "record.json").read_text())
    assert [(one["name"], one["reused"]) for one in record["steps"]] == [
        ("quantize", True),
        ("evaluate", False),
    ]
    assert [(one["name"], one["reused"]) for one in job["steps"]] == [("quantize", False)]
    assert job["steps"][0]["key"] == colleague.step["key"]
    assert record["request"].get("executor") is None
    assert record["steps"][0]["key"] == colleague.step["key"]
    assert job["steps"][0]["versions"] == colleague.step["versions"]


def test_a_merged_adapter_is_quantized_by_the_worker_here_and_on_a_node(
    laptop: Laptop, colleague: Laptop
) -> None:
    adapter = write_adapter(laptop.place / "sql", tiny_modules("q_proj", "down_proj"), size=3.0)
    merging = ("--adapter", f"sql={adapter}", "--merge-adapter", "sql")
    far = laptop.build("llmcompressor:fp8", *merging)
    near = colleague.build("llmcompressor:fp8", *merging, "--output", "dir:once", far=False)
    assert far.out.rpartition("@")[2].strip() in near.out
    assert laptop.step["key"] == colleague.step["key"]

    of = ("--instance", "local", "--family", "vllm", "--base", "scratch")
    asked = ("--quantize", "llmcompressor:fp8")
    for model, name, more in ((str(TINY), "merged", merging), ("merged", "twice", asked)):
        done = colleague.run("build", "--model", model, *of, "--output", f"dir:{name}", *more)
        assert done.status == 0, done.err
    once, twice = (
        {path.name: path.read_bytes() for path in (colleague.place / name).glob("*.safetensors")}
        for name in ("once", "twice")
    )
    assert once == twice


def test_ctrl_c_ends_the_step_on_its_node(laptop: Laptop) -> None:
    pids = laptop.place / "pids"
    build = laptop.begin(f"demo-orphan,pids={pids}")
    wait_until(
        lambda: (pids.exists() and len(pids.read_text().split()) == 2) or build.poll() is not None
    )

    build.send_signal(signal.SIGINT)

    assert build.wait(300) == 130, laptop.err
    left = pids.read_text().split()
    wait_until(lambda: not any(os.path.lexists(f"/proc/{pid}") for pid in left), 30)
    assert not naming(str(pids))
