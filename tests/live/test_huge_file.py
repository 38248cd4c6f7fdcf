"""A weights file over 8 GiB, where tar headers change their form, on its way into a registry."""

from __future__ import annotations

import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.commandline import Packager
from tests.support.doubles.models import safetensors_bytes, write_model

pytestmark = pytest.mark.live

ROWS, COLUMNS = 1_050_000, 4096  # in 16 bits: 8.6 GB, a little over 8 GiB


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose weights are a hole in a file."""
    path = write_model(
        tmp_path / "model", shards=1, config={"hidden_size": COLUMNS, "vocab_size": ROWS}
    )
    size = ROWS * COLUMNS * 2
    assert size > 8 * 1024**3
    header = {
        "lm_head.weight": {"dtype": "BF16", "shape": [ROWS, COLUMNS], "data_offsets": [0, size]}
    }
    framed = safetensors_bytes(header)
    with (path / "model.safetensors").open("wb") as stream:
        stream.write(framed)
        stream.truncate(len(framed) + size)
    return path


def test_a_file_over_eight_gib_arrives_whole(packager: Packager, model: Path) -> None:
    with discarding_registry() as (host, kept):
        done = packager(
            *("build", "--model", str(model), "--instance", "ml.g5.12xlarge", "--family", "vllm"),
            *("--base", "scratch", "--quiet", "--format", "json"),
            *("--max-total-tokens", "256", "--output", f"{host}/huge:1"),
        )

    assert done.status == 0, done.err
    layers = {layer["digest"]: layer for layer in json.loads(done.out)["layers"]}
    digest = next(digest for digest, layer in layers.items() if layer["role"] == "weights")
    size, members = kept[digest]
    assert size == layers[digest]["size"]
    expected = (model / "model.safetensors").stat().st_size
    assert members["opt/packager/model/model.safetensors"] == expected


@contextmanager
def discarding_registry() -> Iterator[tuple[str, dict[str, tuple[int, dict[str, int]]]]]:
    """A registry that hashes what it is given, reads it as a tar, and keeps neither.

    What it gives out: for each blob its size, and the files in it with theirs.
    """
    kept: dict[str, tuple[int, dict[str, int]]] = {}
    uploads: dict[str, tuple[str, int, dict[str, int]]] = {}
    manifests: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None: ...

        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            if "/manifests/" in self.path and name in manifests:
                body = manifests[name]
                digest = "sha256:" + hashlib.sha256(body).hexdigest()
                kind = "application/vnd.oci.image.manifest.v1+json"
                return self._answer(200, body, digest=digest, kind=kind)
            if "/blobs/" in self.path and name in kept:
                return self._answer(200, size=kept[name][0], digest=name)
            return self._answer(200 if self.path == "/v2/" else 404)

        do_HEAD = do_GET

        def do_POST(self) -> None:
            name = str(len(uploads))
            uploads[name] = ("", 0, {})
            self._answer(202, location=f"{self.path.partition('?')[0]}{name}")

        def do_PATCH(self) -> None:
            body = _Hashed(self.rfile, self.headers.get("Content-Length"))
            members = {}
            try:
                with tarfile.open(fileobj=body, mode="r|", bufsize=1 << 20) as archive:  # type: ignore[call-overload]
                    members = {member.name: member.size for member in archive}
            except tarfile.ReadError:
                pass  # the configuration
            while body.read(1 << 20):
                pass
            name = self.path.rpartition("/")[2]
            uploads[name] = (body.digest, body.taken, members)
            self._answer(202, location=self.path)

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = urlsplit(self.path)
            name = parts.path.rpartition("/")[2]
            if "/manifests/" in parts.path:
                manifests[name] = body
                manifests["sha256:" + hashlib.sha256(body).hexdigest()] = body
                return self._answer(201)
            digest, size, members = uploads[name]
            if parse_qs(parts.query)["digest"] != [digest]:
                return self._answer(400)
            kept[digest] = size, members
            return self._answer(201, digest=digest)

        def do_DELETE(self) -> None:
            self._answer(204)

        def _answer(
            self,
            status: int,
            body: bytes = b"",
            *,
            size: int | None = None,
            digest: str = "",
            kind: str = "",
            location: str = "",
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if size is None else size))
            named = {"Docker-Content-Digest": digest, "Content-Type": kind, "Location": location}
            for name, value in named.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", kept
        finally:
            server.shutdown()


class _Hashed:
    """A request's body as a file, hashed as it is read; without a length it comes in chunks."""

    def __init__(self, stream: BinaryIO, length: str | None) -> None:
        self._stream = stream
        self._in_chunks = length is None
        self._left = int(length or 0)  # of the chunk, or of all
        self._hashed = hashlib.sha256()
        self.taken = 0

    @property
    def digest(self) -> str:
        return "sha256:" + self._hashed.hexdigest()

    def read(self, count: int) -> bytes:
        if not self._left and self._in_chunks:
            self._left = int(self._stream.readline(), 16)
            self._in_chunks = self._left > 0
            if not self._in_chunks:
                self._stream.readline()
        data = self._stream.read(min(count, self._left))
        self._left -= len(data)
        if data and not self._left and self._in_chunks:
            self._stream.readline()
        self.taken += len(data)
        self._hashed.update(data)
        return data
