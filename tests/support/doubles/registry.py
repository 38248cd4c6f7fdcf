"""A small, strict registry that misbehaves on request.

It takes what the specification allows and nothing else: whatever a client does
wrong is a complaint, and `complaints` must be empty at the end of a test.  Its
storage host is another origin: it must never see credentials.

Everything it holds can be looked at: `blobs`, `manifests`, open `uploads`, the
requests in `seen` with the bytes of each body that arrived, and `received`, the
bytes that were taken for each blob.  It is addressed by `Host`, so that it can
stand behind a `FaultProxy`, which breaks what the quirks here do not.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.support.doubles.http import Handler, Running, Server

USER, PASSWORD, IDENTITY_TOKEN = "alice", "correct horse", "refresh me"
_UPLOAD = re.compile(r"/v2/(?P<repository>.+)/blobs/uploads/(?P<session>[0-9a-f]+)")
_UPLOADS = re.compile(r"/v2/(?P<repository>.+)/blobs/uploads/")
_BLOB = re.compile(r"/v2/(?P<repository>.+)/blobs/(?P<digest>sha256:[0-9a-f]{64})")
_TAGS = re.compile(r"/v2/(?P<repository>.+)/tags/list")
_REFERRERS = re.compile(r"/v2/(?P<repository>.+)/referrers/(?P<digest>sha256:[0-9a-f]{64})")
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_MANIFEST = re.compile(r"/v2/(?P<repository>.+)/manifests/(?P<pointer>[^/]+)")
_KINDS = {
    "token": re.compile("/token"),
    "ping": re.compile("/v2/"),
    "uploads": _UPLOADS,
    "upload": _UPLOAD,
    "blob": _BLOB,
    "tags": _TAGS,
    "referrers": _REFERRERS,
    "manifest": _MANIFEST,
    "api": re.compile("/api/.*"),  # another than the specification's: only rules answer
}


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(kw_only=True)
class Rule:
    """What is answered otherwise than it should be to the requests that it is for.

    In headers `{storage}` and `{path}` stand for the storage host and the request's path.
    """

    on: str  # `METHOD KIND`: ping, uploads, upload, blob, manifest, tags, referrers, token, api
    instead: bool = False  # nothing is done, and this is the answer
    early: bool = False  # and it comes before the body is read
    lost: bool = False  # it is done, and the answer is lost
    storage: bool = False  # only at the storage host, else only at the registry
    containing: str = ""  # in the path
    status: int = 0  # 0: as it is
    headers: dict[str, str] = field(default_factory=dict)
    drop: list[str] = field(default_factory=list)  # headers
    body: str = ""
    times: int = 1 << 30


@dataclass(kw_only=True)
class Quirks:
    """What the registry does differently. Counters go down to 0 as they are used."""

    auth: str = ""  # `basic` or `bearer`
    account: tuple[str, str] = (USER, PASSWORD)  # who may come in
    service: str = "fake"  # its name at its token service
    token_uses: int = 1_000_000  # requests that a token is good for
    refusals_lost: bool = False  # what refuses a token of a PATCH is lost with the connection
    token_moves: bool = False  # the token service redirects to another host
    forbidden: frozenset[tuple[str, str]] = frozenset()  # (repository, action)
    mounts: bool = True
    location: str = "absolute"  # or `relative`, `other-host`
    chunks: bool = False  # PATCHes may say which range they are
    no_patch: int = 0  # the answer to every PATCH, without a code: it takes none
    no_stream: int = 0  # the answer to every PATCH without a range
    puts: bool = True  # the closing PUT may carry the blob
    one_range: bool = False  # the first range is taken for the whole blob
    chunk_lengths: dict[str, str] = field(default_factory=dict)  # headers of a new upload
    longest_patch: int = 1 << 40
    repositories: frozenset[str] | None = None  # all there are; None: made when wanted
    referrers: bool = False  # the API of version 1.1
    listed: bytes = b""  # the answer whatever referrers are asked for
    no_artifacts: bool = False  # a manifest with a subject is refused
    no_file_systems: bool = False  # a manifest with layers of types that it does not know is
    forgets: int = 0  # uploads that are unknown when they should go on
    patch_answers: list[int] = field(default_factory=list)  # statuses, given early, then closed
    patch_resets: int = 0
    commit_silent: int = 0  # commits that are done and not answered
    commit_statuses: list[int] = field(default_factory=list)  # refusals, before anything is done
    busy: int = 0  # requests answered 429
    digest_header: str = ""  # said instead of the true one
    blobs_elsewhere: bool = False  # GET is redirected to the storage host
    ranges: bool = True
    blob_cuts: int = 0  # GETs that break off in the middle
    damage: bool = False  # blobs come back with a wrong byte
    damage_manifests: bool = False  # those that are asked for by digest come back otherwise
    immutable_tags: bool = False
    rules: list[Rule] = field(default_factory=list)


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str  # with the query
    authorization: str
    storage: bool  # it came to the storage host
    received: int = 0  # bytes of the body


class FakeRegistry(Running):
    """Runs while its `with` block does."""

    def __init__(self, tls: ssl.SSLContext | None = None, **quirks: object) -> None:
        self.quirks = Quirks(**quirks)  # type: ignore[arg-type]
        self.quirks.rules = [Rule(**vars(one)) for one in self.quirks.rules]  # times count down
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.seen: list[Seen] = []
        self.complaints: list[str] = []
        self.lock = threading.RLock()
        self.uploads: dict[str, tuple[str, bytes]] = {}  # session → state it expects, bytes
        self.received: Counter[str] = Counter()  # digest → bytes taken in finished uploads
        self.tokens: dict[str, set[tuple[str, str]]] = {}  # token → scopes
        self.uses_left: Counter[str] = Counter()  # of tokens
        self.tokens_given = 0
        self._scheme = "https" if tls else "http"
        self.servers = [_Server(_Handler, self) for _ in range(2)]
        self.servers[1].storage = True
        for server in self.servers if tls else ():
            server.socket = tls.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.host, self.storage_host = (server.host for server in self.servers)
        self.url, self.storage_url = (f"{self._scheme}://{one.host}" for one in self.servers)

    def __exit__(self, kind: object, *rest: object) -> None:
        super().__exit__(kind, *rest)
        if kind is None:
            assert self.complaints == []

    def put(self, repository: str, data: bytes) -> str:
        """Have a blob."""
        self.blobs[repository, sha256(data)] = data
        return sha256(data)

    def put_manifest(self, repository: str, pointer: str, data: bytes, media_type: str) -> str:
        """Have a manifest, under its digest and under `pointer`."""
        for name in (sha256(data), pointer):
            self.manifests[repository, name] = (media_type, data)
        return sha256(data)

    def tagged(self, repository: str, tag: str) -> str:
        """The digest that a tag points to; nothing when there is no such tag."""
        found = self.manifests.get((repository, tag))
        return sha256(found[1]) if found else ""

    def is_complete(self, repository: str, tag: str) -> bool:
        """Whether the tag names an image all of whose blobs are here and right."""
        document = json.loads(self.manifests[repository, tag][1])
        return all(
            sha256(self.blobs.get((repository, entry["digest"]), b"")) == entry["digest"]
            for entry in (document["config"], *document["layers"])
        )

    def requests(self, method: str, containing: str = "") -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method and containing in seen.path]


class _Server(Server):
    storage = False  # another origin, which must never see credentials


class _Handler(Handler):
    timeout = 20
    server: _Server
    seen: Seen
    broken = False  # the body ended before its end
    kind = ""  # of what the path names
    rule: Rule | None = None  # for the answer

    def do_GET(self) -> None:
        self._route()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _route(self) -> None:
        fake, path = self.server.double, urlsplit(self.path).path
        authorization = self.headers.get("Authorization", "")
        self.seen = Seen(self.command, self.path, authorization, self.server.storage)
        with fake.lock:
            fake.seen.append(self.seen)
        if self.server.storage and authorization and path != "/token":
            self._complain("credentials were sent to another host")
        matches = {kind: pattern.fullmatch(path) for kind, pattern in _KINDS.items()}
        self.kind, match = next(((k, m) for k, m in matches.items() if m), ("", None))
        self.rule = None
        if self.kind == "api" and authorization not in ("", _basic(fake.quirks.account)):
            self._complain("an API gets Basic, or nothing")
        if self.kind in ("token", "api"):
            return self._answer(match)
        if fake.quirks.busy:
            fake.quirks.busy -= 1
            return self.say(429, {"Retry-After": "7"})
        if self.server.storage or self._allowed():
            return self._answer(match)
        return None

    def _answer(self, match: re.Match[str] | None) -> None:
        """Do what is asked for, unless a rule says otherwise."""
        fake = self.server.double
        with fake.lock:
            self.rule = next(filter(self._is_for_this, fake.quirks.rules), None)
            if self.rule:
                self.rule.times -= 1
        if self.rule and self.rule.instead:
            self.close_connection = self.rule.early
            if not self.rule.early:
                self._read_body()
            return self.say(self.rule.status, {}, self.rule.body.encode())
        if match is None or self.kind == "api":
            return self.say(404)
        doing = {
            "token": self._token,
            "ping": lambda: self.say(200, {}, b"{}"),
            "uploads": self._start,
            "upload": self._upload,
            "blob": self._blob,
            "tags": self._tags,
            "referrers": self._referrers,
            "manifest": self._manifest,
        }
        return doing[self.kind](*match.groups())

    def _is_for_this(self, rule: Rule) -> bool:
        return (
            rule.on in (f"{self.command} {self.kind}", f"* {self.kind}", "* *")
            and rule.times > 0
            and rule.storage == self.server.storage
            and rule.containing in self.path
        )

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        rule = self.rule
        if rule is None:
            return super().head(status, headers)
        if rule.lost:
            return self._reset()
        places = {"{storage}": self.server.double.storage_url, "{path}": self.path}
        told = dict(headers)
        for name, value in rule.headers.items():
            for place, what in places.items():
                value = value.replace(place, what)
            told[name] = value
        if "Content-Length" in rule.drop:
            told["Connection"] = "close"
            self.close_connection = True
        return super().head(
            rule.status or status, {k: v for k, v in told.items() if k not in rule.drop}
        )

    # Credentials

    def _allowed(self) -> bool:
        quirks = self.server.double.quirks
        given = self.headers.get("Authorization", "")
        if not quirks.auth:
            if given:
                self._complain("credentials were sent though nobody asked")
            return True
        wanted = self._wanted()
        if quirks.auth == "basic":
            if given == _basic(quirks.account):
                if not wanted & quirks.forbidden:
                    return True
                self._refuse(403, {})
                return False
            self._refuse(401, {"WWW-Authenticate": 'Basic realm="fake, with a comma"'})
            return False
        with self.server.double.lock:
            fake, token = self.server.double, given.removeprefix("Bearer ")
            granted = fake.tokens.get(token)
            if granted is not None and wanted <= granted and fake.uses_left[token]:
                fake.uses_left[token] -= 1
                return True
        challenge = f'Bearer realm="{self.server.double.storage_url}/token"'
        challenge += f',service="{self.server.double.quirks.service}"'
        if wanted:
            repository, actions = next(iter(wanted))[0], ",".join(sorted(a for _, a in wanted))
            challenge += f',scope="repository:{repository}:{actions}"'
        if granted is not None:
            challenge += ',error="insufficient_scope"'
        self._refuse(401, {"WWW-Authenticate": challenge})
        return False

    def _refuse(self, status: int, headers: dict[str, str]) -> None:
        """Answer before the body was read, as registries do."""
        if self.server.double.quirks.refusals_lost and self.command == "PATCH":
            return self._reset()
        self.close_connection = True  # said, or the client's next request meets the end
        code = "UNAUTHORIZED" if status == 401 else "DENIED"
        body = json.dumps({"errors": [{"code": code}]}).encode()
        self.say(status, {**headers, "Connection": "close"}, body)
        return None

    def _wanted(self) -> set[tuple[str, str]]:
        parts = urlsplit(self.path)
        match = re.match(r"/v2/(.+)/(?:blobs|manifests|tags)/", parts.path)
        if not match:
            return set()
        wanted = {(match[1], "pull")}
        if self.command not in ("GET", "HEAD"):
            wanted.add((match[1], "push"))
        wanted.update((source, "pull") for source in parse_qs(parts.query).get("from", ()))
        return wanted

    def _token(self) -> None:
        fake = self.server.double
        form = parse_qs(self._read_body().decode())
        if fake.quirks.token_moves and self.server.storage:
            return self.say(307, {"Location": f"{fake.url}{self.path}"})
        given = self.headers.get("Authorization", "") or form.get("refresh_token", [""])[0]
        if given and given not in (_basic(fake.quirks.account), IDENTITY_TOKEN):
            return self._refuse(401, {})
        granted = set()
        query = parse_qs(urlsplit(self.path).query)
        scopes = [part for text in form.get("scope", ()) for part in text.split()]
        for scope in (*query.get("scope", ()), *scopes):
            _, repository, actions = scope.split(":")
            granted |= {(repository, action) for action in actions.split(",")}
        if not given:
            granted = {(repository, action) for repository, action in granted if action == "pull"}
        with fake.lock:
            fake.tokens_given += 1
            token = f"token-{fake.tokens_given}-{secrets.token_hex(4)}"
            fake.tokens[token] = granted - fake.quirks.forbidden
            fake.uses_left[token] = fake.quirks.token_uses
        self.say(200, {}, json.dumps({"token": token, "expires_in": 300}).encode())
        return None

    # Uploads

    def _start(self, repository: str) -> None:
        fake = self.server.double
        if self.command != "POST":
            return self._complain(f"{self.command} to the uploads")
        self._read_body()
        query = parse_qs(urlsplit(self.path).query)
        if "mount" in query and fake.quirks.mounts:
            digest, source = query["mount"][0], query.get("from", [""])[0]
            if (source, digest) in fake.blobs:
                fake.blobs[repository, digest] = fake.blobs[source, digest]
                where = f"{self._here()}/v2/{repository}/blobs/{digest}"
                return self.say(201, {"Location": where, "Docker-Content-Digest": digest})
        made = fake.quirks.repositories
        if made is not None and repository not in made:
            return self.say(404, {}, b'{"errors":[{"code":"NAME_UNKNOWN"}]}')
        session = secrets.token_hex(8)
        location = self._next(repository, session, b"")
        return self.say(202, {"Location": location, **fake.quirks.chunk_lengths})

    def _next(self, repository: str, session: str, data: bytes) -> str:
        """The next address of an upload. Its state changes, so old addresses do not work."""
        fake = self.server.double
        state = secrets.token_hex(4) + "=="
        with fake.lock:
            fake.uploads[session] = (state, data)
        path = f"/v2/{repository}/blobs/uploads/{session}?{urlencode({'_state': state})}"
        base = {"absolute": self._here(), "relative": "", "other-host": fake.storage_url}
        return base[fake.quirks.location] + path

    def _here(self) -> str:
        """Our address as the client knows it, which may be a proxy's."""
        return f"{self.server.double._scheme}://{self.headers['Host']}"

    def _upload(self, repository: str, session: str) -> None:
        fake = self.server.double
        query = parse_qs(urlsplit(self.path).query)
        with fake.lock:
            if fake.quirks.forgets and self.command in ("PATCH", "PUT"):
                fake.quirks.forgets -= 1
                fake.uploads.pop(session, None)
        state, data = fake.uploads.get(session, ("", b""))
        if query.get("_state", [""])[0] != state or not state:
            self._read_body()
            return self.say(404, {}, b'{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN"}]}')
        if self.command == "PATCH":
            return self._patch(repository, session, data)
        if self.command == "GET":
            headers = {"Location": self._next(repository, session, data), "Range": _range(data)}
            return self.say(204, headers)
        if self.command == "PUT":
            return self._commit(repository, session, data, query["digest"][0])
        if self.command == "DELETE":
            with fake.lock:
                del fake.uploads[session]
            return self.say(204)
        return self._complain(f"{self.command} to an upload")

    def _patch(self, repository: str, session: str, before: bytes) -> None:
        fake, quirks = self.server.double, self.server.double.quirks
        refusal = quirks.no_patch or (0 if "Content-Range" in self.headers else quirks.no_stream)
        if refusal:
            self.close_connection = True
            return self.say(refusal)
        in_chunks = self.headers.get("Transfer-Encoding") == "chunked"
        if "Content-Length" not in self.headers and not in_chunks:
            return self._complain("a PATCH without Content-Length")
        length = 1 << 40 if in_chunks else int(self.headers["Content-Length"])
        if not in_chunks and length > quirks.longest_patch:
            self.close_connection = True
            return self.say(413)
        if "Content-Range" in self.headers:
            if not quirks.chunks:
                return self._complain("a streaming PATCH has no Content-Range")
            expected = f"{len(before)}-{len(before) + length - 1}"
            if self.headers["Content-Range"] != expected:
                self._read_body()
                location = self._next(repository, session, before)
                return self.say(416, {"Location": location, "Range": _range(before)})
        with fake.lock:
            status = quirks.patch_answers.pop(0) if quirks.patch_answers else 0
            reset = not status and quirks.patch_resets > 0
            quirks.patch_resets -= reset
            if status or reset:
                fake.uploads.pop(session)
        if status or reset:
            most = min(100_000, length)
            _ = self._read_chunks(most) if in_chunks else self._read(most)
        if status:
            body = b'{"errors":[{"code":"SIZE_INVALID","message":"secret-of-the-server"}]}'
            self.say(status, {"Connection": "close"}, body)
            self.close_connection = True
            return None
        if reset:
            return self._reset()
        sent = self._read_body()
        data = before + sent
        if len(sent) > quirks.longest_patch:
            return self.say(413)
        if self.broken or (len(sent) < length and not in_chunks):
            self.close_connection = True
            with fake.lock:
                del fake.uploads[session]
            return None
        location = self._next(repository, session, data)
        status = 201 if quirks.one_range and "Content-Range" in self.headers else 202
        return self.say(status, {"Location": location, "Range": _range(data)})

    def _commit(self, repository: str, session: str, data: bytes, digest: str) -> None:
        fake, quirks = self.server.double, self.server.double.quirks
        body = self._read_body()
        if body and not (quirks.puts and not data):
            return self._complain("a closing PUT with a body")
        data = data or body
        with fake.lock:
            refusal = quirks.commit_statuses.pop(0) if quirks.commit_statuses else 0
        if refusal:
            return self.say(refusal)
        if sha256(data) != digest:
            return self.say(400, {}, b'{"errors":[{"code":"DIGEST_INVALID"}]}')
        with fake.lock:
            del fake.uploads[session]
            fake.blobs[repository, digest] = data
            fake.received[digest] += len(data)
        if quirks.commit_silent:
            quirks.commit_silent -= 1
            return self._reset()
        return self.say(
            201,
            {
                "Location": f"{self._here()}/v2/{repository}/blobs/{digest}",
                "Docker-Content-Digest": quirks.digest_header or digest,
            },
        )

    # Blobs and manifests

    def _blob(self, repository: str, digest: str) -> None:
        fake, quirks = self.server.double, self.server.double.quirks
        data = fake.blobs.get((repository, digest))
        if data is None:
            return self.say(404)
        if quirks.blobs_elsewhere and self.command == "GET" and not self.server.storage:
            return self.say(307, {"Location": f"{fake.storage_url}{self.path}"})
        if quirks.damage:
            data = data[:-1] + b"!"
        headers = {"Docker-Content-Digest": digest, "Content-Type": "application/octet-stream"}
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        status, first = 200, 0
        if wanted and quirks.ranges:
            status, first = 206, int(wanted[1])
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        if self.command == "GET" and quirks.blob_cuts:
            quirks.blob_cuts -= 1
            self.head(status, {**headers, "Content-Length": str(len(data) - first)})
            self.wfile.write(data[first : first + (len(data) - first) // 2])
            self.close_connection = True
            return None
        return self.say(status, headers, data[first:])

    def _tags(self, repository: str) -> None:
        held = self.server.double.manifests
        tags = sorted(tag for name, tag in held if name == repository and ":" not in tag)
        body = json.dumps({"name": repository, "tags": tags}).encode()
        self.say(200 if tags else 404, {}, body)

    def _manifest(self, repository: str, pointer: str) -> None:
        fake, quirks = self.server.double, self.server.double.quirks
        if self.command == "PUT":
            data = self._read_body()
            return self._put_manifest(repository, pointer, data)
        if (repository, pointer) not in fake.manifests:
            return self.say(404, {}, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        media_type, data = fake.manifests[repository, pointer]
        if media_type not in self.headers.get("Accept", ""):
            self._complain(f"{media_type} is not accepted")
        digest = quirks.digest_header or sha256(data)
        headers = {"Content-Type": media_type, "Docker-Content-Digest": digest}
        if quirks.damage_manifests and ":" in pointer:
            data += b"\n"
        return self.say(200, headers, data)

    def _put_manifest(self, repository: str, pointer: str, data: bytes) -> None:
        fake = self.server.double
        digest = sha256(data)
        if ":" in pointer and pointer != digest:
            return self.say(400, {}, b'{"errors":[{"code":"DIGEST_INVALID"}]}')
        exists = (repository, pointer) in fake.manifests
        if fake.quirks.immutable_tags and exists and ":" not in pointer:
            return self.say(400, {}, b'{"errors":[{"code":"TAG_INVALID"}]}')
        document = json.loads(data)
        if fake.quirks.no_artifacts and "subject" in document:
            return self.say(400, {}, b'{"errors":[{"code":"MANIFEST_INVALID"}]}')
        types = {layer["mediaType"] for layer in document.get("layers", ())}
        if fake.quirks.no_file_systems and "application/vnd.erofs.layer.v1" in types:
            return self.say(400, {}, b'{"errors":[{"code":"MANIFEST_INVALID"}]}')
        entries = document.get("manifests", ())
        for entry in entries:
            if (repository, entry["digest"]) not in fake.manifests:
                return self.say(404, {}, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        for entry in () if entries else (document["config"], *document["layers"]):
            if (repository, entry["digest"]) not in fake.blobs:
                return self.say(404, {}, b'{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN"}]}')
        with fake.lock:
            fake.manifests[repository, pointer] = (self.headers["Content-Type"], data)
            fake.manifests[repository, digest] = (self.headers["Content-Type"], data)
        headers = {"Location": self.path, "Docker-Content-Digest": digest}
        if fake.quirks.referrers and "subject" in document:
            headers["OCI-Subject"] = document["subject"]["digest"]
        return self.say(201, headers)

    def _referrers(self, repository: str, digest: str) -> None:
        fake = self.server.double
        if not fake.quirks.referrers:
            return self.say(404, {}, b"404 page not found")
        entries = []
        for (name, pointer), (media_type, data) in sorted(fake.manifests.items()):
            document = json.loads(data)
            subject = document.get("subject", {}).get("digest")
            if (name, subject) == (repository, digest) and pointer == sha256(data):
                entry = {"mediaType": media_type, "digest": pointer, "size": len(data)}
                kind = document.get("artifactType") or document["config"]["mediaType"]
                noted = {"annotations": found} if (found := document.get("annotations")) else {}
                entries.append({**entry, "artifactType": kind, **noted})
        index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": entries}
        body = fake.quirks.listed or json.dumps(index).encode()
        return self.say(200, {"Content-Type": _INDEX_TYPE}, body)

    # HTTP

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            return self._read_chunks()
        return self._read(int(self.headers.get("Content-Length") or 0))

    def _read_chunks(self, most: int = 1 << 40) -> bytes:
        """Read a body in HTTP's chunks, or `most` bytes of it: more may never come."""
        data = bytearray()
        try:
            while length := int(self.rfile.readline(), 16):
                data += self._read(min(length, most - len(data)))
                if len(data) >= most:
                    return bytes(data)
                self.rfile.readline()
            self.rfile.readline()
        except (OSError, ValueError):
            self.broken = True
        return bytes(data)

    def _read(self, count: int) -> bytes:
        """Read so many bytes of the body, or what there is of them when the line breaks."""
        data = bytearray()
        with suppress(OSError):
            while piece := self.rfile.read(min(count - len(data), 64 * 1024)):
                data += piece
                self.seen.received += len(piece)
        return bytes(data)

    def _complain(self, what: str) -> None:
        with self.server.double.lock:
            self.server.double.complaints.append(what)
        self.say(400)
        self.close_connection = True

    def _reset(self) -> None:
        """Close so that the other side sees a reset, not an end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


def _range(data: bytes) -> str:
    return f"0-{max(len(data) - 1, 0)}"


def _basic(account: tuple[str, str]) -> str:
    return "Basic " + base64.b64encode(":".join(account).encode()).decode()
