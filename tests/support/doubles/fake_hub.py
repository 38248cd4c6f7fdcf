"""A model hub on the loopback interface: what huggingface-hub's client asks for, no more.

Large files answer as on the real hub: a redirect that carries the digest and
size of the linked content, which is then served in ranges.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.doubles.http import Handler, Running, Server

Headers = Mapping[str, str]
LFS_SUFFIXES = (".safetensors", ".bin", ".model", ".gguf", ".pt", ".pth")


@dataclass(frozen=True)
class HubFile:
    """One file of a commit, in memory or on disk."""

    content: bytes | Path
    lfs: bool

    @property
    def data(self) -> bytes:
        return self.content.read_bytes() if isinstance(self.content, Path) else self.content

    @cached_property
    def size(self) -> int:
        return len(self.data)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def git_sha1(self) -> str:
        return hashlib.sha1(b"blob %d\0" % self.size + self.data).hexdigest()


@dataclass
class Repository:
    """One model: commits, names for them, and who may see it."""

    commits: dict[str, dict[str, HubFile]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False  # nobody has accepted its conditions
    private: bool = False  # shown to holders of the token only


@dataclass(frozen=True)
class Seen:
    """One request, as far as who sent what where goes."""

    host: str
    path: str
    authorization: str
    range: str


class FakeHub(Running):
    """Use as a context manager; `url` is what HF_ENDPOINT would hold."""

    def __init__(self, *, token: str = "hf_right") -> None:
        self.token = token
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []  # `GET /org/name/resolve/…`
        self.failing: dict[str, int] = {}  # part of a path → status to answer
        self.failing_headers: dict[str, str] = {}  # of these answers
        self.damaged: dict[str, int] = {}  # file → how many more times to serve wrong bytes
        self.names_only = False  # a mirror that does not tell sizes
        self.ranges = True  # a server without them sends the whole file
        self.cut_short: int | None = None  # bytes that a range is cut to
        self.drops: dict[str, list[int]] = {}  # file → bytes after which connections break off
        self.busy: dict[str, list[str]] = {}  # file → `Retry-After` of answers 429
        self.seen: list[Seen] = []
        self.sent = 0  # bytes of all answers
        self.servers = [Server(_Handler, self)]
        self.url = self.servers[0].url
        # Another host name, as a content network has: the client must not send its token there.
        self.storage_url = f"http://localhost:{self.servers[0].server_port}"

    def add(
        self,
        name: str,
        files: Path | Mapping[str, bytes],
        *,
        revision: str = "main",
        gated: bool = False,
        private: bool = False,
    ) -> str:
        """Publish a commit of a model and return its hash."""
        if isinstance(files, Path):
            found = [path for path in sorted(files.rglob("*")) if path.is_file()]
            held: dict[str, bytes | Path] = {
                path.relative_to(files).as_posix(): path for path in found
            }
        else:
            held = dict(files)
        commit_files = {
            path: HubFile(content, lfs=path.endswith(LFS_SUFFIXES))
            for path, content in held.items()
        }
        digests = [f"{path} {file.sha256}" for path, file in sorted(commit_files.items())]
        commit = hashlib.sha1("\n".join(digests).encode()).hexdigest()
        repository = self.repositories.setdefault(name, Repository())
        repository.commits[commit] = commit_files
        repository.refs[revision] = commit
        repository.gated, repository.private = gated, private
        return commit

    def asked(self, part: str) -> list[str]:
        """The requests whose path holds `part`."""
        return [request for request in self.requests if part in request]


class _Handler(Handler):
    server: Server

    def do_GET(self) -> None:
        self._route()

    do_HEAD = do_GET

    def say(self, status: int, headers: Mapping[str, str] = {}, body: bytes = b"") -> None:
        self.server.double.sent += 0 if self.command == "HEAD" else len(body)
        super().say(status, headers, body)

    def _route(self) -> None:
        hub, path = self.server.double, unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        sent = (self.headers.get(name, "") for name in ("Host", "Authorization", "Range"))
        host, authorization, wanted = sent
        hub.seen.append(Seen(host, path, authorization, wanted))
        for part, status in hub.failing.items():
            if part in path:
                return self.say(status, hub.failing_headers)
        if found := re.fullmatch(r"/blobs/([0-9a-f]{64})", path):
            return self._blob(found[1])
        found = re.fullmatch(
            r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path
        ) or re.fullmatch(r"/([^/]+/[^/]+)/(resolve)/(.+)", path)
        if not found:
            return self._fail(404, "", "no such page")
        name, what, rest = found[1], found[2], found[3] or "main"
        repository = hub.repositories.get(name)
        if repository is None or (repository.private and not self._authorized()):
            return self._fail(401, "RepoNotFound", "Repository not found")
        if self.headers.get("Authorization") and not self._authorized():
            return self._fail(401, "", "Invalid credentials in Authorization header")
        if repository.gated and what == "resolve":
            return self._fail(403, "GatedRepo", "Access to this model is restricted")
        revision, _, file = rest.partition("/") if what == "resolve" else (rest, "", "")
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            return self._fail(404, "RevisionNotFound", "Invalid rev id")
        files = repository.commits[commit]
        if what == "resolve":
            return self._resolve(commit, files.get(file))
        return self._json(_tree(files) if what == "tree" else _model(hub, name, commit, files))

    def _resolve(self, commit: str, file: HubFile | None) -> None:
        if file is None:
            return self._fail(404, "EntryNotFound", "Entry not found")
        if not file.lfs:
            headers = {"X-Repo-Commit": commit, "ETag": f'"{file.git_sha1}"'}
            return self.say(200, headers, file.data)
        headers = {
            "X-Repo-Commit": commit,
            "X-Linked-Etag": f'"{file.sha256}"',
            "X-Linked-Size": str(file.size),
            "Location": f"{self.server.double.storage_url}/blobs/{file.sha256}",
        }
        return self.say(302, headers)

    def _blob(self, sha256: str) -> None:
        hub = self.server.double
        path, file = next(
            (path, file)
            for repository in hub.repositories.values()
            for files in repository.commits.values()
            for path, file in files.items()
            if file.sha256 == sha256
        )
        if self.command == "GET" and hub.busy.get(path):
            return self.say(429, {"Retry-After": hub.busy[path].pop(0)})
        data = file.data
        if self.command == "GET" and hub.damaged.get(path, 0) > 0:
            hub.damaged[path] -= 1
            data = data[:-1] + bytes([data[-1] ^ 0xFF])
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and hub.ranges:
            first, last = int(wanted[1]), int(wanted[2] or len(data) - 1)
            part = data[first : last + 1][: hub.cut_short]
            place = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
            return self._content(206, place, part, _next_drop(hub, path, part))
        return self._content(200, {"ETag": f'"{sha256}"'}, data, _next_drop(hub, path, data))

    def _content(self, status: int, headers: Headers, data: bytes, drop: int | None) -> None:
        """Send content, or what comes before the place where the connection breaks off."""
        if drop is None or self.command == "HEAD":
            return self.say(status, headers, data)
        self.head(status, {**headers, "Content-Length": str(len(data))})
        self.wfile.write(data[:drop])
        self.close_connection = True
        return None

    def _authorized(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.server.double.token}"

    def _json(self, value: object) -> None:
        self.say(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _fail(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code} if code else {}
        self.say(status, {**headers, "X-Error-Message": message})


def _next_drop(hub: FakeHub, path: str, body: bytes) -> int | None:
    """Where to break off. Short answers, which are headers, are let through."""
    drops = hub.drops.get(path)
    return drops.pop(0) if drops and len(body) > drops[0] else None


def _model(hub: FakeHub, name: str, commit: str, files: Mapping[str, HubFile]) -> dict[str, object]:
    siblings = []
    for path, file in files.items():
        told = {"size": file.size, "blobId": file.git_sha1, **_linked("sha256", file)}
        siblings.append({"rfilename": path, **({} if hub.names_only else told)})
    return {"_id": "0", "id": name, "modelId": name, "sha": commit, "siblings": siblings}


def _tree(files: Mapping[str, HubFile]) -> list[dict[str, object]]:
    return [
        {"type": "file", "oid": file.git_sha1, "size": file.size, "path": path}
        | _linked("oid", file)
        for path, file in files.items()
    ]


def _linked(key: str, file: HubFile) -> dict[str, object]:
    """Tell of the content that is kept elsewhere."""
    linked = {key: file.sha256, "size": file.size, "pointerSize": 134}
    return {"lfs": linked} if file.lfs else {}
