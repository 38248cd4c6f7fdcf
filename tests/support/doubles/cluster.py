"""An API server of Kubernetes: strict, with resource versions, field managers, admission, watches.

Server-side apply is as its specification says: each manager owns the fields it applied; taking
another's field needs force; a field that its only manager applies no more goes away.  Entries of
lists are merged by `name`, as those of containers are.  Documents are validated by the schemas of
the version.  Nothing runs: tests say what pods and controllers report.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import yaml

from packager.addons.deploy.kubernetes.client import PLURALS
from tests.support.cluster_schemas import CUSTOM, check_document
from tests.support.doubles.http import Handler, Server

KINDS = {plural: kind for kind, plural in PLURALS.items()}
Key = tuple[str, str, str]  # namespace, kind, name
_OURS = ("Authorization", "Host", "Connection", "Transfer-Encoding")
Paths = dict[tuple[str, ...], Any]


@dataclass
class Cluster:
    """What the API server keeps."""

    version: str = "1.34"
    token: str = "a-token-of-the-cluster"
    namespaces: set[str] = field(default_factory=lambda: {"default", "models"})
    custom: set[str] = field(default_factory=lambda: set(CUSTOM))
    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    owners: dict[Key, dict[str, Paths]] = field(default_factory=dict)
    refuse: dict[str, tuple[int, str, str]] = field(default_factory=dict)  # kind → status, reason
    busy: int = 0  # answers of 429 before the next one
    answer: bytes = b'{"choices":[]}'
    pod: str = ""  # address of what answers behind Services; "": `answer` is all that comes
    requests: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    count: int = 100
    on_watch: Callable[[Cluster], None] = lambda _: None

    def apply(self, key: Key, wanted: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        """Apply an object for a manager; raise `Refused`."""
        manager, force = query["fieldManager"], query.get("force") == "true"
        there = self.objects.get(key)
        owners = copy.deepcopy(self.owners.get(key, {}))
        paths = dict(_leaves({name: one for name, one in wanted.items() if name != "status"}))
        if there is not None:
            for other, theirs in owners.items():
                mine = [p for p, v in paths.items() if p in theirs and theirs[p] != v]
                if other != manager and mine and not force:
                    said = f'conflict with "{other}": .{".".join(mine[0])}'
                    raise Refused(409, "Conflict", f"Apply failed with 1 conflict: {said}")
                for path in mine if other != manager else ():
                    del theirs[path]
        old = owners.get(manager, {})
        held = {path for other, theirs in owners.items() if other != manager for path in theirs}
        made = copy.deepcopy(there) if there is not None else {"metadata": {}}
        for path in old.keys() - paths.keys() - held:
            _remove(made, path)
        for path, value in paths.items():
            _put(made, path, value)
        owners[manager] = paths
        if there is None:
            self.count += 1
            made["metadata"] |= {"uid": f"uid-{self.count}", "generation": 0}
            made.setdefault("status", {})
        if "dryRun" in query:
            return made
        if there is None or _spec(made) != _spec(there):
            made["metadata"]["generation"] += 1
        if made != there:
            self._store(key, made)
        self.owners[key] = owners
        return self.objects[key]

    def report(self, kind: str, name: str, namespace: str = "default", **status: Any) -> None:
        """Set what a controller reports of an object."""
        key = (namespace, kind, name)
        made = copy.deepcopy(self.objects[key])
        status.setdefault("observedGeneration", made["metadata"]["generation"])
        self._store(key, {**made, "status": status})

    def put(self, document: dict[str, Any]) -> None:
        """Keep an object that nobody applied."""
        meta = document["metadata"]
        meta.setdefault("uid", f"uid-of-{meta['name']}")
        meta.setdefault("generation", 1)
        self._store((meta.get("namespace", "default"), document["kind"], meta["name"]), document)

    def edit(self, key: Key, manager: str, path: tuple[str, ...], value: Any) -> None:
        """Change a field as another manager."""
        made = copy.deepcopy(self.objects[key])
        _put(made, path, value)
        for theirs in self.owners[key].values():
            theirs.pop(path, None)
        self.owners[key].setdefault(manager, {})[path] = value
        self._store(key, made)

    def delete(self, key: Key, options: dict[str, Any]) -> dict[str, Any]:
        """Delete an object if it is the one that is meant."""
        there = self.objects[key]
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != there["metadata"]["uid"]:
            raise Refused(409, "Conflict", "the UID in the precondition does not match")
        del self.objects[key], self.owners[key]
        return {"kind": "Status", "status": "Success"}

    def _store(self, key: Key, made: dict[str, Any]) -> None:
        with self.changed:
            self.count += 1
            made["metadata"]["resourceVersion"] = str(self.count)
            self.objects[key] = made
            self.owners.setdefault(key, {})
            self.changed.notify_all()


class Refused(Exception):
    """A Status that is a failure."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": reason,
            "message": message,
            "code": status,
        }


