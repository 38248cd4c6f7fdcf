"""What a node of a cluster does with an order, as the command line that its worker runs."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifact_cache import Address
from artifact_cache.key import key_of
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.cluster import exchange_for
from packager.cli.wiring.settings import Settings
from packager.core.image import FileRange
from packager.core.recipe import Step
from packager.core.request import BuildRequest
from packager.images.blobs import BlobReader
from packager.optimize.cache.options import CacheOptions
from packager.optimize.steps.ray.orders import make_order
from packager.optimize.steps.tools.environments import Environments
from packager.pipeline.pipeline import plan
from tests.support.cache_opening import open_cache
from tests.support.cases import cases
from tests.support.commandline import TINY, Done, packager_in
from tests.support.known import known
from tests.support.tool_steps import OUTSIDE


class Node:
    """A node with a cache of its own, and the machine that asks it."""

    def __init__(self, place: Path, tools: Environments, patch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.shared = place / "shared"
        self.environment = {
            "PYTHONPATH": os.pathsep.join((str(OUTSIDE), str(Path.cwd()))),
            "PACKAGER_TOOLS": str(tools.place("demo-tool").parent),
            "PACKAGER_CACHE": str(place / "node"),
            "PACKAGER_CACHE_SHARED": f"dir:{self.shared}",
            "XDG_STATE_HOME": str(place / "state"),
        }
        patch.syspath_prepend(str(OUTSIDE))
        self.settings = Settings(
            headers_only=True,
            read_local=True,
            cache_dir=place / "ours",
            cache=CacheOptions(shared=(f"dir:{self.shared}",)),
            environment={**os.environ, "PACKAGER_TOOLS": self.environment["PACKAGER_TOOLS"]},
        )
        self.exchange = exchange_for(BlobReader(), self.settings)

    def step(self, way: str = "copy", model: Path = TINY, **changes: Any) -> Step:
        request = BuildRequest(
            model=str(model), instance="local", family="vllm", quantize=f"demo-{way}"
        )
        [step] = plan(request, services_for(self.settings)).recipe.steps
        return replace(step, **changes)

    def run(self, step: Step, **changes: str) -> Done:
        digest = self.exchange.offer_order(make_order(step, self.exchange.digest))
        return self.packager("step", "--order", digest, **changes)

    def packager(self, *words: str, **changes: str) -> Done:
        """Run `packager warm` as the node does."""
        return packager_in(self.place)("warm", *words, env={**self.environment, **changes})

    def published(self, step: Step) -> bool:
        assert step.key is not None
        cache = open_cache(self.place / "fresh", [f"dir:{self.shared}"])
        return cache.store.get(Address(step.key.kind, key_of(step.key))) is not None


def lines(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def node(tmp_path: Path, tools: Environments, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, tools, monkeypatch)


def test_a_node_publishes_the_result_and_says_what_it_does_meanwhile(node: Node) -> None:
    step = node.step()

    first = node.run(step)
    again = node.run(step)

    assert first.status == 0, first.err
    said = lines(first)
    assert list(said[0]) == ["node"]
    assert any(one.get("progress", "").startswith("copied config.json") for one in said)
    result = said[-1]["result"]
    assert (result["details"], "reused" in result) == ({"copied": True}, False)
    assert node.published(step)
    assert lines(again)[-1] == {"result": {"reused": True}}


def test_a_node_with_the_cache_of_whoever_asks_does_not_wait_for_its_lock(node: Node) -> None:
    """`ray start --head` on the same machine: the lock is held by the build that waits for us."""
    step = node.step()
    locks = node.place / "node/artifacts/locks"
    locks.mkdir(parents=True)
    with (locks / f"{key_of(known(step.key))}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        done = node.run(step)

    assert done.status == 0, done.err
    assert "waiting" not in done.out
    assert node.published(step)


@cases("failing")
def test_a_node_that_fails_says_why(node: Node, way: str, kind: str, code: int, words: str) -> None:
    step = _of_another_tool(node.step()) if way == "of another tool" else node.step(way)

    done = node.run(step)

    said = lines(done)[-1]["error"]
    assert (said["kind"], done.status) == (kind, code)
    assert words in said["message"]
    assert not node.published(step)


def test_the_log_of_the_tool_comes_back_whole(node: Node) -> None:
    said = lines(node.run(node.step("status")))
    assert "last words\n" in "".join(one.get("log", "") for one in said)
    assert said[-1]["error"]["log"].endswith("last words")


def test_a_node_asks_for_what_it_lacks_before_it_runs_anything(node: Node, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in filter(Path.is_file, TINY.iterdir()):
        (model / file.name).write_bytes(file.read_bytes())
    step = node.step(model=model)
    files = {file.path: file for file in step.inputs["model"].files}
    order = make_order(step, node.exchange.digest)
    shards = [path for path in files if path.endswith(".safetensors")]
    for path in shards:
        (model / path).rename(model / f"{path}.away")

    digest = node.exchange.offer_order(order)
    lacking = node.packager("step", "--order", digest)
    assert lines(lacking)[-1] == {"missing": [files[path].sha256 for path in shards]}
    assert not node.published(step)

    for path in shards:
        (model / f"{path}.away").rename(model / path)
        content = FileRange(
            path=str(model / path), offset=0, length=files[path].size
        )  # moving it changed its ctime
        node.exchange.offer_file(replace(files[path], content=content), files[path].sha256)
        (model / path).unlink()
    done = node.packager("step", "--order", digest)
    assert done.status == 0, done.err
    assert node.published(step)


@cases("other_stores")
def test_a_node_with_another_store_fails_at_once(node: Node, shared: str, words: str) -> None:
    step = node.step()
    done = node.run(step, PACKAGER_CACHE_SHARED=f"dir:{shared.format(place=node.place)}")

    assert done.status in (66, 74)
    assert words in lines(done)[-1]["error"]["message"]
    assert "mounted" in lines(done)[-1]["error"]["hint"]


def test_a_node_describes_its_tools(node: Node) -> None:
    [said] = lines(node.packager("tool", "demo-tool"))

    assert said["facts"]["name"] == "demo-tool"
    assert said["facts"]["installed"] is True
    assert said["facts"]["worker"] == node.step().key.toolchain.worker  # type: ignore[union-attr]


def _of_another_tool(step: Step) -> Step:
    key: Any = step.key
    toolchain = key.toolchain.model_copy(
        update={"environment": {**key.toolchain.environment, "python": "3.9"}}
    )
    return replace(step, key=key.model_copy(update={"toolchain": toolchain}))
