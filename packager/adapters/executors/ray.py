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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from packager.adapters.executors.cluster import (
    Answer,
    NodeFailed,
    best_node,
    demand_of,
    failure_of,
    fitting,
    is_end,
    same_facts,
    tool_facts,
)
from packager.adapters.executors.exchange import Exchange
from packager.adapters.executors.failures import StepFailed
from packager.adapters.executors.logs import new_log
from packager.adapters.executors.orders import is_on_disk, make_order
from packager.adapters.fleet.ray_cluster import (
    TYPE,
    ClusterNode,
    Head,
    join_cluster,
    living_nodes,
    lost_reason,
)
from packager.adapters.fleet.ray_task import run_words
from packager.core.documents import NotStrict, parse_model
from packager.core.events import EventSink, StepEvent
from packager.core.model import ModelFile
from packager.core.order import MAX_LINE_BYTES, NodeLine
from packager.core.recipe import Step, StepResult
from packager.core.tool import Build, ToolFacts, build_for
from packager.core.warmup import pause_before
from packager.errors import OutputFailed, PackagerError, ToolUnavailable, Unavailable

RETRIES = 3
POLL_S = 0.5
QUIET_S = 10.0  # without a node: say what is waited for
CANCEL_S = 15.0
ASK_S = 120.0  # for a node to describe a tool; its first worker has to start

Given = Mapping[str, str]


class StepLost(Unavailable):
    """Workers or nodes that had a step went away, more often than is tried."""

    def __init__(self, step: str, reason: str, tries: int) -> None:
        super().__init__(
            f"step {step!r} was lost {tries} times in the cluster; the last time: {reason}",
            hint="`ray status` shows the nodes; Ray's own logs say why a worker ended. "
            "Run the same command again: what is in the cache is not made again",
        )


class _Lost(Exception):
    """A try ended without a word of the node."""


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


