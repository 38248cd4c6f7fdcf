"""What a step asks of a cluster, and which of its nodes can give it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.order import MAX_LINE_BYTES, NodeError
from packager.core.recipe import Estimate, Step
from packager.core.tool import ToolFacts
from packager.core.warmup import Node, Resources
from packager.errors import PackagerError, Unavailable
from packager.steps.failures import StepRejected, StepTooLarge
from packager.steps.ray.cluster import (
    LineBuffer,
    NodeFailed,
    NodesDiffer,
    best_node,
    demand_of,
    facts_document,
    failure_of,
    fitting,
    same_facts,
    tool_facts,
)
from packager.steps.ray.connection import ClusterNode

GIB = 2**30
STEP = Step(name="quantize", tool="llmcompressor", gives="model")
FACTS = ToolFacts(
    name="llmcompressor",
    worker="a" * 64,
    requirements="b" * 64,
    packages={"torch": "2.13.0+cpu"},
    environment={"python": "3.11"},
    installed=True,
)


def node(name: str, *, cpus: float = 8, memory: float = 32 * GIB, gpus: float = 0) -> ClusterNode:
    has = Node(
        name=name,
        cpus=cpus,
        memory_bytes=memory,
        accelerator="nvidia" if gpus else "cpu",
        devices=gpus,
    )
    return ClusterNode(id=f"id-{name}", node=has)


SMALL, LARGE = node("small", memory=16 * GIB), node("large", memory=256 * GIB)
ONE_GPU, FOUR_GPUS = node("gpu", gpus=1), node("gpus", gpus=4)


@pytest.mark.parametrize(
    ("changes", "check", "wanted"),
    [
        pytest.param({}, True, Resources(), id="nothing-said"),
        pytest.param({"env": {"OMP_NUM_THREADS": "4"}}, True, Resources(cpus=4), id="threads"),
        pytest.param({"threads": 3}, True, Resources(cpus=3), id="threads-beside-the-key"),
        pytest.param(
            {"gpus": 2},
            True,
            Resources(accelerator="nvidia", devices=2),
            id="gpus",
        ),
        pytest.param(
            {"needs": Estimate(memory_bytes=20 * GIB)},
            True,
            Resources(memory_bytes=20 * GIB),
            id="memory",
        ),
        pytest.param(
            {"needs": Estimate(memory_bytes=300 * GIB, least_memory_bytes=40 * GIB)},
            True,
            Resources(memory_bytes=40 * GIB),
            id="least-memory-where-no-node-has-more",
        ),
        pytest.param(
            {"needs": Estimate(memory_bytes=200 * GIB, least_memory_bytes=40 * GIB)},
            True,
            Resources(memory_bytes=200 * GIB),
            id="all-memory-where-a-node-has-it",
        ),
        pytest.param(
            {"needs": Estimate(memory_bytes=300 * GIB)},
            False,
            Resources(),
            id="no-memory-without-the-check",
        ),
    ],
)
def test_a_step_asks_for_what_one_node_must_have(
    changes: dict[str, object], check: bool, wanted: Resources
) -> None:
    step = replace(STEP, **changes)  # type: ignore[arg-type]

    assert demand_of(step, [SMALL.node, LARGE.node], check=check) == wanted


@pytest.mark.parametrize(
    ("demand", "able"),
    [
        pytest.param(Resources(), ["small", "large", "gpu", "gpus"], id="anything"),
        pytest.param(Resources(memory_bytes=100 * GIB), ["large"], id="memory-of-one-node"),
        pytest.param(Resources(accelerator="nvidia", devices=2), ["gpus"], id="gpus-of-one-node"),
    ],
)
def test_a_step_must_fit_one_node_and_not_the_cluster(demand: Resources, able: list[str]) -> None:
    nodes = [SMALL, LARGE, ONE_GPU, FOUR_GPUS]

    assert [one.node.name for one in fitting(STEP, demand, nodes)] == able


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        pytest.param(
            Resources(accelerator="nvidia", devices=5), "1 processors, 5 GPUs", id="five-gpus"
        ),
        pytest.param(
            Resources(cpus=2, memory_bytes=512 * GIB),
            "2 processors, 512.0 GiB of memory",
            id="memory",
        ),
    ],
)
def test_what_no_node_has_is_refused_where_ray_would_wait_for_ever(
    demand: Resources, words: str
) -> None:
    with pytest.raises(StepTooLarge, match=f"a node with {words}; none of 2 in the Ray cluster"):
        fitting(STEP, demand, [ONE_GPU, FOUR_GPUS])


def test_the_best_node_has_most_gpus_and_then_most_memory() -> None:
    assert best_node([SMALL, LARGE]) is LARGE
    assert best_node([LARGE, ONE_GPU, FOUR_GPUS]) is FOUR_GPUS


def test_a_node_without_the_tool_only_declares_its_versions() -> None:
    declared = replace(FACTS, installed=False, packages={"torch": "2.13.0"})

    assert same_facts("llmcompressor", {SMALL: declared, LARGE: FACTS}) == FACTS
    assert same_facts("llmcompressor", {SMALL: declared}) == declared


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"packages": {"torch": "2.14.0"}}, r"torch 2\.13\.0\+cpu and 2\.14\.0", id="package"
        ),
        pytest.param({"environment": {}}, r"python 3\.11 and is missing", id="environment"),
        pytest.param({"worker": "c" * 64}, "its worker is another", id="worker"),
        pytest.param({"requirements": "c" * 64}, "its requirements are others", id="requirements"),
    ],
)
def test_nodes_with_other_versions_of_a_tool_are_refused(
    changes: dict[str, object], words: str
) -> None:
    other = replace(FACTS, **changes)  # type: ignore[arg-type]

    with pytest.raises(NodesDiffer, match=f"nodes small and large .*: {words}") as caught:
        same_facts("llmcompressor", {SMALL: FACTS, LARGE: other})

    assert isinstance(caught.value, Unavailable)


def test_facts_of_a_tool_come_back_as_they_were() -> None:
    assert tool_facts(facts_document(FACTS)) == FACTS
    with pytest.raises(NodeFailed, match="in other words"):
        tool_facts({"name": "x", "since": 1})


@pytest.mark.parametrize(
    ("kind", "wanted", "code", "permanent"),
    [
        pytest.param("StepRejected", "StepRejected", 6, True, id="rejected"),
        pytest.param("StepOutOfMemory", "StepOutOfMemory", 6, False, id="memory"),
        pytest.param("Unavailable", "Unavailable", 69, False, id="unavailable"),
        pytest.param("ToolUnavailable", "ToolUnavailable", 69, False, id="tool"),
        pytest.param("ToolDiffers", "NodeFailed", 65, False, id="of-a-name-that-is-not-known"),
        pytest.param("KeyboardInterrupt", "NodeFailed", 65, False, id="no-failure-of-ours"),
    ],
)
def test_a_failure_of_a_node_is_the_same_failure_here(
    kind: str, wanted: str, code: int, permanent: bool
) -> None:
    said = NodeError(kind=kind, message="no", hint="try", log="last words", exit_code=65)

    failure = failure_of(said, "quantize", None)

    assert type(failure).__name__ == wanted
    assert failure.exit_code == code
    assert getattr(failure, "permanent", False) is permanent
    assert failure.hint == "try"
    assert getattr(failure, "log", "last words") == "last words"


def test_the_hint_names_the_log_on_this_machine(tmp_path: Path) -> None:
    said = NodeError(kind="StepRejected", message="no", hint="all of the log is in /node/1.log")

    failure = failure_of(said, "quantize", tmp_path / "here.log")

    assert isinstance(failure, StepRejected)
    assert failure.hint == f"all of the log is in {tmp_path / 'here.log'}"


def test_lines_are_whole_however_they_come() -> None:
    answer = LineBuffer()

    assert [list(answer.feed(piece)) for piece in (b"one\ntw", b"o\n\n", b"thr", b"ee\n")] == [
        [b"one"],
        [b"two"],
        [],
        [b"three"],
    ]


def test_a_line_without_an_end_is_refused() -> None:
    answer = LineBuffer()

    with pytest.raises(PackagerError, match="a line without end"):
        for _ in range(MAX_LINE_BYTES // 2**20 + 1):
            answer.feed(b"x" * 2**20)
