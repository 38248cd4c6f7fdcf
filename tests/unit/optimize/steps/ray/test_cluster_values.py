"""What a step asks of a cluster, and which of its nodes can give it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import PackagerError, Unavailable
from packager.core.order import MAX_LINE_BYTES, NodeError
from packager.core.recipe import Estimate, Step
from packager.core.tool import ToolFacts
from packager.core.warmup import Node, Resources
from packager.optimize.steps.failures import StepRejected, StepTooLarge
from packager.optimize.steps.ray.cluster import (
    LineBuffer,
    NodeFailed,
    best_node,
    demand_of,
    facts_document,
    failure_of,
    fitting,
    same_facts,
    tool_facts,
)
from packager.optimize.steps.ray.connection import ClusterNode
from tests.support.cases import Case, as_type, cases, read_tables
from tests.support.refusals import raises_code

GIB = 2**30
STEP = Step(name="quantize", tool="llmcompressor", gives="model")
FACTS = as_type(read_tables(__file__)["tool_facts"], ToolFacts)


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


@cases("demands")
def test_a_step_asks_for_what_one_node_must_have(case: Case) -> None:
    memory, least, wanted = (
        case.get(name, 0) * GIB for name in ("memory_gib", "least_gib", "wanted_gib")
    )
    needs = Estimate(memory_bytes=memory, least_memory_bytes=least)
    step = replace(STEP, needs=needs, **case["changes"])

    found = demand_of(step, [SMALL.node, LARGE.node], check="unchecked" not in case)

    assert found == Resources(memory_bytes=wanted, **case["wanted"])


@cases("able")
def test_a_step_must_fit_one_single_node(demand: dict[str, Any], able: tuple[str, ...]) -> None:
    nodes = [SMALL, LARGE, ONE_GPU, FOUR_GPUS]

    assert tuple(one.node.name for one in fitting(STEP, Resources(**demand), nodes)) == able


@cases("refused")
def test_what_no_node_has_is_refused_where_ray_would_wait_for_ever(
    demand: dict[str, Any], words: str
) -> None:
    with pytest.raises(StepTooLarge, match=f"a node with {words}; none of 2 in the Ray cluster"):
        fitting(STEP, Resources(**demand), [ONE_GPU, FOUR_GPUS])


def test_the_best_node_has_most_gpus_and_then_most_memory() -> None:
    assert best_node([SMALL, LARGE]) is LARGE
    assert best_node([LARGE, ONE_GPU, FOUR_GPUS]) is FOUR_GPUS


def test_a_node_without_the_tool_only_declares_its_versions() -> None:
    declared = replace(FACTS, installed=False, packages={"torch": "2.13.0"})

    assert same_facts("llmcompressor", {SMALL: declared, LARGE: FACTS}) == FACTS
    assert same_facts("llmcompressor", {SMALL: declared}) == declared


@cases("differ")
def test_nodes_with_other_versions_are_refused(changes: dict[str, Any], words: str) -> None:
    other = replace(FACTS, **changes)

    with raises_code("NodesDiffer", match=f"nodes small and large .*: {words}") as caught:
        same_facts("llmcompressor", {SMALL: FACTS, LARGE: other})

    assert isinstance(caught.value, Unavailable)


def test_facts_of_a_tool_come_back_as_they_were() -> None:
    assert tool_facts(facts_document(FACTS)) == FACTS
    with pytest.raises(NodeFailed, match="in other words"):
        tool_facts({"name": "x", "since": 1})


@cases("failures")
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
