"""A model server whose every answer is known: when each token is sent, how many, and what fails.

    with LlmDouble(Behaviour(ttft_s=0.05, itl_s=0.01)) as double:
        run_load(double.url, "m", requests, plan)
        double.records()[0].sent_s  # when it sent what, by the same monotonic clock

`Behaviour` is of all requests; `modes` gives the first request the first of them, and so on,
round and round.  A request's own body says otherwise: `{"double": {"mode": "cut"}}`, and so
does its path: `double.url + "/cut"` is a server that cuts every answer off.  It runs in a thread,
or, for measurements, as a process of its own (`process=True`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.support.doubles.llm_service import Behaviour, Mode, Record, Service, behaviour_of
from tests.support.loop_threads import LoopThread

__all__ = ["Behaviour", "LlmDouble", "Mode", "Record"]


class LlmDouble:
    """The double from `__enter__` to `__exit__`."""

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        modes: Sequence[Mode] = (),
        process: bool = False,
    ) -> None:
        self._behaviour = behaviour or Behaviour()
        self._modes = tuple(modes)
        self._in_process = process
        self._process: subprocess.Popen[str] | None = None
        self._thread: LoopThread | None = None
        self.url = ""

    def __enter__(self) -> LlmDouble:
        if self._in_process:
            settings = json.dumps({"modes": self._modes, **asdict(self._behaviour)})
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.llm_double", settings],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._process.stdout is not None
            port = int(self._process.stdout.readline())
        else:
            self._thread = LoopThread()
            self._service = Service(self._behaviour, self._modes)
            port = self._thread.call(self._service.start())
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        if self._thread is not None:
            self._thread.call(self._service.site.stop())
            self._thread.stop()

    def records(self) -> list[Record]:
        """Return what became of all requests so far, in the order in which they came."""
        with urllib.request.urlopen(f"{self.url}/double/records") as response:
            return [Record(**one) for one in json.load(response)]

    def forget(self) -> None:
        """Begin the records anew."""
        urllib.request.urlopen(f"{self.url}/double/forget", data=b"").close()

    def behave(self, behaviour: Behaviour) -> None:
        """Answer in another way from now on."""
        data = json.dumps(asdict(behaviour)).encode()
        urllib.request.urlopen(f"{self.url}/double/behave", data=data).close()


async def _serve(settings: dict[str, Any]) -> None:
    """Serve until the process is killed; its port is all that it prints."""
    modes = settings.pop("modes", ())
    port = await Service(behaviour_of(settings), modes).start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="?", default="{}", help="fields of Behaviour, as JSON")
    asyncio.run(_serve(json.loads(parser.parse_args().settings)))
