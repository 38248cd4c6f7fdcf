"""A server of the API in a thread of the test: real stores, and no scheduler, so jobs stay queued.

with ApiServer(tmp_path) as server:
    server.client("sagemaker").list_optimization_jobs()
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from packager.errors import Unavailable
from packager.jobs.store import JobStore
from packager.sagemaker.settings import JobSettings
from packager.serve.application import BODY_S, IDLE_S, Guard, Journal, make_application
from packager.serve.endpoints.containers import Containers
from packager.serve.endpoints.lifecycle import Endpoints
from packager.serve.hosts import Listen
from packager.serve.resources import ResourceStore
from packager.serve.seen import SeenSignatures
from packager.serve.server import UNREAD_S, run_server
from packager.serve.services import ServeServices
from packager.serve.sigv4 import AccessKey, Verifier

REGION = "us-east-1"


class ApiServer:
    """The server from `__enter__` to `__exit__`."""

    def __init__(
        self,
        state: Path,
        *,
        settings: JobSettings | None = None,
        keys: Sequence[AccessKey] = (),
        now: datetime | None = None,
        on_loopback: bool = True,
        with_pages: bool = False,
        connect: Callable[[], Any] | None = None,
        tls: ssl.SSLContext | None = None,
        body_s: float = BODY_S,
        idle_s: float = IDLE_S,
        unread_s: float = UNREAD_S,
    ) -> None:
        self.failures: list[str] = []
        self.requests: list[str] = []
        self.url = ""
        self.port = 0
        self._state = state
        self._settings = settings or JobSettings(region=REGION, instance="local")
        self._keys = {key.id: key for key in keys}
        self._now = now
        self._on_loopback = on_loopback
        self._with_pages = with_pages
        self._connect = connect or no_engine
        self._tls = tls
        self._body_s = body_s
        self._idle_s = idle_s
        self._unread_s = unread_s
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None

    def __enter__(self) -> ApiServer:
        self.jobs = JobStore(self._state / "jobs")
        self.resources = ResourceStore(self._state / "serve" / "resources.sqlite")
        self._seen = SeenSignatures(self._state / "serve" / "signatures.sqlite")
        self.services = ServeServices(
            jobs=self.jobs,
            state=self._state / "serve",
            settings=self._settings,
            resources=self.resources,
            endpoints=Endpoints(
                self.resources,
                Containers(
                    self._state / "serve", records=self._state, gpus=0, connect=self._connect
                ),
                self._state / "serve" / "endpoints",
            ),
        )
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(20)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        assert self._loop is not None and self._stopped is not None and self._thread is not None
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
        verifier = Verifier(keys=self._keys, region=REGION) if self._keys else None
        if verifier is not None and self._now is not None:
            moment = self._now
            verifier = replace(verifier, now=lambda: moment)
        application = make_application(
            self.services,
            guard=Guard(on_loopback=self._on_loopback, verifier=verifier, seen=self._seen),
            journal=Journal(failure=self.failures.append, access=self.requests.append),
            with_pages=self._with_pages,
            body_s=self._body_s,
            check_answers=True,
        )

        def listening(bound: Listen) -> None:
            self.url = bound.url("https" if self._tls else "http")
            self.port = bound.port
            ready.set()

        await run_server(
            application,
            Listen("127.0.0.1", 0),
            tls=self._tls,
            ready=listening,
            idle_s=self._idle_s,
            unread_s=self._unread_s,
            grace_s=5.0,
            stopped=self._stopped,
        )


def no_engine() -> Any:
    """There is no Docker Engine."""
    raise Unavailable("there is no Docker Engine in this test")


def optimization_body(name: str, **changes: Any) -> Mapping[str, Any]:
    """Return a body of CreateOptimizationJob that is accepted."""
    return {
        "OptimizationJobName": name,
        "RoleArn": "arn:aws:iam::000000000000:role/anyone",
        "ModelSource": {"S3": {"S3Uri": "s3://bucket/models/tiny/"}},
        "DeploymentInstanceType": "ml.g5.xlarge",
        "OptimizationConfigs": [
            {"ModelQuantizationConfig": {"OverrideEnvironment": {"OPTION_QUANTIZE": "awq"}}}
        ],
        "OutputConfig": {"S3OutputLocation": "s3://bucket/out/"},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        **changes,
    }
