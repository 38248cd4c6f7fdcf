"""Requests made before they are needed: making one takes milliseconds, in which no token is timed.

If a load's number of requests is unknown, a thread makes more of them while it runs.
"""

from __future__ import annotations

import itertools
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from packager.addons.bench.load.phase import arrivals
from packager.addons.bench.load.values import LoadPlan, LoadRequest

MOST_KEPT = 4096  # made and not sent: each has some kilobytes
_AT_ONCE_TIMES, _LEAST = 8, 64  # requests of a closed loop that are made before it begins
_TURN_S = 0.0005  # for which the thread may keep the interpreter; Python's own is 5 ms
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class _End:
    """End of the requests: with or without an error."""

    error: BaseException | None = None


def known_count(plan: LoadPlan) -> int | None:
    """Return how many requests a load takes at most; None where that depends on the answers."""
    if plan.requests is not None:
        return plan.warm_up + plan.requests
    if plan.level.rate and plan.duration_s is not None:
        due = itertools.takewhile(lambda at: at < (plan.duration_s or 0), arrivals(plan))
        return plan.warm_up + 1 + sum(1 for _ in itertools.islice(due, MOST_KEPT))
    return None


@contextmanager
def made_ahead(requests: Iterator[LoadRequest], plan: LoadPlan) -> Iterator[Iterator[LoadRequest]]:
    """Yield the requests; those that are surely or soon needed are made in advance.

    Raises the errors of making those at once; the error of a later one when it is due.
    """
    count = known_count(plan)
    if plan.requests is not None:
        yield iter(list(itertools.islice(requests, count)))
        return
    first = plan.warm_up + max(_LEAST, _AT_ONCE_TIMES * (plan.level.concurrency or 1))
    made = list(itertools.islice(requests, min(count or first, MOST_KEPT)))
    if count is not None and count <= MOST_KEPT:
        yield iter(made)
        return
    with _thread(requests, len(made)) as more:
        yield itertools.chain(made, more)


@contextmanager
def _thread(requests: Iterator[LoadRequest], most: int) -> Iterator[Iterator[LoadRequest]]:
    """Yield requests that a thread makes, so many of them beforehand."""
    waiting: queue.Queue[LoadRequest | _End] = queue.Queue(max(1, most))
    stop = threading.Event()

    def put(one: LoadRequest | _End) -> None:
        while not stop.is_set():
            with suppress(queue.Full):
                waiting.put(one, timeout=_POLL_S)
                return

    def make() -> None:
        try:
            for one in requests:
                put(one)
                if stop.is_set():
                    return
        except BaseException as error:  # it is raised when the request is due
            put(_End(error))
        else:
            put(_End())

    thread = threading.Thread(target=make, name="requests", daemon=True)
    turn_s = sys.getswitchinterval()
    sys.setswitchinterval(min(turn_s, _TURN_S))
    thread.start()
    try:
        yield _taken(waiting)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(turn_s)


def _taken(waiting: queue.Queue[LoadRequest | _End]) -> Iterator[LoadRequest]:
    while True:
        one = waiting.get()
        if isinstance(one, _End):
            if one.error is not None:
                raise one.error
            return
        yield one
