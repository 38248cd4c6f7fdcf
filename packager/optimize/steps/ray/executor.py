"""Runs steps on the nodes of a Ray cluster; results come through the shared cache alone.

    here                          node
    lock and lease of the key
    order ──shared cache──▶       `packager warm step`: finds the inputs, runs, checks
    progress, logs ◀──Ray──       and publishes the result
    result ◀──shared cache──

A task is given the digest of its order and the addresses of caches: no files,
no texts, no credentials.  What is lost with a worker or a node is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from artifact_cache.distribution import installed_from
from packager.core.errors import OutputFailed, PackagerError, ToolUnavailable, Unavailable
from packager.core.events import EventSink, StepEvent
from packager.core.model import ModelFile
from packager.core.order import NodeLine
from packager.core.recipe import Step, StepResult
from packager.core.tool import Build, ToolFacts, build_for
from packager.core.warmup import Resources, pause_before
from packager.optimize.steps.failures import StepFailed
from packager.optimize.steps.logs import new_log
from packager.optimize.steps.ray.cluster import (
    best_node,
    demand_of,
    failure_of,
    fitting,
    same_facts,
    tool_facts,
)
from packager.optimize.steps.ray.connection import (
    TYPE,
    ClusterNode,
    Head,
    join_cluster,
    living_nodes,
)
from packager.optimize.steps.ray.exchange import FileExchange
from packager.optimize.steps.ray.orders import is_on_disk, make_order
from packager.optimize.steps.ray.probe import make_probe, on_node
from packager.optimize.steps.ray.tasks import AttemptLost, Given, RayTasks

RETRIES = 3
QUIET_S = 10.0  # without a node: report what the step waits for


def step_lost(step: str, reason: str, tries: int) -> Unavailable:
    """Return an error: workers or nodes of a step were lost more often than it is retried."""
    return Unavailable(
        f"step {step!r} was lost {tries} times in the cluster; the last time: {reason}",
        hint="`ray status` shows the nodes; Ray's own logs say why a worker ended. "
        "Run the same command again: what is in the cache is not made again",
        code="StepLost",
    )


class _Passing(Exception):
    """A node failed in a way that may pass."""

    def __init__(self, failure: PackagerError) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Missing(Exception):
    """The node lacks inputs, named by digest."""

    def __init__(self, digests: Sequence[str]) -> None:
        super().__init__(digests)
        self.digests = tuple(digests)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """A cluster, and how steps run there."""

    address: str
    environment: Given  # of this process: where the cluster is, without an address
    given: Given  # variables of the tasks
    version: str  # of packager, which the nodes must have
    exchange: Callable[[], FileExchange]
    in_image: Callable[[str], bool]  # whether a tool runs in the serving image
    log_dir: Path
    on_event: EventSink
    check: bool = True  # refuse what fits no node
    restart: bool = False  # of steps that an earlier run did not finish
    retries: int = RETRIES
    join: Callable[[str, Given], tuple[Any, Head]] = join_cluster
    sleep: Callable[[float], None] = time.sleep
    quiet_s: float = QUIET_S


class RayExecutor:
    """Runs one step at a time, on a node with room. Joins the cluster on first use."""

    name = "ray"

    def __init__(self, settings: RaySettings) -> None:
        self._settings = settings
        self._tasks = RayTasks(
            lambda: settings.join(settings.address, settings.environment),
            settings.given,
            settings.quiet_s,
        )
        self._gpu_bytes: dict[str, int] = {}  # of nodes that have our version, by id
        self._facts: dict[tuple[str, Build], dict[ClusterNode, ToolFacts]] = {}

    def find_tool(self, name: str, build: Build = "cpu") -> ToolFacts:
        """Describe the tool as the nodes have it. Raises `nodes_differ` where they disagree."""
        return same_facts(name, self._ask_all(name, build))

    def prepare(self, name: str, build: Build = "cpu") -> None:
        """Install the tool on one node where none has it; others do when a step comes."""
        self._refuse_image(name)
        found = self._ask_all(name, build)
        if any(one.installed for one in found.values()):
            return
        node = best_node(list(found))
        words = ("warm", "tool", name, "--build", build, "--install")
        del self._facts[name, build]
        facts = self._tool_on(node, words, f"tool {name}")
        self._facts[name, build] = {**found, node: facts}

    def admit(self, step: Step) -> None:
        """Refuse what fits no node; the node itself compares memory and disk once more."""
        self._refuse_image(step.tool)
        nodes = self._nodes()
        fitting(
            step, demand_of(step, [one.node for one in nodes], check=self._settings.check), nodes
        )

    def _refuse_image(self, name: str) -> None:
        if self._settings.in_image(name):
            raise ToolUnavailable(
                f"tool {name!r} runs in the serving image, and nodes run no images for a build",
                hint="`packager warm run PLAN --executor ray --steps docker` compiles on nodes "
                "with a Docker Engine, and the build then takes it from the shared cache",
            )

    def run(self, step: Step, into: Path) -> StepResult:  # noqa: ARG002
        """Run the step on a node, which publishes the result; retry what was lost.

        `into` stays empty: the result says that it is in the shared cache.
        """
        if step.key is None or step.image is not None:
            raise StepFailed(
                f"step {step.name!r} has no key of its own, so its result cannot come back "
                "through the cache",
                hint="build with --executor local or docker",
            )
        exchange = self._settings.exchange()
        order = make_order(step, exchange.digest)
        digest = exchange.offer_order(order)
        local = {
            one.sha256: file
            for role, given in step.inputs.items()
            for one, file in zip(order.inputs[role], given.files, strict=True)
            if is_on_disk(file)
        }
        log = new_log(self._settings.log_dir, step.name)
        sent: set[str] = set()
        lost_tries: list[str] = []
        while True:
            failures = len(lost_tries)
            try:
                result = self._try(
                    step, digest, log, restart=self._settings.restart and not failures
                )
                return replace(result, notices=(*lost_tries, *result.notices))
            except _Missing as lacking:
                self._send(step, exchange, lacking.digests, local, sent)
            except AttemptLost as lost:
                if failures == self._settings.retries:
                    raise step_lost(step.name, str(lost), failures + 1) from None
                lost_tries.append(self._again(step, str(lost)))
            except _Passing as passing:
                if failures == self._settings.retries:
                    raise passing.failure from None
                lost_tries.append(self._again(step, passing.failure.message))
                self._settings.sleep(pause_before(len(lost_tries)))

    def capacity(self) -> Mapping[str, float]:
        """Return the capacity of the largest node: a step must fit one node."""
        best = best_node(self._nodes())
        has = {"cpus": best.node.cpus, "gpus": 0.0, "memory_bytes": best.node.memory_bytes}
        if best.node.accelerator == "nvidia":
            has["gpus"] = best.node.devices
            if size := self._gpu_bytes.get(best.id):
                has["gpu_bytes"] = float(size)
        return has

    # --- one try

    def _try(self, step: Step, order: str, log: Path, *, restart: bool) -> StepResult:
        nodes = self._nodes()
        demand = demand_of(step, [one.node for one in nodes], check=self._settings.check)
        able = fitting(step, demand, nodes)
        installed = self._facts.get((step.tool, build_for(step.gpus)), {})
        ready = [one for one in able if one in installed and installed[one].installed]
        chosen = ready or able
        options = _task_options(f"packager {step.name} {order[:12]}", demand, chosen)
        words = ["warm", "step", "--order", order]
        words += [] if self._settings.check else ["--no-capacity-check"]
        words += ["--restart"] if restart else []
        what = f"{demand.cpus} processors" + (
            f" and {demand.devices} GPUs" if demand.devices else ""
        )
        notices: list[str] = []
        result: StepResult | None = None

        def on_wait() -> None:
            self._refuse_dead(chosen)
            self._say(step, f"waiting for a node with {what} free")

        lines = self._tasks.followed(self._tasks.start(words, options), on_wait)
        with log.open("ab") as sink, closing(lines):
            for line in lines:
                self._report(step, line)
                if line.log:
                    sink.write(line.log.encode())
                    sink.flush()
                if line.notice:
                    notices.append(line.notice)
                if line.missing:
                    raise _Missing(line.missing)
                if line.error is not None:
                    failure = failure_of(line.error, step.name, log)
                    if type(failure) in (Unavailable, OutputFailed):
                        raise _Passing(failure)
                    raise failure
                if line.result is not None:
                    found = line.result
                    result = StepResult(
                        versions=found.versions,
                        details=found.details,
                        seconds=found.seconds,
                        peak_memory_bytes=found.peak_memory_bytes,
                        notices=tuple(notices),
                        published=True,
                    )
        if result is None:
            raise AttemptLost("the node's process ended without a result")
        return result

    def _send(
        self,
        step: Step,
        exchange: FileExchange,
        lacking: Sequence[str],
        local: Mapping[str, ModelFile],
        sent: set[str],
    ) -> None:
        """Publish the files that the node lacks to the shared cache, each once."""
        if unknown := [one for one in lacking if one in sent or one not in local]:
            raise Unavailable(
                f"a node does not find input {unknown[0][:12]} of step {step.name!r} in the "
                "shared cache",
                hint="every node must reach the same store: a dir: store has to be mounted on "
                "all of them",
            )
        for digest in lacking:
            self._say(step, f"handing on {local[digest].path}")
            exchange.offer_file(local[digest], digest)
            sent.add(digest)

    def _again(self, step: Step, reason: str) -> str:
        """Report a retry; return its reason, for the final message, too."""
        self._say(step, f"again: {reason}")
        return f"step {step.name!r} was tried again in the cluster: {reason}"

    def _report(self, step: Step, line: NodeLine) -> None:
        if line.node:
            self._say(step, f"on {line.node}")
        if line.progress:
            self._say(step, line.progress)

    def _say(self, step: Step, detail: str) -> None:
        self._settings.on_event(StepEvent(step=step.name, state="running", detail=detail))

    # --- the cluster

    def _nodes(self) -> list[ClusterNode]:
        """Return the nodes that can run anything; raise where they have another packager."""
        ray, _ = self._tasks.cluster()
        nodes = [one for one in living_nodes(ray) if one.node.cpus >= 1]
        if not nodes:
            raise Unavailable(
                "no node of the Ray cluster has a processor to give",
                hint="`ray start --address HOST:6379` on a machine makes it a node",
            )
        self._check_versions([one for one in nodes if one.id not in self._gpu_bytes])
        return nodes

    def _refuse_dead(self, chosen: Sequence[ClusterNode]) -> None:
        """Raise `AttemptLost` where all chosen nodes are gone: Ray would wait forever."""
        ray, _ = self._tasks.cluster()
        living = {one.id for one in living_nodes(ray)}
        if not any(one.id in living for one in chosen):
            raise AttemptLost("no node that could run it lives any more")

    def _check_versions(self, nodes: Sequence[ClusterNode]) -> None:
        ray, _ = self._tasks.cluster()
        if not nodes:
            return
        asked = {ray.remote(make_probe()).options(**on_node(one)).remote(): one for one in nodes}
        for task, one in asked.items():
            try:
                found, gpu_bytes = self._tasks.result(task)
            except AttemptLost as lost:
                raise Unavailable(
                    f"node {one.node.name} does not answer: {lost}",
                    hint="`ray status` shows the nodes",
                ) from None
            if found != self._settings.version:
                has = f"has packager {found}" if found else "has no packager"
                raise other_packager(one.node.name, has, self._settings.version)
            self._gpu_bytes[one.id] = gpu_bytes

    def _ask_all(self, name: str, build: Build) -> dict[ClusterNode, ToolFacts]:
        """Query every node that would run steps with this build of the tool."""
        if (name, build) not in self._facts:
            nodes = self._nodes()
            if build == "cuda":
                nodes = [one for one in nodes if one.node.accelerator == "nvidia"] or nodes
            words = ("warm", "tool", name, "--build", build)
            handles = [self._tasks.start(words, on_node(one)) for one in nodes]
            self._facts[name, build] = {
                one: self._facts_in(self._tasks.followed(handle), one.node.name)
                for one, handle in zip(nodes, handles, strict=True)
            }
        return self._facts[name, build]

    def _tool_on(self, node: ClusterNode, words: Sequence[str], step: str) -> ToolFacts:
        self._settings.on_event(
            StepEvent(step=step, state="running", detail=f"on {node.node.name}")
        )
        lines = self._tasks.followed(self._tasks.start(words, on_node(node)))
        return self._facts_in(lines, node.node.name, step)

    def _facts_in(self, lines: Iterable[NodeLine], node: str, step: str = "") -> ToolFacts:
        try:
            for line in lines:
                if line.progress and step:
                    self._settings.on_event(
                        StepEvent(step=step, state="running", detail=line.progress)
                    )
                if line.error is not None:
                    raise failure_of(line.error, node, None)
                if line.facts is not None:
                    return tool_facts(line.facts)
        except AttemptLost as lost:
            raise Unavailable(
                f"node {node} does not describe its tools: {lost}",
                hint="`ray status` shows the nodes",
            ) from None
        raise Unavailable(
            f"node {node} does not describe its tools", hint="`ray status` shows the nodes"
        )


def _task_options(name: str, demand: Resources, chosen: Sequence[ClusterNode]) -> dict[str, Any]:
    """Return what Ray is told to reserve, and the nodes that the task may run on."""
    options: dict[str, Any] = {
        "name": name,
        "num_cpus": demand.cpus,
        "label_selector": {"ray.io/node-id": f"in({','.join(one.id for one in chosen)})"},
    }
    if demand.memory_bytes:
        options["memory"] = demand.memory_bytes
    if demand.devices:
        options["num_gpus"] = demand.devices
        if demand.device:
            options["resources"] = {TYPE + demand.device: 0.001}
    return options


def other_packager(node: str, has: str, ours: str) -> Unavailable:
    """Return an error: a node of the cluster has another version of packager, or none."""
    return Unavailable(
        f"node {node} of the Ray cluster {has}, here it is {ours}",
        hint=f"install packager {ours} from {installed_from() or 'its wheel'}, "
        "with its extras, into the Python that Ray runs there",
        code="OtherPackager",
    )
