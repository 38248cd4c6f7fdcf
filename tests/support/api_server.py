"""A server of the API in a thread of the test: real stores, and no scheduler, so jobs stay queued.

with ApiServer(tmp_path) as server:
    server.client("sagemaker").list_optimization_jobs()
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from packager.addons.server.application import BODY_S, IDLE_S, Guard, Journal, make_application
from packager.addons.server.endpoints.containers import Containers
from packager.addons.server.endpoints.lifecycle import Endpoints
from packager.addons.server.hosts import Listen
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.resources import ResourceStore
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.server import UNREAD_S, run_server
from packager.addons.server.services import ServeServices
from packager.addons.server.sigv4 import AccessKey, Verifier
from packager.addons.server.used_signatures import SeenSignatures
from packager.core.errors import Unavailable
from tests.support.sagemaker_bodies import STATED
from tests.support.serve_services import make_captures

REGION = "us-east-1"


@dataclass(kw_only=True)
class ApiServer:
    """The server from `__enter__` to `__exit__`."""

    state: Path = field(kw_only=False)
    settings: JobSettings = field(
        default_factory=lambda: JobSettings(region=REGION, instance="local")
    )
    keys: Sequence[AccessKey] = ()
    now: datetime | None = None
    on_loopback: bool = True
    with_pages: bool = False
    connect: Callable[[], Any] = field(default_factory=lambda: no_engine)
    tls: ssl.SSLContext | None = None
    body_s: float = BODY_S
    idle_s: float = IDLE_S
    unread_s: float = UNREAD_S
    failures: list[str] = field(default_factory=list, init=False)
    requests: list[str] = field(default_factory=list, init=False)
    url: str = field(default="", init=False)
    port: int = field(default=0, init=False)

    def __enter__(self) -> ApiServer:
        self.jobs = JobStore(self.state / "jobs")
        self.resources = ResourceStore(self.state / "serve" / "resources.sqlite")
        self._seen = SeenSignatures(self.state / "serve" / "signatures.sqlite")
        self.services = ServeServices(
            jobs=self.jobs,
            state=self.state / "serve",
            settings=self.settings,
            resources=self.resources,
            endpoints=Endpoints(
                self.resources,
                Containers(self.state / "serve", records=self.state, gpus=0, connect=self.connect),
                self.state / "serve" / "endpoints",
                make_captures(self.state / "serve"),
            ),
        )
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(20)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._seen.close()
        self.resources.close()
        if kind is None:
            assert self.failures == []

    def client(self, service: str, *, key: AccessKey | None = None, checks: bool = True) -> Any:
        """Return a client of AWS's SDK for this server; without `checks` it sends anything."""
        import boto3
        from botocore.config import Config

        key = key or AccessKey("AKIATEST", "a-secret-of-no-meaning")
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=key.id,
            aws_secret_access_key=key.secret,
            config=Config(retries={"total_max_attempts": 1}, parameter_validation=checks),
            verify=False,
        )

    def _run(self, ready: threading.Event) -> None:
        asyncio.run(self._serve(ready))

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        keys = {key.id: key for key in self.keys}
        verifier = Verifier(keys=keys, region=REGION) if keys else None
        if verifier is not None and self.now is not None:
            moment = self.now
            verifier = replace(verifier, now=lambda: moment)
        application = make_application(
            self.services,
            guard=Guard(on_loopback=self.on_loopback, verifier=verifier, seen=self._seen),
            journal=Journal(failure=self.failures.append, access=self.requests.append),
            with_pages=self.with_pages,
            body_s=self.body_s,
            check_answers=True,
        )

        def listening(bound: Listen) -> None:
            self.url = bound.url("https" if self.tls else "http")
            self.port = bound.port
            ready.set()

        await run_server(
            application,
            Listen("127.0.0.1", 0),
            tls=self.tls,
            ready=listening,
            idle_s=self.idle_s,
            unread_s=self.unread_s,
            grace_s=5.0,
            stopped=self._stopped,
        )


def no_engine() -> Any:
    """There is no Docker Engine."""
    raise Unavailable("there is no Docker Engine in this test")


def optimization_body(name: str, **changes: Any) -> Mapping[str, Any]:
    """Return a body of CreateOptimizationJob that is accepted."""
    return {"OptimizationJobName": name} | deepcopy(STATED["optimization"]) | changes
