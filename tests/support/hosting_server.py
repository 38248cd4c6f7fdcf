"""`packager serve` in a thread of the test, with containers that are threads, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from packager.addons.server.application import Guard, Journal, make_application
from packager.addons.server.endpoints import fleet, lifecycle
from packager.addons.server.services import ServeServices
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


@contextmanager
def hosting(state: Path, containers: FakeContainers) -> Iterator[Server]:
    """Serve while the block runs; the server must not have failed then."""
    server = Server(state, containers)
    try:
        yield server
        assert server.failures == []
    finally:
        server.stop()
        containers.close()


def look_often(patch: pytest.MonkeyPatch) -> None:
    """Look at endpoints and their containers without the pauses that machines need."""
    patch.setattr(fleet, "_POLL_S", 0.01)
    patch.setattr(lifecycle, "_WATCH_S", 0.02)


def use_for_aws(patch: pytest.MonkeyPatch, server: Server) -> None:
    """Let AWS's clients ask the server, with credentials that mean nothing."""
    for name in ("ENDPOINT_URL_SAGEMAKER", "ENDPOINT_URL_SAGEMAKER_RUNTIME"):
        patch.setenv(f"AWS_{name}", server.url)
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        patch.setenv(f"AWS_{name}", "test-secret")
