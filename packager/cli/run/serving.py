"""A started server until its end: readiness, the endpoint it answers, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import urllib3

from packager.cli.run.clients import CHAT, COMPLETIONS, INVOCATIONS, Address, Endpoint, body_for
from packager.cli.run.containers import Started, engine_errors
from packager.cli.serving.containers import log_of, reason_of, wait_for_ping
from packager.cli.serving.openai import BadAnswer, Server
from packager.core.documents import MAX_BYTES, shorten
from packager.core.errors import SmokeFailed
from packager.core.remote.pools import timely
from packager.core.text import quote_answer

_POLL_S = 1.0
_FIRST_ANSWER_S = 600.0  # an engine may compile before its first answer
_PING_S = 2.0
_STOPPED = (0, 128 + 2, 128 + 15)  # exit statuses after a stop signal, also during the start
_KILLED = 128 + 9
_ELSEWHERE = "it was stopped and removed by another command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A server that has answered."""

    address: Address
    seconds: float  # since its container was started


def wait_until_ready(server: Started, deadline_s: float, say: Callable[[str], None]) -> Ready:
    """Wait until a server answers a request for one token; raise `SmokeFailed` with its log.

    What is printed for clients is what was answered: a chat where the model has a template.
    """
    began = time.monotonic()
    http = timely(urllib3.PoolManager(retries=False))
    try:
        with engine_errors():
            wait_for_ping(http, server.container, server.url, deadline_s, say)
        say("asking for one token")
        address = _first_answer(http, server.url)
    except (SmokeFailed, BadAnswer, urllib3.exceptions.HTTPError) as error:
        raise _failed(error, server) from error
    return Ready(address=address, seconds=time.monotonic() - began)


def answers(url: str) -> bool:
    """Return whether a server reports that it is ready; False without an address."""
    if not url:
        return False
    try:
        http = timely(urllib3.PoolManager(retries=False))
        return http.request("GET", f"{url}/ping", timeout=_PING_S).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def wait_for_end(
    server: Started, *, sleep: Callable[[float], None] = time.sleep, poll_s: float = _POLL_S
) -> str:
    """Wait until the container has ended; return what stopped it.

    Raises `SmokeFailed` where it was not stopped.
    """
    while (now := server.look()) is not None and now.exit_code is None:
        sleep(poll_s)
    if now is None:
        return _ELSEWHERE
    if now.exit_code in _STOPPED:
        return "it was stopped by another command"
    reason = "the kernel killed it for memory" if now.out_of_memory else ""
    reason = reason or ("it was killed" if now.exit_code == _KILLED else "")
    reason = reason or reason_of(server.container)
    raise SmokeFailed(
        f"the server ended with status {now.exit_code}{f': {reason}' if reason else ''}",
        hint="its log is above",
        log=log_of(server.container),
    )


def _first_answer(http: urllib3.PoolManager, url: str) -> Address:
    """Return the first endpoint that answers, among those of the printed examples."""
    model = Server(url).model()
    tried: tuple[Endpoint, ...] = (CHAT, COMPLETIONS, INVOCATIONS) if model else (INVOCATIONS,)
    refusals = []
    for endpoint in tried:
        answer = http.request(
            "POST",
            f"{url}{endpoint}",
            json=dict(body_for(endpoint, model, tokens=1)),
            timeout=_FIRST_ANSWER_S,
            preload_content=False,
        )
        try:
            body = answer.read(MAX_BYTES + 1, decode_content=False)
        finally:
            answer.close()
        if answer.status == 200:
            return Address(url=url, endpoint=endpoint, model=model)
        said = quote_answer(body, 300)
        refusals.append(f"{endpoint} answered {answer.status}: {said}")
    raise SmokeFailed(
        f"the server is up and answers no request: {refusals[0]}", hint="its log is above"
    )


def _failed(error: Exception, server: Started) -> SmokeFailed:
    """Return the error with the log and, for a server still starting, its state."""
    now = server.look()
    if now is None:
        return SmokeFailed(f"{_ELSEWHERE} before it answered")
    log = log_of(server.container)
    if not isinstance(error, SmokeFailed):
        said = f"the server's answer is unusable: {type(error).__name__}: {error}"
        return SmokeFailed(said, hint="its log is above", log=log)
    lines = log.strip().splitlines()
    doing = f"; its log ends with {shorten(lines[-1].strip(), 200)}" if lines else ""
    still = doing if now.exit_code is None else ""
    return SmokeFailed(f"{error.message}{still}", hint=error.hint, log=error.log or log)
