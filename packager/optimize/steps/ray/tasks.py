"""Tasks of a Ray cluster: started, followed line by line, cancelled when unused."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from packager.core.documents import NotStrict, parse_model
from packager.core.order import MAX_LINE_BYTES, NodeLine
from packager.optimize.steps.ray.cluster import LineBuffer, NodeFailed, is_end
from packager.optimize.steps.ray.connection import Head, lost_reason
from packager.optimize.steps.ray.task import run_words

POLL_S = 0.5
CANCEL_S = 15.0
ASK_S = 120.0  # for a node to describe a tool; its first worker has to start

Given = Mapping[str, str]


class AttemptLost(Exception):
    """An attempt ended without a message from the node."""


class RayTasks:
    """One connection to a cluster, and the tasks that run there."""

    def __init__(self, join: Callable[[], tuple[Any, Head]], given: Given, quiet_s: float) -> None:
        self._join = join
        self._given = dict(given)
        self._quiet_s = quiet_s  # without a node: call `on_wait`
        self._joined: tuple[Any, Head] | None = None

    def cluster(self) -> tuple[Any, Head]:
        """Return Ray and the head of the cluster; joins it on first use."""
        if self._joined is None:
            self._joined = self._join()
        return self._joined

    def start(self, words: Sequence[str], options: Mapping[str, Any]) -> Any:
        """Start a command line of packager as a task; return its handle."""
        ray, _ = self.cluster()
        task = ray.remote(run_words).options(num_returns="streaming", max_retries=0, **options)
        return task.remote(tuple(words), self._given)

    def followed(
        self, handle: Any, on_wait: Callable[[], None] = lambda: None
    ) -> Generator[NodeLine]:
        """Yield the messages of a node's process; cancel it when the generator is closed.

        Raises `AttemptLost` where process, worker or node went away, and `NodeFailed` where the
        process ended by itself without a message.
        """
        answer, is_answered, is_over = LineBuffer(), False, False
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
                    raise AttemptLost(f"its process ended by signal {-code}")
                if not is_answered:
                    last = (tail.splitlines() or ["without a message"])[-1]
                    raise NodeFailed(f"a node's process ended with status {code}: {last[:300]}")
            if not is_over:
                raise AttemptLost("its worker ended without a message")
        except AttemptLost:
            is_over = True
            raise
        finally:
            if not is_over:
                self._cancel(handle)

    def _items(self, handle: Any, on_wait: Callable[[], None]) -> Iterator[Any]:
        ray, head = self.cluster()
        errors = ray.exceptions
        began, heard = time.monotonic(), False
        while True:
            if not ray.wait([handle], timeout=POLL_S, fetch_local=False)[0]:
                head.check()
                if not heard and time.monotonic() - began > self._quiet_s:
                    began = time.monotonic()
                    try:
                        on_wait()
                    except AttemptLost:
                        ray.cancel(handle, force=False)
                        raise
                continue
            heard = True
            try:
                yield ray.get(next(handle))
            except StopIteration:
                return
            except errors.RayError as error:  # a lost worker or node, or lack of memory
                raise AttemptLost(lost_reason(error)) from error

    def _cancel(self, handle: Any) -> None:
        """Cancel the worker's process, and wait briefly until it ended."""
        ray, head = self.cluster()
        if head.is_silent:
            return  # the head does not answer: it cannot be cancelled
        with suppress(Exception):
            ray.cancel(handle, force=False)
            until = time.monotonic() + CANCEL_S
            while time.monotonic() < until:
                if ray.wait([handle], timeout=POLL_S, fetch_local=False)[0]:
                    ray.get(next(handle))

    def result(self, task: Any) -> Any:
        """Wait for a short task and return its result. Raises `AttemptLost`."""
        ray, head = self.cluster()
        until = time.monotonic() + ASK_S
        while not ray.wait([task], timeout=POLL_S)[0]:
            head.check()
            if time.monotonic() > until:
                with suppress(Exception):
                    ray.cancel(task)
                raise AttemptLost(f"it produced no output for {ASK_S:.0f} s")
        try:
            return ray.get(task)
        except ray.exceptions.RayError as error:
            raise AttemptLost(lost_reason(error)) from error


def _line(data: bytes) -> NodeLine:
    try:
        return parse_model(NodeLine, data, max_bytes=MAX_LINE_BYTES, allow_infinity=True)
    except NotStrict as error:
        raise NodeFailed(
            f"a node said what cannot be read: {error}",
            hint="its packager may be another one: install the same version there",
        ) from error
