"""This machine as a fleet: as many jobs at once as it has processors, memory and GPUs for."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from packager.catalog.machine import describe_machine
from packager.core.warmup import PATIENCE_S, Ended, Job, Node, one_command
from packager.optimize.steps.capacity import own_gpus, visible_gpus
from packager.optimize.steps.failures import read_tail
from packager.optimize.steps.logs import new_log
from packager.optimize.steps.processes import Supervised, started


class LocalFleet:
    """Runs each job as a process of its own; what does not fit beside the others waits."""

    is_shared = True

    def __init__(
        self,
        plan: Path,
        *,
        environment: Mapping[str, str],
        log_dir: Path,
        at_once: int | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._plan = plan
        self._options = tuple(options)
        self._environment = dict(environment)
        self._log_dir = log_dir
        self._node = _this_machine(environment)
        self._at_once = at_once or max(1, int(self._node.cpus))
        self._queue: deque[Job] = deque()
        self._running: dict[int, Job] = {}
        self._gpus = list(_own_gpus(self._node, environment))  # that no job has
        self._given: dict[int, list[str]] = {}
        self._processes: dict[int, Supervised] = {}
        self._ended: queue.Queue[Ended] = queue.Queue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False

    def nodes(self) -> tuple[Node, ...]:
        """Return the only node."""
        return (self._node,)

    def submit(self, job: Job) -> None:
        """Queue the job, and start what fits."""
        self._queue.append(job)
        self._start_some()

    def poll(self, timeout_s: float) -> Sequence[Ended]:
        """Wait for a job to end, and start others in its place."""
        found: list[Ended] = []
        with suppress(queue.Empty):
            found.append(self._ended.get(timeout=timeout_s))
            while True:
                found.append(self._ended.get_nowait())
        for one in found:
            self._running.pop(one.index, None)
            self._gpus += self._given.pop(one.index, [])
        self._start_some()
        return found

    def close(self) -> None:
        """Terminate jobs, so that others need not wait for their leases; then kill them."""
        self._queue.clear()
        with self._lock:
            self._closed = True
            processes = list(self._processes.values())
        for process in processes:
            process.request_end()
        until = time.monotonic() + PATIENCE_S
        for process in processes:
            while process.running() and time.monotonic() < until:
                time.sleep(0.05)
            process.kill()
        for thread in self._threads:
            thread.join()

    def _start_some(self) -> None:
        for job in list(self._queue):
            if len(self._running) >= self._at_once:
                return
            if self._has_room(job):
                self._queue.remove(job)
                self._running[job.index] = job
                if job.resources.accelerator == "nvidia":
                    count = job.resources.devices
                    self._given[job.index] = self._gpus[:count]
                    self._gpus = self._gpus[count:]
                thread = threading.Thread(target=self._run, args=(job,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _has_room(self, job: Job) -> bool:
        taken = [one.resources for one in self._running.values()]
        needs, node = job.resources, self._node
        return (
            sum(one.cpus for one in taken) + needs.cpus <= max(node.cpus, self._at_once)
            and sum(one.memory_bytes for one in taken) + needs.memory_bytes <= node.memory_bytes
            and sum(one.devices for one in taken) + needs.devices <= node.devices
        ) or not taken

    def _run(self, job: Job) -> None:
        log = new_log(self._log_dir, f"warm-{job.index}")
        words = one_command(str(self._plan), job.index, self._options)
        command = [sys.executable, "-m", "packager", *words]
        environment = self._environment
        if given := self._given.get(job.index):
            environment = {**environment, "CUDA_VISIBLE_DEVICES": ",".join(given)}
        said, began = b"", time.monotonic()
        try:
            with (
                log.open("ab") as sink,
                started(command, cwd=Path.cwd(), env=environment, log=sink) as process,
            ):
                with self._lock:
                    if self._closed:
                        return
                    self._processes[job.index] = process
                while chunk := os.read(process.stdout, 65536):
                    said += chunk
                code = process.wait().code
        except OSError as error:
            self._ended.put(Ended(index=job.index, code=75, log=f"it cannot be started: {error}"))
            return
        finally:
            with self._lock:
                self._processes.pop(job.index, None)
        self._ended.put(
            Ended(
                index=job.index,
                code=code,
                said=said.decode(errors="replace"),
                log=read_tail(log),
                lost=f"its process ended by signal {-code}" if code < 0 else "",
                seconds=time.monotonic() - began,
            )
        )


def _own_gpus(node: Node, environment: Mapping[str, str]) -> tuple[str, ...]:
    """List the GPUs that jobs share: each job gets others than those beside it."""
    if node.accelerator != "nvidia":
        return ()
    return tuple(visible_gpus(int(node.devices), environment).split(","))


def _this_machine(environment: Mapping[str, str]) -> Node:
    machine = describe_machine()
    has_devices = machine.kind != "cpu"
    devices = machine.devices
    if machine.kind == "nvidia":
        devices = len(own_gpus(machine.devices, environment))
    return Node(
        name="here",
        cpus=float(machine.vcpus or 0),
        memory_bytes=float(machine.host_bytes or 0),
        accelerator=machine.kind,
        device=machine.device_name if has_devices else "",
        devices=float(devices) if has_devices else 0.0,
    )
