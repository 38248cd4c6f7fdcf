"""Memory and processor time of a container under load, by what the Docker Engine counts.

Memory is read once a second: a peak between two readings is not seen.  The kernel's own
peak (`memory.peak`, `max_usage`) is of no use here: it counts from the container's start, with the
cache of files that loading the model fills, and engines do not tell it with cgroups of version 2.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from packager.cli.serving.opening import OpenServer
from packager.core.bench import ContainerUse

INTERVAL_S = 1.0
_LARGEST = 2**60
_LAST_READING_S = 10.0  # that an engine may take to answer when the load has ended

Read = Callable[[], Mapping[str, Any]]


class UseMeter:
    """Reads what a container uses while the block runs; without a container, nothing.

    Figures that the engine does not report are None.
    """

    def __init__(
        self,
        container: Any,
        *,
        gpu_memory: Callable[[], int | None] = lambda: None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._read: Read | None = None
        if container is not None:
            self._read = lambda: container.stats(stream=False, one_shot=True)
        self._gpu_memory = gpu_memory
        self._interval_s = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="use", daemon=True)
        self._peak: int | None = None
        self._gpu_peak: int | None = None
        self._cpu: list[float] = []

    def __enter__(self) -> UseMeter:
        if self._read is not None:
            self.sample()
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        if self._read is not None:
            self._thread.join(_LAST_READING_S)
            self.sample()

    @property
    def use(self) -> ContainerUse | None:
        """Return the usage so far; None if unreported."""
        if self._peak is None and len(self._cpu) < 2:
            return None
        return ContainerUse(
            peak_memory_bytes=self._peak,
            cpu_seconds=round(self._cpu[-1] - self._cpu[0], 3) if len(self._cpu) > 1 else None,
            gpu_memory_bytes=self._gpu_peak,
        )

    @property
    def cpu_total_s(self) -> float | None:
        """Return the processor time since the container's start, as it was last read."""
        return round(self._cpu[-1], 3) if self._cpu else None

    def sample(self) -> None:
        """Read once."""
        if self._read is None:
            return
        with suppress(Exception):  # of docker-py and the engine: figures are no reason to fail
            stats = self._read()
            self._peak = _larger(self._peak, memory_bytes(stats))
            self._gpu_peak = _larger(self._gpu_peak, self._gpu_memory())
            cpu = cpu_seconds(stats)
            if cpu is not None and (not self._cpu or cpu >= self._cpu[-1]):
                self._cpu = [*self._cpu[:1], cpu]

    def _watch(self) -> None:
        while not self._end.wait(self._interval_s):
            self.sample()


def memory_bytes(stats: Mapping[str, Any]) -> int | None:
    """Return the memory in use without the cache of files that could be dropped, as Docker does."""
    memory = stats.get("memory_stats")
    used = _count(memory, "usage")
    if used is None:
        return None
    parts = memory.get("stats") if isinstance(memory, dict) else None
    dropped = _count(parts, "inactive_file")
    if dropped is None:
        dropped = _count(parts, "total_inactive_file")  # of the first version of cgroups
    return max(0, used - (dropped or 0)) or None


def cpu_seconds(stats: Mapping[str, Any]) -> float | None:
    """Return the processor time since the container's start."""
    cpu = stats.get("cpu_stats")
    nanoseconds = _count(cpu.get("cpu_usage") if isinstance(cpu, dict) else None, "total_usage")
    return None if nanoseconds is None else nanoseconds / 1e9


def _count(found: object, name: str) -> int | None:
    value = found.get(name) if isinstance(found, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        return None
    return value


def _larger(one: int | None, other: int | None) -> int | None:
    return max(one, other) if one is not None and other is not None else one or other


def used_bytes(server: OpenServer) -> int | None:
    """Return the memory that a server's container uses now; None where the engine does not say."""
    with suppress(Exception):  # of docker-py: an unknown size must not fail a run
        return memory_bytes(server.container.stats(stream=False, one_shot=True))
    return None
