"""The part of a load in which requests are sent: the warm-up, or what is measured.

A closed loop has so many workers, each of which sends its next request when it has an answer.
An open loop sends at the times that chance or a clock says, whatever the server does.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from packager.addons.bench.load.client import LoadClient
from packager.addons.bench.load.values import LoadPlan, LoadRequest, LoadResult

LOST_AFTER = 3  # failed connections in a row after which the load ends


class Phase:
    """Sends the plan's requests. `results` and `lost` hold what came, also after an interrupt."""

    def __init__(
        self,
        client: LoadClient,
        requests: Iterator[LoadRequest],
        plan: LoadPlan,
        on_result: Callable[[LoadResult], None] | None = None,
    ) -> None:
        self._client = client
        self._numbered = zip(itertools.count(), requests, strict=False)
        if plan.requests is not None:
            self._numbered = zip(range(plan.requests), requests, strict=False)
        self._plan = plan
        self._on_result = on_result
        self._results: dict[int, LoadResult] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False  # no more requests are sent
        self._error: BaseException | None = None
        self._failed_in_row = 0
        self._began = 0.0
        self.lost = ""  # why the server stopped answering

    @property
    def results(self) -> tuple[LoadResult, ...]:
        """Return the results so far, in the order of sending."""
        return tuple(self._results[number] for number in sorted(self._results))

    async def run(self) -> None:
        """Send until all are sent or the duration has passed, and wait for the answers."""
        self._began = time.monotonic()
        try:
            if self._plan.level.rate:
                self._spawn(self._send_by_rate())
            else:
                for _ in range(self._plan.level.concurrency or 1):
                    self._spawn(self._work())
            await self._finish()
        finally:
            self._ended = True
            while running := set(self._tasks):
                self._cancel_all()
                await asyncio.wait(running)
        if self._error is not None:
            raise self._error
        if self._results and all(one.failure == "connection" for one in self._results.values()):
            self.lost = self.lost or self._results[min(self._results)].reason

    def now(self) -> float:
        """Return the seconds since the phase began."""
        return time.monotonic() - self._began

    async def _work(self) -> None:
        while (numbered := self._next()) is not None:
            await self._send(*numbered)

    async def _send_by_rate(self) -> None:
        most = self._plan.level.concurrency
        slots = asyncio.Semaphore(most) if most else None

        async def send(number: int, request: LoadRequest) -> None:
            try:
                await self._send(number, request)
            finally:
                if slots is not None:
                    slots.release()

        for due in arrivals(self._plan):
            duration_s = self._plan.duration_s
            if duration_s is not None and due >= duration_s:
                return
            numbered = self._next()
            if numbered is None:
                return
            await asyncio.sleep(due - self.now())
            while self.now() < due:  # uvloop's timers are up to half a millisecond early
                await asyncio.sleep(0)
            if slots is not None:
                await slots.acquire()
            if self._has_ended():
                return
            self._spawn(send(*numbered))

    def _has_ended(self) -> bool:
        duration_s = self._plan.duration_s
        return self._ended or (duration_s is not None and self.now() >= duration_s)

    def _next(self) -> tuple[int, LoadRequest] | None:
        return None if self._has_ended() else next(self._numbered, None)

    async def _send(self, number: int, request: LoadRequest) -> None:
        result = await self._client.send(request, number, self.now)
        self._results[number] = result
        self._failed_in_row = self._failed_in_row + 1 if result.failure == "connection" else 0
        if self._failed_in_row == LOST_AFTER:
            self.lost = result.reason
            self._cancel_all()
        if self._on_result is not None:
            self._on_result(result)

    async def _finish(self) -> None:
        """Wait for what runs; when the duration and its grace have passed, no longer."""
        duration_s = self._plan.duration_s
        while running := set(self._tasks):
            left_s = None
            if duration_s is not None:
                left_s = duration_s + self._plan.grace_s - self.now()
                if left_s <= 0:
                    return
            await asyncio.wait(running, timeout=left_s)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
            self._cancel_all()

    def _cancel_all(self) -> None:
        """End the sending; a request that runs gives its result as `cancelled`."""
        self._ended = True
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()


def arrivals(plan: LoadPlan) -> Iterator[float]:
    """Yield when each request of an open loop is due, in seconds; the first at once."""
    rate = plan.level.rate
    if not rate:
        return
    chance = random.Random(plan.seed)
    due = 0.0
    while True:
        yield due
        due += 1 / rate if plan.level.arrivals == "constant" else chance.expovariate(rate)
