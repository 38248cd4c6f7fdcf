"""Ways to servers of a cluster: through the API server's proxy to the Service before the pods.

It streams events as they come, with the credentials of the deploying user: no port has to be
forwarded or open.  It does not check the pod's certificate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from packager.addons.deploy.kubernetes.client import ApiServer, ObjectPlace
from packager.addons.deploy.kubernetes.pods import PORT_NAME
from packager.cli.serving.routes import Connection, Incoming, Outgoing
from packager.core.errors import PackagerError, Unavailable

INVOCATIONS, CHAT = "/invocations", "/v1/chat/completions"
RENEWED_S = 600.0  # tokens of credential plugins last a quarter of an hour (EKS)

# KServe's names, read in its source of 2026-08-21 (aaac4e2): `PredictorServiceName` and
# `CommonDefaultHttpPort` in pkg/constants, `reconcileWorkloadService` in
# pkg/controller/v1alpha2/llmisvc/workload.go, `OPENAI_ROUTE_PREFIX` in python/kserve.
_OPENAI = "/openai"  # before the paths of KServe's own server
_WORKLOAD = "llminferenceservice-workload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The Service of a deployment, and the form of requests to its servers."""

    service: str  # as the proxy names it: [SCHEME:]NAME:PORT
    question: str = INVOCATIONS  # the path that takes a chat
    before: str = ""  # prefix of each path under /v1; others do not exist

    def path(self, namespace: str, path: str) -> str | None:
        """Return the path on the API server; None where no way leads to the server's `path`."""
        if self.before and not path.startswith("/v1/"):
            return None
        root = f"/api/v1/namespaces/{namespace}/services/{self.service}/proxy"
        return f"{root}{self.before}{path}"


def find_way(server: ApiServer, main: Mapping[str, Any], namespace: str) -> Way:
    """Return the way to a deployment by its main object; raise `Unavailable` for none so far."""
    name, kind = main["metadata"]["name"], main["kind"]
    if kind == "InferenceService":
        predictor = (main.get("spec") or {}).get("predictor") or {}
        service = f"{name}-predictor:80"
        if predictor.get("model") is not None:
            return Way(service=service, question=CHAT, before=_OPENAI)
        return Way(service=service)
    if kind == "LLMInferenceService":
        return _way_to_workload(server, name, namespace)
    return Way(service=f"{name}:{PORT_NAME}")


def _way_to_workload(server: ApiServer, name: str, namespace: str) -> Way:
    """Find the Service by its labels: a long name is cut, and its port says whether it has TLS."""
    selector = f"app.kubernetes.io/component={_WORKLOAD},app.kubernetes.io/name={name}"
    for found in server.listed(ObjectPlace("v1", "Service", namespace), selector):
        ports: list[Mapping[str, Any]] = (found.get("spec") or {}).get("ports") or [{}]
        port = ports[0]
        scheme = "https:" if port.get("name") == "https" else ""
        service = f"{scheme}{found['metadata']['name']}:{port.get('port', 8000)}"
        return Way(service=service, question=CHAT)
    raise Unavailable(
        f"KServe has made no Service for {name!r} so far", hint="wait until it is ready"
    )


def _beside(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


class ServiceRoute:
    """Requests to a deployment's Service through the API server."""

    model = ""  # the server has a list

    def __init__(
        self,
        server: ApiServer,
        way: Way,
        *,
        shown: str,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
        beside: Callable[[Callable[[], None]], None] = _beside,
    ) -> None:
        self.shown = shown
        self.connection: Connection = server.connection  # once: each request needs it
        self._server = server
        self._way = way
        self._namespace = namespace
        self._clock = clock
        self._beside = beside
        self._renewed = clock()

    def request(
        self,
        method: str,  # noqa: ARG002
        path: str,
        body: bytes,  # noqa: ARG002
        *,
        streams: bool,  # noqa: ARG002
    ) -> Outgoing | None:
        """Return the request with the caller's credentials, found anew before they end.

        A credential plugin takes a second, in which no token would be timed: it runs beside.
        """
        target = self._way.path(self._namespace, path)
        if target is None:
            return None
        now = self._clock()
        if now - self._renewed >= RENEWED_S:
            self._renewed = now
            self._beside(self._renew)
        headers = {name.lower(): value for name, value in self._server.headers().items()}
        del headers["accept"]  # servers read it as a request for JSON
        return Outgoing(url=self._server.address + target, headers=headers)

    def _renew(self) -> None:
        with suppress(PackagerError):  # those of before may still be taken
            self._server.renew()

    def answer(self, headers: Mapping[str, str]) -> Incoming:
        """Return the server's own type."""
        return Incoming(content_type=headers.get("content-type", ""))
