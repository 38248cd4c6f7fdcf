"""Requests to an API server: objects applied by the server, read, listed, watched, deleted."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import urllib3

from artifact_cache.waits import TooLate, within
from packager.addons.deploy.kubernetes.kubeconfig import ClusterAccess
from packager.addons.deploy.kubernetes.objects import MANAGER
from packager.cli.serving.routes import Connection
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import AccessDenied, Unavailable, UsageError
from packager.core.remote.pools import timely
from packager.core.text import quote_answer, remember_headers

APPLY = "application/apply-patch+yaml"  # JSON is YAML
CONNECT_S = 10.0
ANSWER_S = 60.0  # of an answer, to its last byte
INVOKED_S = 600.0  # the same of a server behind the API server
LONGEST_ANSWER = 64 << 20  # bytes; a list of a thousand objects has some
LONGEST_LINE = 8 << 20  # bytes of an event; etcd keeps objects of 1.5 MiB
TRIES = 4  # of what an overloaded server, or one without quorum, answers

READY = "`kubectl get --raw /readyz` asks the same server"

# kind → what its path calls it
PLURALS = {
    "DaemonSet": "daemonsets",
    "Service": "services",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "LeaderWorkerSet": "leaderworkersets",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "ScaledObject": "scaledobjects",
    "ServiceMonitor": "servicemonitors",
    "InferenceService": "inferenceservices",
    "LLMInferenceService": "llminferenceservices",
    "InferenceEndpointConfig": "inferenceendpointconfigs",
    "Pod": "pods",
    "ReplicaSet": "replicasets",
}


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A whole answer."""

    status: int
    data: bytes
    headers: Mapping[str, str]


class ApiRefused(UsageError):
    """The API server does not take an object, or a quota, webhook or policy does not."""

    def __init__(self, what: str, said: str, hint: str = "") -> None:
        super().__init__(f"the cluster refuses {what}: {said}", hint=hint)


class FieldConflict(ApiRefused):
    """Another manager owns a field that would be changed."""

    def __init__(self, what: str, said: str) -> None:
        super().__init__(what, said, "--force takes the fields over; or change them where they are")


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """Objects of one kind in a namespace, or one of them."""

    version: str  # `apps/v1`
    kind: str
    namespace: str
    name: str = ""

    @property
    def path(self) -> str:
        """Return the path of the request."""
        root = "/apis/" if "/" in self.version else "/api/"
        made = f"{root}{self.version}/namespaces/{quote(self.namespace, safe='')}"
        made += f"/{PLURALS[self.kind]}"
        return f"{made}/{quote(self.name, safe='')}" if self.name else made

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}" if self.name else self.kind


def place_of(document: Mapping[str, Any]) -> ObjectPlace:
    """Return where an object is kept."""
    meta = document["metadata"]
    return ObjectPlace(document["apiVersion"], document["kind"], meta["namespace"], meta["name"])


