"""Pages of the server on a port of this machine, over jobs and endpoints that are made up."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from packager.addons.deploy.sagemaker.api_refusals import ResourceNotFound
from packager.addons.server.endpoints.containers import Containers
from packager.addons.server.endpoints.lifecycle import Endpoints
from packager.addons.server.pages import mount_site
from packager.addons.server.pages.commands import CommandRunner
from packager.addons.server.pages.site import Site
from packager.addons.server.resources import ResourceStore
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.services import Jobs, ServeServices
from tests.support.loop_threads import LoopThread, listen
from tests.support.serve_services import make_captures


def services_at(folder: Path, jobs: Jobs, **settings: Any) -> ServeServices:
    """Return services whose state is in a folder; no Docker Engine is asked for."""
    state = folder / "serve"
    resources = ResourceStore(state / "resources.sqlite")
    containers = Containers(state, records=folder / "records", gpus=False)
    return ServeServices(
        jobs=jobs,
        state=state,
        settings=JobSettings(**settings),
        resources=resources,
        endpoints=Endpoints(resources, containers, state / "endpoints", make_captures(state)),
    )


@dataclass
class MadeUpApi:
    """Operations of the API: what was asked, and answers that were put here beforehand."""

    answers: dict[str, Mapping[str, Any] | Exception] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def __call__(self, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((name, dict(body)))
        answer = self.answers.get(name)
        if answer is None:
            if name.startswith("Describe"):
                raise ResourceNotFound("Could not find it.")
            return {"Endpoints": []} if name == "ListEndpoints" else {}
        if isinstance(answer, Exception):
            raise answer
        return answer


def pages_app(
    services: ServeServices, api: MadeUpApi | None = None, commands: CommandRunner | None = None
) -> web.Application:
    """Return an application with the pages alone."""
    site = Site(services=services, call=api or MadeUpApi(), commands=commands or CommandRunner())
    application = web.Application()
    mount_site(application, site)
    return application


@contextmanager
def served(make: Callable[[], web.Application], grace_s: float = 0.1) -> Iterator[str]:
    """Serve an application in a thread; yields its address.

    Requests that are being answered have `grace_s` at the end.
    """
    thread = LoopThread()

    async def start() -> tuple[web.AppRunner, str]:
        return await listen(make(), shutdown_timeout=grace_s)

    runner, address = thread.call(start())
    try:
        yield address
    finally:
        thread.call(runner.cleanup())
        thread.stop()


@dataclass
class Visitor:
    """A browser without script: it keeps its cookie and sends forms with their token."""

    address: str
    cookie: str = ""

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        """Return status, headers and text of a page."""
        return self._send("GET", path, None, headers)

    def post(
        self, path: str, fields: Mapping[str, str], *, page: str = "/ui/jobs/new", **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """Send a form with the token that `page` has."""
        found = re.search(r'name="token" value="([0-9a-f]+)"', self.get(page)[2])
        given = {"token": found[1] if found else "", **fields}
        sent = {"Origin": self.address, **headers}
        sent["Content-Type"] = "application/x-www-form-urlencoded"
        return self._send("POST", path, urlencode(given), sent)

    def _send(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        sent = {name.replace("_", "-"): text for name, text in headers.items() if text}
        if self.cookie:
            sent["Cookie"] = self.cookie
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            found = {name.lower(): text for name, text in answer.getheaders()}
            if "set-cookie" in found:
                self.cookie = found["set-cookie"].partition(";")[0]
            return answer.status, found, answer.read().decode()
        finally:
            connection.close()
