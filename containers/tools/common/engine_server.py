"""The server of the image that a step runs in: started, asked, ended with all that it started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

POLL_S = 0.25
NOT_YET = 503


def start_and_ask(
    report: Any,
    doing: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    asked: Mapping[str, Any],
    *,
    health: str,
    said: re.Pattern[bytes],
    directory: str | None = None,
) -> tuple[float, float | None, list[Any]]:
    """Return the seconds until it was ready, those that its log says, and its answers.

    `asked` has the `port` on loopback, the `requests`, and `ready_s` to wait for either.
    """
    limit_s = asked["ready_s"]
    began = time.monotonic()
    with (
        report.busy(f"{doing}: starting the server", 10),
        running(argv, env, log, directory) as process,
    ):
        url = f"http://127.0.0.1:{asked['port']}"
        wait_until_ready(f"{url}{health}", process, limit_s)
        ready = time.monotonic() - began
        report.progress(f"{doing}: asking")
        answers = [ask(f"{url}{path}", body, process, limit_s) for path, body in asked["requests"]]
    found = said.search(log.read_bytes())
    return round(ready, 2), float(found[1]) if found else None, answers


@contextmanager
def running(
    argv: Sequence[str], env: Mapping[str, str], log: Path, directory: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with an environment of its own; end it with all that it started.

    What it says goes to our log too: there it is found when this fails.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*argv], env=dict(env), cwd=directory,
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        sys.stderr.write(log.read_text(errors="replace"))


def wait_until_ready(url: str, process: subprocess.Popen[bytes], limit_s: float) -> None:
    """Wait for an answer of 200; raise where the server ends before, or takes longer."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(POLL_S)
    raise RuntimeError(f"the server was not ready within {limit_s:.0f} s")


def ask(url: str, body: Mapping[str, Any], process: subprocess.Popen[bytes], limit_s: float) -> Any:
    """Ask once; give what must be the same at every start.

    DJL Serving is healthy before its model is loaded, and answers 503 until then.
    """
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    began = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                choice = json.load(answer)["choices"][0]
            break
        except urllib.error.HTTPError as error:
            if error.code != NOT_YET or time.monotonic() - began > limit_s:
                raise
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        time.sleep(POLL_S)
    chosen = choice.get("logprobs") or {}
    return [choice.get("text"), chosen.get("tokens"), choice.get("finish_reason")]