class ApiServer:
    """One API server. Connects at the first request.

    `renew` reads the access again when credentials are refused: a token of a plugin lasts a quarter
    of an hour, and a wait may last a day.
    """

    def __init__(
        self, access: ClusterAccess, renew: Callable[[], ClusterAccess] | None = None
    ) -> None:
        self._access = access
        self._renew = renew
        self._made: urllib3.PoolManager | None = None

    def apply(self, document: Mapping[str, Any], *, force: bool, dry_run: bool) -> dict[str, Any]:
        """Apply an object by the server; return it as it is then. Raises `FieldConflict`."""
        query = {"fieldManager": MANAGER, "force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        where = place_of(document)
        found = self._ask("PATCH", where.path, str(where), query, document, APPLY)
        return found if found is not None else {}

    def get(self, where: ObjectPlace) -> dict[str, Any] | None:
        """Return an object, or None where there is none, or no such kind."""
        return self._ask("GET", where.path, str(where))

    def listed(self, where: ObjectPlace, selector: str) -> list[dict[str, Any]]:
        """Return the objects with a label; none where the cluster has no such kind."""
        found = self._ask("GET", where.path, str(where), {"labelSelector": selector})
        return list((found or {}).get("items") or ())

    def delete(self, where: ObjectPlace, uid: str) -> bool:
        """Delete an object if it still is the one with that uid; report whether it was there."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        return self._ask("DELETE", where.path, str(where), None, options) is not None

    def post(self, path: str, body: bytes) -> bytes:
        """Send a request through the API server's proxy; return the answer."""
        kind = {"Content-Type": "application/json"}
        response = self._send("POST", path, body, kind, INVOKED_S)
        if response.status >= 400:
            said = _said(response.data)
            if response.status in (502, 503, 504):
                raise Unavailable(f"no pod answers: {said}", hint="ask for its status")
            raise ApiRefused("the request", f"status {response.status}: {said}")
        return response.data

    def read(self, path: str) -> dict[str, Any] | None:
        """Return what a server behind the API server has at a path; None where it has no object."""
        answer = self._send("GET", path, None, {})
        if answer.status != 200:
            return None
        try:
            return parse_object(answer.data)
        except NotStrict:
            return None

    @property
    def address(self) -> str:
        """Return the address of the API server."""
        return self._access.server

    @property
    def connection(self) -> Connection:
        """Return how connections to the API server are made."""
        access = self._access
        tls = _context(access) if access.server.startswith("https:") else None
        return Connection(tls=tls, server_name=access.server_name, proxy=access.proxy)

    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate the client."""
        return self._headers()

    def renew(self) -> None:
        """Find the credentials anew, before they end: a load may last longer than they do."""
        if self._renew is not None:
            renewed = self._renew()
            if renewed.server == self._access.server:
                self._access = renewed

    def watch(self, where: ObjectPlace, version: str, seconds: float) -> Iterator[dict[str, Any]]:
        """Yield an object each time it changes, for so long; ends early when the server does."""
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={where.name}",
            "resourceVersion": version,
            "timeoutSeconds": str(max(int(seconds), 1)),
        }
        path = ObjectPlace(where.version, where.kind, where.namespace).path
        until = time.monotonic() + seconds + CONNECT_S
        try:
            ask = partial(
                self._pool().request,
                "GET",
                f"{self._access.server}{path}?{urlencode(query)}",
                headers=self._headers(),
                timeout=urllib3.Timeout(connect=CONNECT_S, read=seconds + CONNECT_S),
                retries=False,
                preload_content=False,
            )
            response = within(seconds + 2 * CONNECT_S, ask)
            if response.status >= 400:
                return
            for line in _lines(response, until):
                event = json.loads(line)
                if event.get("type") not in ("ADDED", "MODIFIED"):
                    return  # gone, or the version is too old: the watcher lists again
                yield event["object"]
        except (urllib3.exceptions.HTTPError, TooLate, ValueError, KeyError):
            return

    def _ask(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
    ) -> dict[str, Any] | None:
        """Return the answer's document, or None for 404; raise what the server refuses."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": kind} if data else {}
        target = f"{path}?{urlencode(query)}" if query else path
        for left in reversed(range(TRIES)):
            response = self._send(method, target, data, headers)
            if left and response.status in (429, 500, 503, 504):
                _wait(response)
                continue
            break
        if response.status == 404 and method != "PATCH":
            return None
        if response.status >= 400:
            raise _error(response.status, response.data, what)
        try:
            found = json.loads(response.data)
        except ValueError:
            raise Unavailable("the API server's answer is not JSON", hint=READY) from None
        if not isinstance(found, dict):
            raise Unavailable("the API server's answer is no object", hint=READY)
        return found

    def _send(
        self,
        method: str,
        target: str,
        data: bytes | None,
        headers: Mapping[str, str],
        answer_s: float | None = None,
    ) -> ApiAnswer:
        answer_s = ANSWER_S if answer_s is None else answer_s
        response = self._request(method, target, data, headers, answer_s)
        if response.status == 401 and self._renew is not None:
            renewed = self._renew()
            if renewed.server != self._access.server:  # another context is the current one now
                return response
            self._access, self._made = renewed, None
            response = self._request(method, target, data, headers, answer_s)
        return response

    def _request(
        self,
        method: str,
        target: str,
        data: bytes | None,
        headers: Mapping[str, str],
        answer_s: float,
    ) -> ApiAnswer:
        def ask() -> ApiAnswer:
            response = self._pool().request(
                method,
                f"{self._access.server}{target}",
                body=data,
                headers={**self._headers(), **headers},
                timeout=urllib3.Timeout(connect=CONNECT_S, read=answer_s),
                retries=False,
                redirect=False,  # it would carry the token elsewhere
                preload_content=False,
            )
            return ApiAnswer(response.status, _whole(response), response.headers)

        try:
            return within(CONNECT_S + answer_s, ask)
        except (urllib3.exceptions.HTTPError, TooLate) as error:
            why = str(error) if isinstance(error, TooLate) else type(error).__name__
            raise Unavailable(
                f"the API server {self._access.server} does not answer: {why}",
                hint="`kubectl cluster-info` asks the same server",
            ) from None

    def _headers(self) -> dict[str, str]:
        who = self._access.credentials
        made = {"Accept": "application/json", "User-Agent": MANAGER}
        if who.token:
            made["Authorization"] = f"Bearer {who.token}"
        elif who.basic:
            made["Authorization"] = f"Basic {base64.b64encode(who.basic.encode()).decode()}"
        remember_headers(made)
        return made

    def _pool(self) -> urllib3.PoolManager:
        if self._made is None:
            given: dict[str, Any] = {}
            if self._access.server.startswith("https:"):
                given["ssl_context"] = _context(self._access)
            if self._access.server_name:
                given["server_hostname"] = self._access.server_name
                given["assert_hostname"] = self._access.server_name
            proxy = self._access.proxy
            self._made = timely(
                urllib3.ProxyManager(proxy, **given) if proxy else urllib3.PoolManager(**given)
            )
        return self._made


def _context(access: ClusterAccess) -> ssl.SSLContext:
    """Return TLS as the kubeconfig wants it; keys are in a file only while they are loaded."""
    try:
        made = ssl.create_default_context(cadata=access.authority.decode("ascii") or None)
        if not access.verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        who = access.credentials
        if who.certificate:
            with tempfile.TemporaryDirectory() as directory:
                place = Path(directory) / "client.pem"
                place.touch(mode=0o600)
                place.write_bytes(who.certificate + b"\n" + who.key)
                made.load_cert_chain(place)
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise UsageError(
            "the kubeconfig's certificates or key are not PEM",
            hint="`kubectl config view --raw` shows them",
        ) from None
    return made


def _lines(response: urllib3.BaseHTTPResponse, until: float) -> Iterator[bytes]:
    """Yield lines until a time: a proxy may keep a stream open that should have ended.

    Ends at a line that is longer than any object.
    """
    waiting = b""
    for part in response.stream(1 << 16):
        waiting += part
        if time.monotonic() >= until or len(waiting) > LONGEST_LINE:
            return
        *whole, waiting = waiting.split(b"\n")
        yield from (one for one in whole if one.strip())


def _whole(response: urllib3.BaseHTTPResponse) -> bytes:
    """Return a body, or its first `LONGEST_ANSWER` bytes: no document of the API has more."""
    found = bytearray()
    try:
        for part in response.stream(1 << 16):
            found += part
            if len(found) > LONGEST_ANSWER:
                response.close()
                break
    finally:
        response.release_conn()
    return bytes(found)


def _wait(response: ApiAnswer) -> None:
    """Wait for the time that the server requests, at most ten seconds; half a second by default."""
    said = response.headers.get("Retry-After", "")
    time.sleep(min(float(said), 10.0) if said.isdecimal() else 0.5)


def _error(status: int, data: bytes, what: str) -> Exception:
    said = _said(data)
    if status == 401 or (status == 403 and "quota" not in said and "cannot " in said):
        return AccessDenied(
            f"the cluster does not let you change or read {what}: {said}",
            hint="`kubectl auth can-i` tells what you may do",
        )
    if status == 409:
        return FieldConflict(what, said)
    if status == 404:
        hint = "install its operator, or create the namespace"
        return ApiRefused(what, "it has no such namespace, or no such kind", hint)
    if status in (429,) or status >= 500:
        return Unavailable(f"the API server cannot answer for {what}: {said}", hint=READY)
    return ApiRefused(what, said)


def _said(data: bytes) -> str:
    """Return the message of a Status, printable and short."""
    try:
        found = json.loads(data)
        text = str(found["message"])
    except (ValueError, KeyError, TypeError):
        text = data.decode(errors="replace").strip()
    return quote_answer(text, 400)
