"""Putting a server under load: so many questions at a time, each asked once.

Threads wait for the network nearly all of the time; a thread takes the next
question when it has its answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from packager.core.probes import ProbeRequest, ProbeResponse
from packager.drafts.measure.servers import OpenServer

_LOST = 3  # answers, after which the rest is not worth asking


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """Result of all requests under one load. None: the request was not sent."""

    concurrency: int
    answers: tuple[ProbeResponse | None, ...]  # in the order of the questions
    seconds: float

    @property
    def lost(self) -> str:
        """Return why the server stopped answering; "" when it did not."""
        lost = [answer.error for answer in self.answers if answer and answer.lost]
        return lost[0] if len(lost) >= min(_LOST, len(self.answers)) else ""


def send_all(found: OpenServer, questions: Sequence[ProbeRequest], concurrency: int) -> LoadResult:
    """Send every request, `concurrency` at a time."""
    answers: list[ProbeResponse | None] = [None] * len(questions)
    lock = threading.Lock()
    waiting = iter(range(len(questions)))
    lost = 0

    def work() -> None:
        nonlocal lost
        while True:
            with lock:
                number = next(waiting, None)
                if number is None or lost >= _LOST:
                    return
            answer = found.server.ask(questions[number], found.model)
            with lock:
                answers[number] = answer
                lost += answer.lost

    threads = [
        threading.Thread(target=work, name=f"ask-{number}", daemon=True)
        for number in range(min(concurrency, len(questions)))
    ]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return LoadResult(
        concurrency=concurrency, answers=tuple(answers), seconds=time.monotonic() - started
    )
