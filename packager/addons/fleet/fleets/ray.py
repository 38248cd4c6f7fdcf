"""A Ray cluster as a fleet: a task for each try of a job.

A task runs `packager warm one` as a process under its worker and gives back a few lines; artifacts
travel through the shared cache alone.  Ray itself does not retry: lost tasks come back to us, are
counted, and are tried again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packager.core.warmup import Ended, Job, Node
from packager.optimize.steps.ray.connection import TYPE, join_cluster, living_nodes, lost_reason
from packager.optimize.steps.ray.task import run_job

# What jobs must know of caches.  Everything else, credentials above all, is the node's own.
HANDED_ON = (
    "PACKAGER_CACHE_SHARED",
    "PACKAGER_CACHE_REQUIRE_SIGNED",
    "PACKAGER_CACHE_TRUSTED_KEYS",
    "PACKAGER_CACHE_SIGNING_KEY",
)


class RayFleet:
    """The nodes of one cluster. Its Ray and Python versions must be ours."""

    is_shared = False

    def __init__(
        self,
        plan: Path,
        *,
        environment: Mapping[str, str],
        address: str = "",
        at_once: int | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._ray, self._head = join_cluster(address, environment)
        self._options = tuple(options)
        self._at_once = at_once
        self._given = {name: environment[name] for name in HANDED_ON if environment.get(name)}
        self._plan = self._ray.put(plan.read_bytes())
        self._task = self._ray.remote(run_job)
        self._waiting: list[Job] = []
        self._running: dict[Any, int] = {}

    def nodes(self) -> tuple[Node, ...]:
        """Return the live nodes with their resources."""
        return tuple(one.node for one in living_nodes(self._ray))

    def submit(self, job: Job) -> None:
        """Submit the job to Ray, or queue it while enough jobs are submitted."""
        self._waiting.append(job)
        self._submit_some()

    def poll(self, timeout_s: float) -> Sequence[Ended]:
        """Wait for a task to end. Raises `ClusterLost`."""
        if not self._running:
            time.sleep(timeout_s)
            self._head.check()
            return ()
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        ended = [self._ended(one, self._running.pop(one)) for one in done]
        if not done:
            self._head.check()
        self._submit_some()
        return ended

    def close(self) -> None:
        """Cancel what runs; its worker asks the job to end, then insists."""
        self._waiting.clear()
        if self._head.is_silent:
            return  # the cluster does not answer
        for one in list(self._running):
            self._ray.cancel(one, force=False)
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running), timeout=15)
        self._ray.shutdown()

    def _submit_some(self) -> None:
        while self._waiting and len(self._running) < (self._at_once or len(self._waiting) + 10**6):
            job = self._waiting.pop(0)
            task = self._task.options(name=f"packager {job.label}", **_options(job))
            given = (self._plan, job.index, self._options, self._given)
            self._running[task.remote(*given)] = job.index

    def _ended(self, task: Any, index: int) -> Ended:
        errors = self._ray.exceptions
        try:
            code, said, log, seconds = self._ray.get(task)
        except errors.RayTaskError as error:
            return Ended(index=index, code=70, log=f"error: {error}")
        except errors.TaskCancelledError:
            return Ended(index=index, code=75, lost="it was cancelled")
        except errors.RayError as error:  # worker, node or memory gone
            return Ended(index=index, code=75, lost=lost_reason(error))
        lost = f"its process ended by signal {-code}" if code < 0 else ""
        return Ended(index=index, code=code, said=said, log=log, lost=lost, seconds=seconds)


def _options(job: Job) -> dict[str, Any]:
    """Return the resources of a job as Ray's options."""
    needs = job.resources
    asked: dict[str, Any] = {"num_cpus": needs.cpus, "max_retries": 0}
    if needs.memory_bytes:
        asked["memory"] = needs.memory_bytes
    if needs.accelerator == "nvidia" and needs.devices:
        asked["num_gpus"] = needs.devices
        if needs.device:
            asked["resources"] = {TYPE + needs.device: 0.001}
    elif needs.accelerator == "neuron" and needs.devices:
        asked["resources"] = {"neuron_cores": needs.devices, TYPE + needs.device: 0.001}
    return asked
