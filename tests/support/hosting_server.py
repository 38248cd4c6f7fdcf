"""`packager serve` in a thread of the test, with containers that are threads, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packager.serve.application import Guard, Journal, make_application
from packager.serve.services import ServeServices
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.loop_threads import LoopThread, listen
from tests.support.serve_services import hosting_operations, make_services


class Server:
    """The runtime protocol in a thread, with endpoints that the test makes."""

    def __init__(self, state: Path, containers: FakeContainers) -> None:
        self.failures: list[str] = []  # of the server, that clients are not told
        self._thread = LoopThread()
        self.call = self._thread.call
        self.services: ServeServices = self.call(self._start(state, containers))

    async def _start(self, state: Path, containers: FakeContainers) -> ServeServices:
        services = make_services(state, containers)
        application = make_application(
            services,
            guard=Guard(on_loopback=True),
            journal=Journal(failure=self.failures.append),
            check_answers=True,
        )
        self._runner, self.url = await listen(application)
        return services

    def ask(self, operation: str, **body: Any) -> Any:
        return self.call(hosting_operations(self.services)[operation](body))

    def stop(self) -> None:
        self.call(self._runner.cleanup())
        self.services.resources.close()
        self._thread.stop()
