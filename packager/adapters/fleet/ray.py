"""A Ray cluster as a fleet: a task for each try of a job.

A task runs `packager warm one` as a process under its worker and gives back a
few lines; artifacts travel through the shared cache alone.  Ray itself retries
nothing: what is lost comes back to us, is counted, and is tried again.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packager.adapters.fleet.ray_task import run_job
from packager.core.warmup import Ended, Job, Node
from packager.errors import Unavailable, UsageError

# What jobs must know of caches.  Everything else, credentials above all, is the node's own.
HANDED_ON = (
    "PACKAGER_CACHE_SHARED",
    "PACKAGER_CACHE_REQUIRE_SIGNED",
    "PACKAGER_CACHE_TRUSTED_KEYS",
    "PACKAGER_CACHE_SIGNING_KEY",
)
TYPE = "accelerator_type:"
HEAD_CHECK_S = 2.0
HEAD_PATIENCE = 5  # checks in a row that fail


class ClusterLost(Unavailable):
    """The head does not answer any more."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"the Ray cluster at {address!r} does not answer any more",
            hint="start it, and run the same command again: it does what is missing",
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
        self._ray = _import()
        self._options = tuple(options)
        self._at_once = at_once
        self._given = {name: environment[name] for name in HANDED_ON if environment.get(name)}
        place = address or environment.get("RAY_ADDRESS", "auto")
        try:
            self._ray.init(
                address=place, log_to_driver=False, configure_logging=False, logging_level="error"
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise Unavailable(
                f"cannot join the Ray cluster at {place!r}: {str(error).splitlines()[0]}",
                hint="`ray status` shows whether it runs; its versions of Ray and Python "
                "must be those here",
            ) from error
        self._head = self._ray.get_runtime_context().gcs_address
        self._plan = self._ray.put(plan.read_bytes())
        self._task = self._ray.remote(run_job)
        self._waiting: list[Job] = []
        self._running: dict[Any, int] = {}
        self._checked, self._silent = time.monotonic(), 0

    def nodes(self) -> tuple[Node, ...]:
        """Name the nodes that live, with what they say they have."""
        return tuple(
            _node(one["NodeManagerAddress"], one["Resources"])
            for one in self._ray.nodes()
            if one["Alive"]
        )

    def submit(self, job: Job) -> None:
        """Hand the job to Ray, or keep it while enough of them are there."""
        self._waiting.append(job)
        self._submit_some()

    def poll(self, timeout_s: float) -> Sequence[Ended]:
        """Wait for the end of some task. Raises `ClusterLost`."""
        if not self._running:
            time.sleep(timeout_s)
            self._check_head()
            return ()
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        ended = [self._ended(one, self._running.pop(one)) for one in done]
        if not done:
            self._check_head()
        self._submit_some()
        return ended

    def close(self) -> None:
        """Cancel what runs; its worker asks the job to end, then insists."""
        self._waiting.clear()
        if self._silent:
            return  # nobody is there who could be told
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
            return Ended(index=index, code=75, lost=_lost(error))
        lost = f"its process ended by signal {-code}" if code < 0 else ""
        return Ended(index=index, code=code, said=said, log=log, lost=lost, seconds=seconds)

    def _check_head(self) -> None:
        """Ask whether the head lives: Ray lets us wait for it much longer."""
        now = time.monotonic()
        if now - self._checked < HEAD_CHECK_S:
            return
        self._checked = now
        host, _, port = self._head.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=HEAD_CHECK_S).close()
            self._silent = 0
        except OSError as error:
            self._silent += 1
            if self._silent >= HEAD_PATIENCE:
                raise ClusterLost(self._head) from error


def _import() -> Any:
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise UsageError(
            "this installation of packager does not speak to Ray",
            hint="pip install 'packager[ray]'",
        ) from error
    return ray


def _options(job: Job) -> dict[str, Any]:
    """Say to Ray what a job takes."""
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


def _node(name: str, has: Mapping[str, float]) -> Node:
    device = next((key.removeprefix(TYPE) for key in has if key.startswith(TYPE)), "")
    cores = has.get("neuron_cores", 0.0)
    gpus = has.get("GPU", 0.0)
    return Node(
        name=name,
        cpus=has.get("CPU", 0.0),
        memory_bytes=has.get("memory", 0.0),
        accelerator="neuron" if cores else "nvidia" if gpus else "cpu",
        device=device,
        devices=cores or gpus,
    )


def _lost(error: Exception) -> str:
    """Give the first line of what Ray says, which may be a page."""
    words = str(error).strip().splitlines()
    return f"{type(error).__name__}: {words[0] if words else 'no reason given'}"
