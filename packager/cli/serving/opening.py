"""Servers to measure: an address is used as it is, an image runs while it is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import urllib3

from packager.cli.serving.containers import log_of, running, wait_for_ping
from packager.cli.serving.openai import BadAnswer, Server
from packager.cli.serving.routes import Route
from packager.core.errors import SmokeFailed
from packager.core.remote.pools import timely

_ENDING_S, _POLL_S = 3.0, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredServer:
    """An image of the Docker Engine, or an address. `env` is for the container.

    With a route, requests take it instead of the address; `name` is then a label only.
    """

    name: str
    env: Mapping[str, str | None]  # None: the variable is taken away
    shown: str = ""
    precision: str = ""  # "" where unknown
    gpus: bool = False  # the container gets all of them
    route: Route | None = None

    @property
    def is_address(self) -> bool:
        return self.route is not None or is_address(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenServer:
    """A server that answers."""

    server: Server
    model: str
    shown: str
    url: str  # with its user and password
    route: Route | None = None  # that is taken instead of the address
    container: Any = None
    start_s: float | None = None  # from the container's start to its first /ping; None: an address

    @property
    def is_on_host_network(self) -> bool:
        """Whether the container uses the host's network, so that all servers share one port."""
        attrs = (self.container.attrs or {}) if self.container is not None else {}
        return (attrs.get("HostConfig") or {}).get("NetworkMode") == "host"

    def pause(self) -> None:
        """Keep its container from computing, where the engine can; else it idles."""
        if self.container is not None:
            with suppress(Exception):  # of docker-py: no freezer, or it ended meanwhile
                self.container.pause()

    def resume(self) -> None:
        """End a pause of its container; one that was not paused stays as it is."""
        if self.container is not None:
            with suppress(Exception):
                self.container.unpause()

    def check(self, lost: str = "") -> None:
        """Raise `SmokeFailed` when the container ended, or answers were lost."""
        code = self._exit_code(_ENDING_S if lost else 0.0)
        if code is not None:
            raise self.failure(f"the container ended with status {code} while it was measured")
        if lost:
            raise self.failure(f"{self.shown!r} stopped answering: {lost}")

    def _exit_code(self, patience_s: float) -> int | None:
        """Return the exit status of an ended container; waits until the engine knows it."""
        if self.container is None:
            return None
        deadline = time.monotonic() + patience_s
        while True:
            self.container.reload()
            if self.container.status not in ("running", "paused"):
                return int(self.container.attrs["State"]["ExitCode"])
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_S)

    def metrics(self) -> str:
        """Return the text of the server's metrics; "" where it has none or does not answer."""
        with suppress(BadAnswer, urllib3.exceptions.HTTPError):
            return self.server.metrics()
        return ""

    def failure(self, message: str) -> SmokeFailed:
        """Return the error, with the container's log where there is one."""
        if self.container is None:
            return SmokeFailed(message, hint="see the server's log, and ask it with curl")
        return SmokeFailed(message, hint="its log is above", log=log_of(self.container))


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """Settings for starting and reaching the measured servers."""

    connect: Callable[[], Any]  # to the Docker Engine
    deadline_s: float
    connections: int
    on_progress: Callable[[str], None]
    gpus: bool = False
    purpose: str = "measure"  # in the names of containers
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # of requests
    timeout_s: float = 600.0  # of an answer

    @contextmanager
    def open(self, target: MeasuredServer) -> Iterator[OpenServer]:
        """Start the target where it is an image, and see that it answers."""
        if target.is_address:
            asked = target.route or target.name
            server = Server(
                asked, connections=self.connections, headers=self.headers, timeout_s=self.timeout_s
            )
            yield self._opened_server(server, server.shown, target.name, route=target.route)
            return
        began = time.monotonic()
        with running(
            self.connect(),
            target.name,
            target.env,
            self.on_progress,
            purpose=self.purpose,
            gpus=self.gpus or target.gpus,
        ) as (container, url):
            http = timely(urllib3.PoolManager(retries=False))
            try:
                wait_for_ping(http, container, url, self.deadline_s, self.on_progress)
            except SmokeFailed as error:
                raise SmokeFailed(error.message, hint=error.hint, log=log_of(container)) from error
            server = Server(url, connections=self.connections, timeout_s=self.timeout_s)
            start_s = time.monotonic() - began
            yield self._opened_server(server, target.shown or target.name, url, container, start_s)

    def _opened_server(
        self,
        server: Server,
        shown: str,
        url: str,
        container: Any = None,
        start_s: float | None = None,
        route: Route | None = None,
    ) -> OpenServer:
        def found(model: str) -> OpenServer:
            return OpenServer(
                server=server,
                model=model,
                shown=shown,
                url=url,
                route=route,
                container=container,
                start_s=start_s,
            )

        try:
            return found(server.model())
        except (BadAnswer, urllib3.exceptions.HTTPError) as error:
            reason = str(error) if isinstance(error, BadAnswer) else "it does not answer"
            raise found("").failure(f"{shown!r} cannot be measured: {reason}") from error


def is_address(name: str) -> bool:
    """Return whether `name` is a URL, even an invalid one: no image has such a name."""
    return "://" in name and not name.startswith("docker://")
