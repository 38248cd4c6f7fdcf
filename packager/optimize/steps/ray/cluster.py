"""Resources that a step requests of a Ray cluster, and the facts its nodes report; values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from packager.core import errors
from packager.core.errors import PackagerError, ToolUnavailable, Unavailable
from packager.core.order import MAX_LINE_BYTES, NodeError, NodeLine
from packager.core.recipe import Step
from packager.core.tool import ToolFacts
from packager.core.units import gib
from packager.core.warmup import Node, Resources, fits
from packager.optimize.steps import failures
from packager.optimize.steps.failures import StepFailed, StepTooLarge
from packager.optimize.steps.ray.connection import ClusterNode


def nodes_differ(tool: str, first: str, second: str, what: str) -> Unavailable:
    """Return an error: nodes of one cluster have other versions of a tool."""
    return Unavailable(
        f"nodes {first} and {second} have other versions of tool {tool!r}: {what}",
        hint="install the same version of packager on both, and recreate the environment "
        f"on one: `packager tools rm {tool}`",
        code="NodesDiffer",
    )


class NodeFailed(PackagerError):
    """A node failed for an unknown reason."""


class LineBuffer:
    """Splits the output of a node's process into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Return the complete lines. Raises `NodeFailed` for one that exceeds the limit."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise NodeFailed("a node writes a line without end")
        return [line for line in whole if line.strip()]


def is_end(line: NodeLine) -> bool:
    """Whether a line reports the end of a node's work."""
    ends = (line.result, line.error, line.facts)
    return bool(line.missing) or any(one is not None for one in ends)


def demand_of(step: Step, nodes: Sequence[Node], *, check: bool) -> Resources:
    """Return the resources that a step needs on one node.

    Its memory is the minimum where no node has more, and 0 without `check`.
    """
    largest = max((one.memory_bytes for one in nodes), default=0.0)
    needs = step.needs
    memory = needs.memory_bytes
    if needs.least_memory_bytes and memory > largest:
        memory = needs.least_memory_bytes
    return Resources(
        cpus=max(1, step.thread_count),
        memory_bytes=memory if check else 0,
        disk_bytes=needs.disk_bytes,
        accelerator="nvidia" if step.gpus else "cpu",
        device=step.gpu,
        devices=step.gpus,
    )


def fitting(step: Step, demand: Resources, nodes: Sequence[ClusterNode]) -> list[ClusterNode]:
    """Return the nodes that could run it when they are empty.

    Raises `StepTooLarge` where there is none: Ray would let it wait for ever.
    """
    able = [one for one in nodes if fits(demand, one.node)]
    if able:
        return able
    parts = [f"{demand.cpus} processors"]
    if demand.devices:
        parts.append(f"{demand.devices} GPUs {demand.device}".rstrip())
    if demand.memory_bytes:
        parts.append(f"{gib(demand.memory_bytes)} of memory")
    raise StepTooLarge(
        f"step {step.name!r} needs a node with {', '.join(parts)}; none of {len(nodes)} in the "
        "Ray cluster has that",
        hint="add such a node; nodes say what they have with `ray status -v`. "
        "--no-capacity-check does not ask for memory",
    )


def best_node(nodes: Sequence[ClusterNode]) -> ClusterNode:
    """Return the node that can run most: GPUs first, then memory."""

    def worth(one: ClusterNode) -> tuple[float, float, float, str]:
        node = one.node
        gpus = node.devices if node.accelerator == "nvidia" else 0.0
        return gpus, node.memory_bytes, node.cpus, one.id

    return max(nodes, key=worth)


def same_facts(tool: str, found: Mapping[ClusterNode, ToolFacts]) -> ToolFacts:
    """Return a tool as all nodes have it; those where it is not installed may only declare it.

    Raises `nodes_differ` where a result of one node would be filed under the key of another.
    """
    installed = {node: facts for node, facts in found.items() if facts.installed}
    counted = list((installed or found).items())
    first, wanted = counted[0]
    for node, facts in counted[1:]:
        if facts != wanted:
            what = _difference(wanted, facts)
            raise nodes_differ(tool, first.node.name, node.node.name, what)
    return wanted


def facts_document(facts: ToolFacts) -> dict[str, Any]:
    """Return facts as plain JSON."""
    return {
        one.name: dict(value) if isinstance(value := getattr(facts, one.name), Mapping) else value
        for one in fields(facts)
    }


def tool_facts(document: Mapping[str, Any]) -> ToolFacts:
    """Read the tool facts of a node; raise `NodeFailed` for invalid ones."""
    try:
        return ToolFacts(**document)
    except TypeError as error:
        raise NodeFailed(f"a node describes a tool in other words: {error}") from error


def failure_of(found: NodeError, step: str, log: Path | None) -> PackagerError:
    """Return a node's failure as the same failure here; `log` is where its log is now."""
    hint = found.hint
    if log is not None and hint.startswith("all of the log is in "):
        hint = f"all of the log is in {log}"
    if kind := _WITH_LOG.get(found.kind):
        return kind(found.message, hint=hint, log=found.log)
    if plain := _PLAIN.get(found.kind):
        return plain(found.message, hint=hint)
    failure = NodeFailed(f"step {step!r} failed on its node: {found.message}", hint=hint)
    failure.exit_code = found.exit_code
    return failure


# Failures of a node that are raised here with the same type.
_WITH_LOG: Mapping[str, type[StepFailed] | type[ToolUnavailable]] = {
    one.__name__: one
    for one in (
        StepFailed,
        failures.StepRejected,
        failures.StepOutOfMemory,
        failures.StepTimedOut,
        failures.StepBroken,
        StepTooLarge,
        ToolUnavailable,
    )
}
_PLAIN: Mapping[str, type[PackagerError]] = {
    one.__name__: one
    for one in (
        errors.UsageError,
        errors.NotFound,
        Unavailable,
        errors.OutputFailed,
        errors.ProtocolFailed,
        errors.AccessDenied,
        errors.ModelRefused,
    )
}


def _difference(one: ToolFacts, other: ToolFacts) -> str:
    """Describe the first difference."""
    versions = {**one.environment, **one.packages}
    theirs = {**other.environment, **other.packages}
    for name in sorted({*versions, *theirs}):
        if versions.get(name) != theirs.get(name):
            return f"{name} {versions.get(name, 'is missing')} and {theirs.get(name, 'is missing')}"
    if one.worker != other.worker:
        return "its worker is another"
    return "its requirements are others"