@contextmanager
def running_cluster() -> Iterator[tuple[Cluster, str]]:
    """Run a cluster; give it and its address."""
    cluster = Cluster()
    server = Server(_Handler, cluster)
    server.open()
    try:
        yield cluster, server.url
    finally:
        server.close()


class _Handler(Handler):
    server: Server

    @property
    def cluster(self) -> Cluster:
        return self.server.double

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_PATCH(self) -> None:
        self._answer(self._patch)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def do_POST(self) -> None:
        self._answer(self._proxied)

    def _answer(self, act: Callable[[], Any]) -> None:
        self.sent = self.body()
        parts = urlsplit(self.path)
        self.query = {name: value[-1] for name, value in parse_qs(parts.query).items()}
        self.segments = parts.path.strip("/").split("/")
        self.cluster.requests.append(f"{self.command} {self.path}")
        status = 200
        try:
            if self.headers.get("Authorization") != f"Bearer {self.cluster.token}":
                raise Refused(401, "Unauthorized", "Unauthorized")
            if self.cluster.busy:
                self.cluster.busy -= 1
                raise Refused(429, "TooManyRequests", "the server is busy")
            found = act()
        except Refused as error:
            status, found = error.status, error.body
        if found is not None:
            data = found if isinstance(found, bytes) else json.dumps(found).encode()
            later = {"Retry-After": "0"} if status == 429 else {}
            self.say(status, {"Content-Type": "application/json", **later}, data)

    def _key(self) -> tuple[Key, str]:
        """Return the key of the path, and the API version."""
        rest = self.segments[1:]
        at = rest.index("namespaces")
        version, namespace, plural = "/".join(rest[:at]), rest[at + 1], rest[at + 2]
        kind = KINDS.get(plural, "")
        if not kind or (kind in CUSTOM and kind not in self.cluster.custom):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return (namespace, kind, rest[at + 3] if len(rest) > at + 3 else ""), version

    def _get(self) -> Any:
        if "proxy" in self.segments:
            return self._proxied()
        key, version = self._key()
        if self.query.get("watch"):
            return self._watch(key)
        if key[2]:
            if key not in self.cluster.objects:
                raise Refused(404, "NotFound", f'{key[1]} "{key[2]}" not found')
            return self.cluster.objects[key]
        wanted = dict(one.split("=") for one in self.query["labelSelector"].split(","))
        items = [
            {name: value for name, value in one.items() if name not in ("kind", "apiVersion")}
            for (namespace, kind, _), one in self.cluster.objects.items()
            if (namespace, kind) == key[:2]
            and wanted.items() <= (one["metadata"].get("labels") or {}).items()
        ]
        return {"kind": f"{key[1]}List", "apiVersion": version, "items": items}

    def _watch(self, key: Key) -> None:
        self.head(200, {"Connection": "close"})
        name = self.query["fieldSelector"].partition("=")[2]
        since = int(self.query["resourceVersion"])
        self.cluster.on_watch(self.cluster)
        with self.cluster.changed:
            self.cluster.changed.wait_for(
                lambda: self._version((*key[:2], name)) > since, timeout=2
            )
            found = self.cluster.objects[*key[:2], name]
        self.wfile.write(json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n")
        self.close_connection = True

    def _version(self, key: Key) -> int:
        return int(self.cluster.objects[key]["metadata"]["resourceVersion"])

    def _patch(self) -> Any:
        key, version = self._key()
        assert self.headers["Content-Type"] == "application/apply-patch+yaml"
        wanted = yaml.safe_load(self.sent)
        if key[0] not in self.cluster.namespaces:
            raise Refused(404, "NotFound", f'namespaces "{key[0]}" not found')
        if (wanted["apiVersion"], wanted["kind"], wanted["metadata"]["name"]) != (
            version,
            *key[1:],
        ):
            raise Refused(400, "BadRequest", "the object does not match the path")
        if key[1] in self.cluster.refuse:
            raise Refused(*self.cluster.refuse[key[1]])
        try:
            check_document(wanted, self.cluster.version)
        except jsonschema.ValidationError as error:
            raise Refused(422, "Invalid", error.message) from None
        return self.cluster.apply(key, wanted, self.query)

    def _delete(self) -> Any:
        key, _ = self._key()
        if key not in self.cluster.objects:
            raise Refused(404, "NotFound", f'{key[1]} "{key[2]}" not found')
        return self.cluster.delete(key, json.loads(self.sent or b"{}"))

    def _proxied(self) -> Any:
        """Pass a request on to a pod of a Service, as `services/[SCHEME:]NAME:PORT/proxy/` does.

        What says who asks the API server is not for the pod.
        """
        at = self.segments.index("proxy")
        namespace, named = self.segments[at - 3], self.segments[at - 1]
        *_, name, port = named.split(":")
        service = self.cluster.objects.get((namespace, "Service", name))
        if service is None:
            raise Refused(404, "NotFound", f'services "{name}" not found')
        ports = service["spec"]["ports"]
        if port not in {str(one.get(key)) for one in ports for key in ("name", "port")}:
            raise Refused(503, "ServiceUnavailable", f'no service port "{port}" found')
        if not self.cluster.answer:
            raise Refused(503, "ServiceUnavailable", "no endpoints available for service")
        if not self.cluster.pod:
            return self.cluster.answer
        place = urlsplit(self.cluster.pod)
        assert place.hostname is not None
        pod = HTTPConnection(place.hostname, place.port or 80)
        said = {name: value for name, value in self.headers.items() if name not in _OURS}
        pod.request(self.command, f"/{'/'.join(self.segments[at + 1 :])}", self.sent, said)
        self._stream(pod.getresponse())
        return None

    def _stream(self, answer: HTTPResponse) -> None:
        kind = answer.headers.get("Content-Type", "")
        self.head(answer.status, {"Content-Type": kind, "Transfer-Encoding": "chunked"})
        while piece := answer.read1():
            self.chunk(piece)
        self.chunk(b"")


def _leaves(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(found, dict) and found:
        for name, value in found.items():
            yield from _leaves(value, (*path, name))
    elif _by_name(found):
        for one in found:
            yield from _leaves(one, (*path, f"name={one['name']}"))
    else:
        yield path, found


def _by_name(found: Any) -> bool:
    entries = isinstance(found, list) and found
    return bool(entries) and all(isinstance(one, dict) and "name" in one for one in found)


def _put(made: Any, path: tuple[str, ...], value: Any) -> None:
    for number, name in enumerate(path):
        last = number == len(path) - 1
        if name.startswith("name="):
            found = next((one for one in made if one["name"] == name[5:]), None)
            if found is None:
                found = {"name": name[5:]}
                made.append(found)
            made = found
        elif last:
            made[name] = value
        else:
            empty: Any = [] if path[number + 1].startswith("name=") else {}
            made = made.setdefault(name, empty)


def _remove(made: Any, path: tuple[str, ...]) -> None:
    """Remove a field, and what is empty without it."""
    for name in path[:-1]:
        if name.startswith("name="):
            made = next((one for one in made if one["name"] == name[5:]), {})
        else:
            made = made.get(name, {})
    if path[-1] == "name" or made.pop(path[-1], None) is None:
        return


def _spec(found: dict[str, Any]) -> Any:
    return {key: one for key, one in found.items() if key not in ("metadata", "status")}