class RayExecutor:
    """One step at a time, on whichever node has room. Joins the cluster when it is first asked."""

    name = "ray"

    def __init__(
        self,
        *,
        address: str,
        environment: Given,
        given: Given,
        version: str,
        exchange: Callable[[], Exchange],
        in_image: Callable[[str], bool],
        log_dir: Path,
        on_event: EventSink,
        check: bool = True,
        restart: bool = False,
        retries: int = RETRIES,
        join: Callable[[str, Given], tuple[Any, Head]] = join_cluster,
        sleep: Callable[[float], None] = time.sleep,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._address = address
        self._environment = environment
        self._given = dict(given)
        self._version = version
        self._exchange = exchange
        self._in_image = in_image
        self._log_dir = log_dir
        self._on_event = on_event
        self._check = check
        self._restart = restart
        self._retries = retries
        self._join = join
        self._sleep = sleep
        self._quiet_s = quiet_s
        self._joined: tuple[Any, Head] | None = None
        self._gpu_bytes: dict[str, int] = {}  # of nodes that have our version, by id
        self._facts: dict[tuple[str, Build], dict[ClusterNode, ToolFacts]] = {}

    def find_tool(self, name: str, build: Build = "cpu") -> ToolFacts:
        """Describe the tool as the nodes have it. Raises `NodesDiffer` where they disagree."""
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
        fitting(step, demand_of(step, [one.node for one in nodes], check=self._check), nodes)

    def _refuse_image(self, name: str) -> None:
        if self._in_image(name):
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
        exchange = self._exchange()
        order = make_order(step, exchange.digest)
        digest = exchange.offer_order(order)
        local = {
            one.sha256: file
            for role, given in step.inputs.items()
            for one, file in zip(order.inputs[role], given.files, strict=True)
            if is_on_disk(file)
        }
        log = new_log(self._log_dir, step.name)
        sent: set[str] = set()
        lost_tries: list[str] = []
        while True:
            failures = len(lost_tries)
            try:
                result = self._try(step, digest, log, restart=self._restart and not failures)
                return replace(result, notices=(*lost_tries, *result.notices))
            except _Missing as lacking:
                self._send(step, exchange, lacking.digests, local, sent)
            except _Lost as lost:
                if failures == self._retries:
                    raise StepLost(step.name, str(lost), failures + 1) from None
                lost_tries.append(self._again(step, str(lost)))
            except _Passing as passing:
                if failures == self._retries:
                    raise passing.failure from None
                lost_tries.append(self._again(step, passing.failure.message))
                self._sleep(pause_before(len(lost_tries)))

    def capacity(self) -> Mapping[str, float]:
        """Return what the best node has: a step must fit one node."""
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
        demand = demand_of(step, [one.node for one in nodes], check=self._check)
        able = fitting(step, demand, nodes)
        installed = self._facts.get((step.tool, build_for(step.gpus)), {})
        ready = [one for one in able if one in installed and installed[one].installed]
        chosen = ready or able
        options: dict[str, Any] = {
            "name": f"packager {step.name} {order[:12]}",
            "num_cpus": demand.cpus,
            "label_selector": {"ray.io/node-id": f"in({','.join(one.id for one in chosen)})"},
        }
        if demand.memory_bytes:
            options["memory"] = demand.memory_bytes
        if demand.devices:
            options["num_gpus"] = demand.devices
            if demand.device:
                options["resources"] = {TYPE + demand.device: 0.001}
        words = ["warm", "step", "--order", order]
        words += [] if self._check else ["--no-capacity-check"]
        words += ["--restart"] if restart else []
        what = f"{demand.cpus} processors" + (
            f" and {demand.devices} GPUs" if demand.devices else ""
        )
        notices: list[str] = []
        result: StepResult | None = None

        def on_wait() -> None:
            self._refuse_dead(chosen)
            self._say(step, f"waiting for a node with {what} free")

        lines = self._followed(self._start(words, options), on_wait)
        with log.open("ab") as sink, closing(lines):
            for line in lines:
                if line.node:
                    self._say(step, f"on {line.node}")
                if line.progress:
                    self._say(step, line.progress)
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
            raise _Lost("the node's process ended without a result")
        return result

    def _send(
        self,
        step: Step,
        exchange: Exchange,
        lacking: Sequence[str],
        local: Mapping[str, ModelFile],
        sent: set[str],
    ) -> None:
        """Publish what the node lacks to the shared cache, each file once."""
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
        """Report a try that is made again; return what is to be said of it in the end, too."""
        self._say(step, f"again: {reason}")
        return f"step {step.name!r} was tried again in the cluster: {reason}"

    def _say(self, step: Step, detail: str) -> None:
        self._on_event(StepEvent(step=step.name, state="running", detail=detail))

    # --- the cluster

    def _cluster(self) -> tuple[Any, Head]:
        if self._joined is None:
            self._joined = self._join(self._address, self._environment)
        return self._joined

    def _nodes(self) -> list[ClusterNode]:
        """Return the nodes that can run anything; raise where they have another packager."""
        ray, _ = self._cluster()
        nodes = [one for one in living_nodes(ray) if one.node.cpus >= 1]
        if not nodes:
            raise Unavailable(
                "no node of the Ray cluster has a processor to give",
                hint="`ray start --address HOST:6379` on a machine makes it a node",
            )
        self._check_versions([one for one in nodes if one.id not in self._gpu_bytes])
        return nodes

    def _refuse_dead(self, chosen: Sequence[ClusterNode]) -> None:
        """Raise `_Lost` where all of them are gone: Ray would wait for them for ever."""
        ray, _ = self._cluster()
        living = {one.id for one in living_nodes(ray)}
        if not any(one.id in living for one in chosen):
            raise _Lost("no node that could run it lives any more")

    def _check_versions(self, nodes: Sequence[ClusterNode]) -> None:
        ray, _ = self._cluster()
        if not nodes:
            return
        asked = {ray.remote(_make_probe()).options(**_on_node(one)).remote(): one for one in nodes}
        for task, one in asked.items():
            try:
                found, gpu_bytes = self._result(task)
            except _Lost as lost:
                raise Unavailable(
                    f"node {one.node.name} does not answer: {lost}",
                    hint="`ray status` shows the nodes",
                ) from None
            if found != self._version:
                has = f"has packager {found}" if found else "has no packager"
                raise OtherPackager(one.node.name, has, self._version)
            self._gpu_bytes[one.id] = gpu_bytes

    def _result(self, task: Any) -> Any:
        """Wait for a task that is over soon. Raises `_Lost`."""
        ray, head = self._cluster()
        until = time.monotonic() + ASK_S
        while not ray.wait([task], timeout=POLL_S)[0]:
            head.check()
            if time.monotonic() > until:
                with suppress(Exception):
                    ray.cancel(task)
                raise _Lost(f"it said nothing for {ASK_S:.0f} s")
        try:
            return ray.get(task)
        except ray.exceptions.RayError as error:
            raise _Lost(lost_reason(error)) from error

    def _ask_all(self, name: str, build: Build) -> dict[ClusterNode, ToolFacts]:
        """Ask every node that would run steps with this build of the tool."""
        if (name, build) not in self._facts:
            nodes = self._nodes()
            if build == "cuda":
                nodes = [one for one in nodes if one.node.accelerator == "nvidia"] or nodes
            words = ("warm", "tool", name, "--build", build)
            handles = [self._start(words, _on_node(one)) for one in nodes]
            self._facts[name, build] = {
                one: self._facts_in(self._followed(handle), one.node.name)
                for one, handle in zip(nodes, handles, strict=True)
            }
        return self._facts[name, build]

    def _tool_on(self, node: ClusterNode, words: Sequence[str], step: str) -> ToolFacts:
        self._on_event(StepEvent(step=step, state="running", detail=f"on {node.node.name}"))
        lines = self._followed(self._start(words, _on_node(node)))
        return self._facts_in(lines, node.node.name, step)

    def _facts_in(self, lines: Iterable[NodeLine], node: str, step: str = "") -> ToolFacts:
        try:
            for line in lines:
                if line.progress and step:
                    self._on_event(StepEvent(step=step, state="running", detail=line.progress))
                if line.error is not None:
                    raise failure_of(line.error, node, None)
                if line.facts is not None:
                    return tool_facts(line.facts)
        except _Lost as lost:
            raise Unavailable(
                f"node {node} does not describe its tools: {lost}",
                hint="`ray status` shows the nodes",
            ) from None
        raise Unavailable(f"node {node} does not describe its tools")

    def _start(self, words: Sequence[str], options: Mapping[str, Any]) -> Any:
        ray, _ = self._cluster()
        task = ray.remote(run_words).options(num_returns="streaming", max_retries=0, **options)
        return task.remote(tuple(words), self._given)

    def _followed(
        self, handle: Any, on_wait: Callable[[], None] = lambda: None
    ) -> Generator[NodeLine]:
        """Yield what a node's process says; cancel it when nobody listens any more.

        Raises `_Lost` where process, worker or node went away, and `NodeFailed` where the
        process ended by itself and said nothing of why.
        """
        answer, is_answered, is_over = Answer(), False, False
        try:
            for item in self._items(handle, on_wait):
                if isinstance(item, bytes):
                    for data in answer.feed(item):
                        line = _line(data)
                        is_answered = is_answered or is_end(line)
                        yield line
                    continue
                is_over = True
                code, tail = item
                if code < 0:
                    raise _Lost(f"its process ended by signal {-code}")
                if not is_answered:
                    last = (tail.splitlines() or ["and said nothing"])[-1]
                    raise NodeFailed(f"a node's process ended with status {code}: {last[:300]}")
            if not is_over:
                raise _Lost("its worker ended without a word")
        except _Lost:
            is_over = True
            raise
        finally:
            if not is_over:
                self._cancel(handle)

    def _items(self, handle: Any, on_wait: Callable[[], None]) -> Iterator[Any]:
        ray, head = self._cluster()
        errors = ray.exceptions
        began, heard = time.monotonic(), False
        while True:
            if not ray.wait([handle], timeout=POLL_S, fetch_local=False)[0]:
                head.check()
                if not heard and time.monotonic() - began > self._quiet_s:
                    began = time.monotonic()
                    try:
                        on_wait()
                    except _Lost:
                        ray.cancel(handle, force=False)
                        raise
                continue
            heard = True
            try:
                yield ray.get(next(handle))
            except StopIteration:
                return
            except errors.RayError as error:  # a worker, a node or memory is gone
                raise _Lost(lost_reason(error)) from error

    def _cancel(self, handle: Any) -> None:
        """End what the worker runs, and wait for a moment until it did."""
        ray, head = self._cluster()
        if head.is_silent:
            return  # nobody is there who could be told
        with suppress(Exception):
            ray.cancel(handle, force=False)
            until = time.monotonic() + CANCEL_S
            while time.monotonic() < until:
                if ray.wait([handle], timeout=POLL_S, fetch_local=False)[0]:
                    ray.get(next(handle))


class OtherPackager(Unavailable):
    """A node of the cluster has another version of packager, or none."""

    def __init__(self, node: str, has: str, ours: str) -> None:
        super().__init__(
            f"node {node} of the Ray cluster {has}, here it is {ours}",
            hint=f"install packager=={ours} with its extras into the Python that Ray runs there",
        )


def _line(data: bytes) -> NodeLine:
    try:
        return parse_model(NodeLine, data, max_bytes=MAX_LINE_BYTES, allow_infinity=True)
    except NotStrict as error:
        raise NodeFailed(
            f"a node said what cannot be read: {error}",
            hint="its packager may be another one: install the same version there",
        ) from error


def _on_node(one: ClusterNode) -> dict[str, Any]:
    """Return options that run a task on this very node, and at once: it takes no processor."""
    return {
        "num_cpus": 0,
        "label_selector": {"ray.io/node-id": one.id},
    }


def _make_probe() -> Callable[[], tuple[str, int]]:
    """Make a function that Ray sends by value: it runs where there is no packager, too.

    It returns the version of packager there, "" for none, and the memory of the node's
    smallest GPU, 0 where nobody says: Ray itself counts GPUs and no more.
    """

    def probe() -> tuple[str, int]:
        import subprocess

        query = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
        sizes: list[int] = []
        try:
            said = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout
            sizes = [int(line) for line in said.split()]
        except (OSError, ValueError, subprocess.SubprocessError):
            pass
        try:
            import packager
        except ImportError:
            return "", 0
        return packager.__version__, min(sizes, default=0) * 1024 * 1024

    return probe
