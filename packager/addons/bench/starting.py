"""One cold start of an image: pull if requested, start, request one token, remove.

The container's own clock tells when it started and when each line of its log was written; the
client's clock measures its creation and its answer.  Both begin when the engine reports that the
container runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import urllib3

from packager.addons.bench.usage import UseMeter
from packager.cli.serving.containers import log_of, running, wait_for_ping
from packager.cli.serving.openai import BadAnswer, Server
from packager.cli.serving.opening import MeasuredServer
from packager.cli.serving.pulling import Pulled, pull_image, remove_image
from packager.cli.serving.start_log import MOST_BYTES, parse_time, read_marks, split_start
from packager.core.errors import SmokeFailed
from packager.core.remote.pools import timely
from packager.core.startup import PHASES, OneStart, PhaseName
from packager.core.text import quote_answer

_POLL_S = 0.1
_PROMPT = "a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Settings for cold starts."""

    connect: Callable[[], Any]  # to the Docker Engine
    deadline_s: float
    on_progress: Callable[[str], None]
    meter: Callable[[Any], UseMeter]  # of a container
    pulls: bool = False  # each start pulls the image anew

    def start(self, server: MeasuredServer, round_number: int) -> OneStart:
        """Start the image cold; raise `SmokeFailed` if it returns no token."""
        engine = self.connect()
        pulled = self._pull(engine, server.name) if self.pulls else None
        began = time.monotonic()
        with (
            running(
                engine, server.name, server.env, self.on_progress, purpose="start", gpus=server.gpus
            ) as (container, url),
            self.meter(container) as meter,
        ):
            runs = time.monotonic()
            try:
                return self._measure(
                    container, url, meter, round_number, pulled, began=began, runs=runs
                )
            except SmokeFailed as error:
                raise SmokeFailed(error.message, hint=error.hint, log=log_of(container)) from error

    def _pull(self, engine: Any, image: str) -> Pulled:
        remove_image(engine, image)
        return pull_image(engine, image, self.on_progress)

    def _measure(
        self,
        container: Any,
        url: str,
        meter: UseMeter,
        round_number: int,
        pulled: Pulled | None,
        *,
        began: float,
        runs: float,
    ) -> OneStart:
        wait_for_ping(
            timely(urllib3.PoolManager(retries=False)),
            container,
            url,
            self.deadline_s,
            self.on_progress,
            poll_s=_POLL_S,
        )
        ready = time.monotonic()
        ask_for_a_token(url)
        answered = time.monotonic()
        meter.sample()
        use = meter.use
        phases = {"container": runs - began, "first_token": answered - ready}
        started = parse_time(str(container.attrs["State"]["StartedAt"]))
        marks = read_marks(_log_with_times(container))
        if pulled is not None:
            phases |= {"pull": pulled.down_s, "unpack": pulled.unpack_s}
        untold = ready - runs
        if started is not None:
            parts = split_start(marks, started=started, ready=started + ready - runs)
            phases |= {
                name: seconds
                for name, seconds in (
                    ("import", parts.importing),
                    ("weights", parts.weights),
                    ("compile", parts.compiling),
                    ("ready", parts.ready),
                )
                if seconds is not None
            }
            untold = parts.untold
        pulling = pulled.down_s + pulled.unpack_s if pulled else 0.0
        return OneStart(
            round=round_number,
            phases=in_order(phases),
            untold_s=round(untold, 3),
            seconds=round(pulling + answered - began, 3),
            ready_s=round(ready - began, 3),
            cpu_seconds=meter.cpu_total_s,
            peak_memory_bytes=use.peak_memory_bytes if use else None,
            pulled_bytes=pulled.bytes if pulled else None,
            known_layers=pulled.known_layers if pulled else None,
            compiled=marks.compiled,
        )


def in_order(phases: Mapping[str, float]) -> dict[PhaseName, float]:
    """Return phases in the order in which they follow one another."""
    return {name: round(phases[name], 3) for name in PHASES if name in phases}


def ask_for_a_token(url: str) -> None:
    """Request one token from a server; raise `SmokeFailed` if no form of request is answered."""
    server = Server(url, connections=1)
    said = ""
    try:
        model = server.model()
        named = {"model": model} if model else {}
        chat = [{"role": "user", "content": _PROMPT}]
        for path, body in (
            ("/v1/completions", {"prompt": _PROMPT, "max_tokens": 1, **named}),
            ("/v1/chat/completions", {"messages": chat, "max_tokens": 1, **named}),
            ("/invocations", {"inputs": _PROMPT, "parameters": {"max_new_tokens": 1}}),
        ):
            status, answer = server.post(path, body)
            if status == 200:
                return
            said = f"{path} answered {status}: {quote_answer(answer, 200)}"
    except (BadAnswer, urllib3.exceptions.HTTPError, OSError) as error:
        said = str(error) or type(error).__name__
    raise SmokeFailed(f"the server gave no token: {said}", hint="its log is above")


def _log_with_times(container: Any) -> str:
    """Return the log, each line with the engine's time; "" where the engine does not give it."""
    with suppress(Exception):  # of docker-py: a log driver may keep no lines
        log: bytes = container.logs(timestamps=True)
        return log[:MOST_BYTES].decode(errors="replace")
    return ""
