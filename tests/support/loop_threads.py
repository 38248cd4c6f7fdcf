"""Servers of aiohttp in a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from aiohttp import web


class LoopThread:
    """A loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Any) -> Any:
        """Run a coroutine there, and wait for what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def stop(self) -> None:
        """End what still runs there, then the thread."""
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


async def listen(application: web.Application, **options: Any) -> tuple[web.AppRunner, str]:
    """Serve an application on a port of this machine; return what ends it, and its address."""
    runner = web.AppRunner(application, **options)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
