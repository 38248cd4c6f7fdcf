"""One load of a server: so many requests at a time, or so many a second, timed token by token."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from packager.addons.bench.load.ahead import made_ahead
from packager.addons.bench.load.client import LoadClient
from packager.addons.bench.load.phase import Phase
from packager.addons.bench.load.tokenizer import TokenCounter, TokenizerFailed
from packager.addons.bench.load.values import Level, LoadPlan, LoadRequest, LoadResult, LoadRun
from packager.cli.serving.routes import Route

_SETTLE_S, _SETTLE_READS = 0.2, 15
_STOP_POLL_S = 0.05
_FROZEN = threading.Lock()  # held by the load that froze the objects of this process
# Lines of what engines count while they answer.
_COUNTED = re.compile(
    r"^[A-Za-z0-9_:]*(?:spec|skipped|generation_tokens|request_success)[^\n]*$", re.MULTILINE
)


def run_load(
    server: str | Route,
    model: str,
    requests: Iterator[LoadRequest] | Sequence[LoadRequest],
    plan: LoadPlan,
    *,
    on_result: Callable[[LoadResult], None] | None = None,
    tokenizer: TokenCounter | None = None,
    stop: threading.Event | None = None,
    headers: Mapping[str, str] | None = None,
    token_ids: bool = False,
) -> LoadRun:
    """Send requests as the plan says, and return all results.

    The first `plan.warm_up` requests do not count.  If the plan has a number of requests, all are
    made before the first is sent; else a thread makes them in advance. `on_result` is called as
    results come, before their tokens are counted by `tokenizer`. `stop` or an interrupt ends the
    load: running requests and the run are `cancelled`. Failures are in the results; raises
    `UsageError` for an invalid address.
    """
    client = LoadClient(
        server,
        model=model,
        headers=headers,
        connections=plan.level.concurrency or 0,
        timeout_s=plan.request_timeout_s,
        token_ids=token_ids,
    )
    found: list[LoadRun] = []

    async def load(taken: Iterator[LoadRequest]) -> None:
        # As a task's result the run would be written out whole: asyncio's handler of SIGINT is a
        # call with that task, and `signal.signal` makes a text of the handler that it takes away.
        found.append(await _load(client, taken, plan, on_result, stop))

    # Every token wakes the loop: uvloop takes three quarters of the processor time of asyncio's.
    import uvloop

    with (
        made_ahead(iter(requests), plan) as taken,
        _without_full_collections(),
        _plain_interrupts(),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(load(taken))
    run = found[0]
    return replace(run, results=tuple(_counted(one, tokenizer) for one in run.results))


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Handle SIGINT as Python does: from no other handler does asyncio take it over."""
    before = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not callable(before) or before is signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _without_full_collections() -> Iterator[None]:
    """Keep the objects that are there now from being searched for garbage.

    A collection of the modules and requests of this process takes tens of milliseconds, in which
    no token is timed; of what a load makes it takes less than one.
    """
    if _is_frozen_by_others() or not _FROZEN.acquire(blocking=False):
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _FROZEN.release()


@cache
def _is_frozen_by_others() -> bool:
    """Return whether objects were frozen before the first load, which may not unfreeze them.

    Called once, because Python counts them one by one: 0.1 s for the millions of a large process.
    """
    return gc.get_freeze_count() > 0


async def settled(
    read: Callable[[], Coroutine[Any, Any, str]],
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> str:
    """Read a server's metrics until they stand still: an engine counts after it has answered."""
    last = await read()
    for _ in range(_SETTLE_READS):
        if not last:
            break
        await sleep(_SETTLE_S)
        now = await read()
        if _counts(now) == _counts(last):
            return now
        last = now
    return last


async def _load(
    client: LoadClient,
    requests: Iterator[LoadRequest],
    plan: LoadPlan,
    on_result: Callable[[LoadResult], None] | None,
    stop: threading.Event | None,
) -> LoadRun:
    at_once = Level(concurrency=plan.level.concurrency or 1)
    warming = LoadPlan(level=at_once, requests=plan.warm_up)
    warm = Phase(client, requests, warming)
    phase = Phase(client, requests, plan, on_result)
    before = after = ""
    cancelled = False
    cpu_s = 0.0
    started = datetime.now(UTC)
    async with client:
        watch = _watched(stop)
        try:
            if plan.warm_up:
                await warm.run()
            if not warm.lost:
                before = await settled(client.metrics)
                started = datetime.now(UTC)
                cpu_s = -time.process_time()
                try:
                    await phase.run()
                finally:
                    cpu_s += time.process_time()
                after = await settled(client.metrics) if before else ""
        except asyncio.CancelledError:  # an interrupt, or `stop`; what there is is kept
            cancelled = True
            _uncancel()
        finally:
            watch.cancel()
    results = phase.results
    return LoadRun(
        level=plan.level,
        results=results,
        seconds=_seconds(results),
        started=started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        cancelled=cancelled,
        lost=warm.lost or phase.lost,
        client_cpu_s=cpu_s,
        metrics_before=before,
        metrics_after=after,
    )


def _watched(stop: threading.Event | None) -> asyncio.Task[None]:
    """Cancel the task that runs now, as an interrupt does, when `stop` is set."""
    task = asyncio.current_task()

    async def watch() -> None:
        while stop is not None and not stop.is_set():
            await asyncio.sleep(_STOP_POLL_S)
        if stop is not None and task is not None:
            task.cancel()

    return asyncio.create_task(watch())


def _uncancel() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _counts(metrics: str) -> list[str]:
    return _COUNTED.findall(metrics)


def _seconds(results: Sequence[LoadResult]) -> float:
    """Return the time from the first sending to the last end, of requests that came to one."""
    ended = [one for one in results if one.failure != "cancelled"] or results
    if not ended:
        return 0.0
    return max(one.ended_s for one in ended) - min(one.sent_s for one in results)


def _counted(result: LoadResult, tokenizer: TokenCounter | None) -> LoadResult:
    """Count the answer's tokens with the client's own tokenizer."""
    if tokenizer is None or not result.is_answered or result.texts:
        return result
    try:
        return replace(result, own_output_tokens=tokenizer.count(result.text))
    except TokenizerFailed:
        return replace(result, tokenizer_failed=True)
