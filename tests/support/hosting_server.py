"""`packager serve` in a thread of the test, with containers that are threads, too."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from aiohttp import web

from packager.serve.application import Guard, Journal, make_application
from packager.serve.services import ServeServices
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.serve_services import hosting_operations, make_services


class Server:
    """The runtime protocol in a thread, with endpoints that the test makes."""

    def __init__(self, state: Path, containers: FakeContainers) -> None:
        self.failures: list[str] = []  # of the server, that clients are not told
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.services: ServeServices = self.call(self._start(state, containers))

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self, state: Path, containers: FakeContainers) -> ServeServices:
        services = make_services(state, containers)
        application = make_application(
            services,
            guard=Guard(on_loopback=True),
            journal=Journal(failure=self.failures.append),
            check_answers=True,
        )
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return services

    def ask(self, operation: str, **body: Any) -> Any:
        return self.call(hosting_operations(self.services)[operation](body))

    def stop(self) -> None:
        async def end() -> None:
            await self._runner.cleanup()

        self.call(end())
        self.services.resources.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
