"""Runs a step that another machine ordered, on a node of a cluster.

The submitting machine holds lock and lease of the key. The node finds the inputs, installs the tool
if it is missing, and checks the result like its own before it publishes it under the step's key.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from artifact_cache.key import key_of
from packager.core.errors import OutputFailed, PackagerError
from packager.core.order import NodeResult
from packager.core.recipe import Step
from packager.core.tool import ToolFacts, build_for
from packager.optimize.steps.failures import StepBroken
from packager.optimize.steps.key_parts import ROUNDING, toolchain_of
from packager.optimize.steps.presence import Presence
from packager.optimize.steps.ray.exchange import InputFinder
from packager.optimize.steps.ray.orders import make_step
from packager.optimize.steps.running import with_cache_healed
from packager.optimize.steps.services import StepServices


def store_unusable(reason: str) -> OutputFailed:
    """Return an error: results of this node would not reach other machines."""
    return OutputFailed(
        f"this node cannot write to the shared cache: {reason}",
        hint="credentials of a bucket are the node's own; a dir: store has to be mounted "
        "there. `packager cache check` on the node asks the stores",
        code="StoreUnusable",
    )


def tool_differs(step: Step, what: str) -> PackagerError:
    """Return an error: the node's tool differs from that of the key."""
    return PackagerError(
        f"tool {step.tool!r} of this node is another than the one of the key: {what}",
        hint="install the same version of packager on every node, and make the tool's "
        f"environment anew: `packager tools rm {step.tool}`",
        code="ToolDiffers",
        exit_code=65,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeServices:
    """Services of a node that runs ordered steps."""

    services: StepServices
    presence: Presence
    finder: Callable[[], AbstractContextManager[InputFinder]]  # its files exist until then


def run_order(digest: str, node: NodeServices) -> NodeResult:
    """Run the ordered step and publish its result.

    Raises `InputsMissing` for inputs that are not here.
    """
    if refusals := node.presence.refusals():
        raise store_unusable(refusals[0])
    services = node.services
    with node.finder() as finder:
        order = finder.order(digest)
        try:
            step = make_step(order, finder.inputs(order))
        except ValueError as error:
            raise StepBroken(f"order {digest[:12]} is not a valid step: {error}") from error
        assert step.key is not None
        kind, key = step.key.kind, key_of(step.key)
        if node.presence.has(kind, key):
            return NodeResult(reused=True)
        services.executor.admit(step)
        build = build_for(step.gpus)
        services.executor.prepare(step.tool, build)
        check_toolchain(step, services.executor.find_tool(step.tool, build))
        with services.run_steps() as run_step:
            outcome = with_cache_healed(services, lambda: run_step(step))
        if not node.presence.ensure(kind, key):
            raise store_unusable("the result was not found there after it was put")
    found = outcome.result
    return NodeResult(
        versions=dict(found.versions),
        details=dict(found.details),
        seconds=found.seconds,
        peak_memory_bytes=found.peak_memory_bytes,
        reused=outcome.reused,
    )


def check_toolchain(step: Step, facts: ToolFacts) -> None:
    """Raise `tool_differs` where the key was made for another tool than this node has."""
    wanted = getattr(step.key, "toolchain", None)
    here = toolchain_of(facts)
    if wanted is None or wanted == here or wanted.packages[0].name == ROUNDING:
        return
    theirs = {one.name: one.version for one in wanted.packages} | dict(wanted.environment)
    ours = {one.name: one.version for one in here.packages} | dict(here.environment)
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            raise tool_differs(
                step,
                f"{name} {ours.get(name, 'is missing')} here, "
                f"{theirs.get(name, 'none')} in the key",
            )
    raise tool_differs(step, "its worker or its requirements are others")
