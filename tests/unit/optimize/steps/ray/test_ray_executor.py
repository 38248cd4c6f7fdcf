"""Steps on a cluster: what is tried again, what is handed on, what Ray is told. No cluster here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager import __version__
from packager.core.errors import OutputFailed, ToolUnavailable, Unavailable
from packager.core.events import Event, StepEvent
from packager.core.image import FileRange
from packager.core.model import ModelFile
from packager.core.recipe import Step, StepResult
from packager.images.blobs import BlobReader
from packager.optimize.steps.failures import StepFailed, StepRejected, StepTooLarge
from packager.optimize.steps.presence import Presence
from packager.optimize.steps.ray.cluster import NodeFailed, facts_document
from packager.optimize.steps.ray.connection import cluster_lost
from packager.optimize.steps.ray.exchange import FileExchange
from packager.optimize.steps.ray.executor import RayExecutor, RaySettings
from tests.support.cache_opening import open_local
from tests.support.cases import cases
from tests.support.doubles.ray_module import FakeRay, WorkerCrashedError, line
from tests.support.refusals import raises_code
from tests.support.tool_steps import checkpoint_step
from tests.unit.optimize.steps.ray.test_cluster_values import FACTS

NODES = {"10.0.0.1": {"CPU": 4.0, "memory": 2.0**35}}
DONE = [line(node="here"), line(result={"seconds": 2.5, "versions": {"torch": "2"}}), (0, "")]
WEIGHTS = "4811fea2b040bf245f3277ca21a29f72acfeee9485d74b8bbfb1c44725de815a"


class QuietHead:
    """A head that answers, until it is told not to."""

    lost = False

    @property
    def is_silent(self) -> bool:
        return self.lost

    def check(self) -> None:
        if self.lost:
            raise cluster_lost("10.0.0.1:6379")


class World:
    """An executor with a cluster that is written down."""

    def __init__(self, place: Path, scripts: Sequence[Any], **changes: Any) -> None:
        self.place = place
        self.shared = place / "shared"
        self.scripts = list(scripts)
        self.ray = FakeRay(changes.pop("nodes", NODES), self._script)
        self.events: list[Event] = []
        self.slept: list[float] = []
        self.facts: Mapping[str, Any] = facts_document(FACTS)
        self.head = QuietHead()
        given = {
            "address": "10.0.0.1:6379",
            "environment": {"AWS_SECRET_ACCESS_KEY": "secret-canary"},
            "given": {"PACKAGER_CACHE_SHARED": f"dir:{self.shared}"},
            "version": __version__,
            "exchange": self.exchange,
            "in_image": lambda name: name == "vllm-cache",
            "log_dir": place / "logs",
            "on_event": self.events.append,
            "join": lambda _address, _environment: (self.ray, self.head),
            "sleep": self.slept.append,
        }
        self.executor = RayExecutor(RaySettings(**{**given, **changes}))

    def exchange(self) -> FileExchange:
        presence = Presence(
            open_local(self.place / "cache"),
            [f"dir:{self.shared}"],
            partial=self.place / "partial",
            work_dir=self.place / "work",
        )

        @contextmanager
        def scratch() -> Any:
            def make(name: str) -> Path:
                made = self.place / "scratch" / f"{name}-{len(list(self.place.glob('scratch/*')))}"
                made.mkdir(parents=True)
                return made

            yield make

        return FileExchange(presence, scratch=scratch, read=BlobReader().chunks, version="1")

    def _script(self, words: Sequence[str]) -> Sequence[Any]:
        if words[1] == "tool":
            return [line(facts=self.facts), (0, "")]
        return self.scripts.pop(0)  # type: ignore[no-any-return]

    def run(self, asked: Step | None = None) -> StepResult:
        return self.executor.run(asked or step(), self.place / "into")

    @property
    def said(self) -> list[str]:
        return [event.detail for event in self.events if isinstance(event, StepEvent)]

    @property
    def log(self) -> str:
        [log] = (self.place / "logs").glob("*-quantize-*.log")
        return log.read_text()


def step(place: Path | None = None) -> Step:
    files: tuple[ModelFile, ...] = ()
    if place is not None:
        place.write_bytes(b"weights of ours")
        content = FileRange(path=str(place), offset=0, length=15)
        files = (ModelFile(path="m.safetensors", role="weights", content=content, sha256=WEIGHTS),)
    return checkpoint_step(files)


Run = Callable[..., World]


@pytest.fixture
def world(tmp_path: Path) -> Run:
    return lambda *scripts, **changes: World(tmp_path, scripts, **changes)


def test_a_result_is_shared_and_what_the_node_said_comes_back(world: Run) -> None:
    log = line(log="loading\n")
    done = line(result={"seconds": 2.5, "details": {"layers": 2}})
    progress = line(progress="layer, 1 of 2")
    said = [
        line(node="gpu-7"),
        progress + log[:9],
        log[9:] + line(notice="a notice"),
        done,
        (0, ""),
    ]
    node = world(said)

    result = node.run()

    assert result.published
    assert (result.seconds, dict(result.details)) == (2.5, {"layers": 2})
    assert result.notices == ("a notice",)
    assert node.said == ["on gpu-7", "layer, 1 of 2"]
    assert node.log == "loading\n"
    assert node.ray.cancelled == []


@pytest.mark.parametrize(
    "end", [[WorkerCrashedError("it died")], [(-9, "")], []], ids=["died", "killed", "no-word"]
)
def test_what_is_lost_with_a_worker_or_a_node_is_tried_again(world: Run, end: list[Any]) -> None:
    lost = [line(node="a"), *end]
    node = world(lost, lost, lost, DONE)

    result = node.run()

    assert result.published
    assert len(result.notices) == 3
    assert result.notices[0].startswith("step 'quantize' was tried again in the cluster: ")
    assert len(node.ray.steps) == 4
    assert node.slept == []
    assert sum(said.startswith("again: ") for said in node.said) == 3


def test_what_is_lost_again_and_again_ends_with_a_failure_that_says_so(world: Run) -> None:
    node = world(*[[WorkerCrashedError("the node had no memory")]] * 4)

    with raises_code("StepLost", match=r"was lost 4 times .*the node had no memory") as caught:
        node.run()

    assert caught.value.exit_code == 69


@pytest.mark.parametrize("kind", ["Unavailable", "OutputFailed"])
def test_a_failure_that_may_pass_is_tried_again_after_a_pause(world: Run, kind: str) -> None:
    fails = [line(error={"kind": kind, "message": "the bucket is away"}), (69, "")]
    node = world(fails, fails, DONE)

    assert node.run().published
    assert node.slept == [1.0, 2.0]

    node = world(*[fails] * 4)
    with pytest.raises(Unavailable if kind == "Unavailable" else OutputFailed, match="is away"):
        node.run()


REJECTED = {"kind": "StepRejected", "message": "7 heads", "log": "end"}
NO_TOOL = {"kind": "ToolUnavailable", "message": "no index"}
A_BUG = (70, "Traceback\nKeyError: 'x'")


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ([line(error=REJECTED), (6, "")], StepRejected, "7 heads"),
        ([line(error=NO_TOOL), (69, "")], ToolUnavailable, "no index"),
        ([line(node="a"), A_BUG], NodeFailed, "status 70: KeyError: 'x'"),
        ([b'{"node": 7}\n'], NodeFailed, "what cannot be read"),
    ],
    ids=["rejected", "tool", "a-bug", "not-our-words"],
)
def test_a_failure_that_would_come_again_is_not_tried_again(
    world: Run, script: list[Any], kind: type[Exception], words: str
) -> None:
    node = world(script, DONE)

    with pytest.raises(kind, match=words):
        node.run()

    assert len(node.ray.steps) == 1


def test_a_file_that_the_node_lacks_is_handed_on_once_through_the_shared_cache(
    world: Run, tmp_path: Path
) -> None:
    model = tmp_path / "m.safetensors"
    lacks = [line(missing=[WEIGHTS]), (0, "")]
    node = world(lacks, DONE)

    assert node.run(step(model)).published

    handed = [blob for blob in node.shared.glob("cas/sha256/*/*") if blob.stat().st_size == 15]
    assert [blob.name for blob in handed] == [WEIGHTS]
    assert "handing on m.safetensors" in node.said
    assert not model.samefile(handed[0])  # what others mount shares nothing with ours
    assert model.stat().st_mode & 0o777 == 0o644

    node = world(lacks, lacks)
    with pytest.raises(Unavailable, match=f"does not find input {WEIGHTS[:12]}"):
        node.run(step(model))


def test_ray_is_told_a_digest_and_addresses_and_nothing_else(world: Run, tmp_path: Path) -> None:
    node = world(DONE)

    node.run(step(tmp_path / "m.safetensors"))

    [(options, arguments)] = node.ray.steps
    words, given = arguments
    assert words[:3] == ("warm", "step", "--order")
    assert len(words) == 4
    assert len(words[3]) == 64
    assert given == {"PACKAGER_CACHE_SHARED": f"dir:{node.shared}"}
    how = {"num_cpus": 1, "num_returns": "streaming", "max_retries": 0}
    where = {"label_selector": {"ray.io/node-id": "in(10.0.0.1)"}}
    assert options == {"name": f"packager quantize {words[3][:12]}", **how, **where}
    assert "secret-canary" not in str(node.ray.started)


def test_a_step_with_gpus_asks_for_them_on_one_node(world: Run) -> None:
    nodes = {
        "cpu": {"CPU": 64.0, "memory": 2.0**40},
        "gpus": {"CPU": 8.0, "memory": 2.0**36, "GPU": 4.0, "accelerator_type:A10G": 1.0},
    }
    node = world(DONE, nodes=nodes)

    node.run(replace(step(), gpus=2))

    [(options, _)] = node.ray.steps
    assert options["num_gpus"] == 2
    assert options["label_selector"] == {"ray.io/node-id": "in(gpus)"}
    assert node.executor.capacity() == {"cpus": 8.0, "gpus": 4.0, "memory_bytes": 2.0**36}
    with pytest.raises(StepTooLarge, match="5 GPUs"):
        node.run(replace(step(), gpus=5))


@cases("the_node_is_told_what_the_user_told_us")
def test_the_node_is_told_what_the_user_told_us(
    world: Run, settings: dict[str, Any], more: tuple[str, ...]
) -> None:
    node = world([WorkerCrashedError("x")], DONE, **settings)

    node.run()

    first, second = (arguments[0][4:] for _, arguments in node.ray.steps)
    assert first == more
    assert "--restart" not in second  # what the lost try did is gone on with


def test_an_interrupt_cancels_the_step_on_its_node(world: Run) -> None:
    node = world([line(node="a"), KeyboardInterrupt()])

    with pytest.raises(KeyboardInterrupt):
        node.run()

    assert len(node.ray.cancelled) == 1


def test_a_cluster_that_is_gone_is_not_waited_for(world: Run) -> None:
    node = world(DONE)
    node.executor.capacity()
    node.head.lost = True
    node.ray.wait = lambda handles, **_: ([], handles)  # type: ignore[method-assign]

    with raises_code("ClusterLost"):
        node.run()


@cases("nodes_with_another_packager_are_refused_before_anything_runs")
def test_nodes_with_another_packager_are_refused_before_anything_runs(
    world: Run, version: str, words: str
) -> None:
    node = world(DONE)
    node.ray.version = version

    with raises_code("OtherPackager", match=words) as caught:
        node.executor.find_tool("llmcompressor")

    assert f"install packager {__version__} from " in caught.value.hint
    assert node.ray.started == []


def test_a_cluster_whose_head_runs_nothing_and_has_no_node_is_refused(world: Run) -> None:
    node = world(nodes={"head": {"memory": 1.0}})

    with pytest.raises(Unavailable, match="no node of the Ray cluster has a processor"):
        node.executor.capacity()


def test_a_tool_is_described_by_the_nodes_and_asked_for_once(world: Run) -> None:
    node = world()

    assert node.executor.find_tool("llmcompressor") == FACTS
    assert node.executor.find_tool("llmcompressor") == FACTS
    node.executor.prepare("llmcompressor")  # it is there

    assert [arguments[0] for _, arguments in node.ray.started] == [
        ("warm", "tool", "llmcompressor", "--build", "cpu")
    ]


def test_a_tool_that_no_node_has_is_installed_on_one(world: Run) -> None:
    node = world(nodes={"a": NODES["10.0.0.1"], "b": {"CPU": 4.0, "memory": 2.0**36}})
    node.facts = facts_document(replace(FACTS, installed=False))
    assert not node.executor.find_tool("llmcompressor").installed
    node.facts = facts_document(FACTS)

    node.executor.prepare("llmcompressor")

    installing = [one for one in node.ray.started if "--install" in one[1][0]]
    assert [options["label_selector"] for options, _ in installing] == [{"ray.io/node-id": "b"}]
    assert node.executor.find_tool("llmcompressor") == FACTS


def test_a_tool_that_runs_in_the_serving_image_is_refused_before_anything_runs(world: Run) -> None:
    with pytest.raises(ToolUnavailable, match="nodes run no images"):
        world().executor.prepare("vllm-cache")
    with pytest.raises(ToolUnavailable, match="nodes run no images") as caught:
        world().executor.admit(replace(step(), tool="vllm-cache"))

    assert "packager warm run" in caught.value.hint


def test_a_step_without_a_key_is_refused(world: Run) -> None:
    node = world(DONE)

    with pytest.raises(StepFailed, match="its result cannot come back"):
        node.run(replace(step(), key=None, env={}))

    assert node.ray.started == []


def test_a_node_that_went_away_before_it_began_is_not_waited_for(world: Run) -> None:
    """Ray keeps a task for a node by its id, whether or not that node lives."""
    node = world(DONE, DONE, quiet_s=0.0)
    real, waits = node.ray.wait, []

    def wait(handles: list[Any], **kinds: Any) -> tuple[list[Any], list[Any]]:
        waits.append(handles)
        if node.ray.steps and len(node.ray.steps) == 1 and not node.ray.cancelled:
            node.ray.resources = {"10.0.0.2": {"CPU": 4.0, "memory": 2.0**35}}
            return [], handles
        return real(handles, **kinds)

    node.ray.wait = wait  # type: ignore[method-assign]

    assert node.run().published

    selectors = [options["label_selector"]["ray.io/node-id"] for options, _ in node.ray.steps]
    assert selectors == ["in(10.0.0.1)", "in(10.0.0.2)"]
    assert len(node.ray.cancelled) == 1
