"""A weights file over 8 GiB, where tar headers change their form, on its way into a registry."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.commandline import Packager
from tests.support.doubles.http import Handler, Running, Server
from tests.support.doubles.models import safetensors_bytes, write_model
from tests.support.doubles.registry import sha256

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
    with DiscardingRegistry() as registry:
        done = packager(
            *("build", "--model", str(model), "--instance", "ml.g5.12xlarge", "--family", "vllm"),
            *("--base", "scratch", "--quiet", "--format", "json"),
            *("--max-total-tokens", "256", "--output", f"{registry.host}/huge:1"),
        )

    assert done.status == 0, done.err
    layers = {layer["digest"]: layer for layer in json.loads(done.out)["layers"]}
    digest = next(digest for digest, layer in layers.items() if layer["role"] == "weights")
    blob = registry.kept[digest]
    assert blob.size == layers[digest]["size"]
    expected = (model / "model.safetensors").stat().st_size
    assert blob.files["opt/packager/model/model.safetensors"] == expected


class DiscardingRegistry(Running):
    """A registry that hashes what it is given, reads it as a tar, and keeps neither."""

    def __init__(self) -> None:
        self.kept: dict[str, Blob] = {}
        self.uploads: list[Blob] = []
        self.manifests: dict[str, bytes] = {}
        self.servers = [Server(_Handler, self)]
        self.host = self.servers[0].host


@dataclass(frozen=True)
class Blob:
    """What is left of a blob: the files in it with their sizes."""

    digest: str = ""
    size: int = 0
    files: Mapping[str, int] = field(default_factory=dict)


class _Handler(Handler):
    server: Server

    def do_GET(self) -> None:
        registry, name = self.server.double, self.path.rpartition("/")[2]
        if "/manifests/" in self.path and name in registry.manifests:
            body = registry.manifests[name]
            kind = "application/vnd.oci.image.manifest.v1+json"
            named = {"Docker-Content-Digest": sha256(body), "Content-Type": kind}
            return self.say(200, named, body)
        if "/blobs/" in self.path and name in registry.kept:  # only HEAD asks for blobs
            size = str(registry.kept[name].size)
            return self.head(200, {"Docker-Content-Digest": name, "Content-Length": size})
        return self.say(200 if self.path == "/v2/" else 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        uploads = self.server.double.uploads
        uploads.append(Blob())
        self.say(202, {"Location": f"{self.path.partition('?')[0]}{len(uploads) - 1}"})

    def do_PATCH(self) -> None:
        body = _Hashed(self.rfile, self.headers.get("Content-Length"))
        members = {}
        with (
            suppress(tarfile.ReadError),  # the configuration
            tarfile.open(fileobj=body, mode="r|", bufsize=1 << 20) as archive,
        ):
            members = {member.name: member.size for member in archive}
        while body.read(1 << 20):
            pass
        number = int(self.path.rpartition("/")[2])
        self.server.double.uploads[number] = Blob(body.digest, body.taken, members)
        self.say(202, {"Location": self.path})

    def do_PUT(self) -> None:
        registry, parts = self.server.double, urlsplit(self.path)
        body, name = self.body(), parts.path.rpartition("/")[2]
        if "/manifests/" in parts.path:
            registry.manifests |= {name: body, sha256(body): body}
            return self.say(201)
        blob = registry.uploads[int(name)]
        if parse_qs(parts.query)["digest"] != [blob.digest]:
            return self.say(400)
        registry.kept[blob.digest] = blob
        return self.say(201, {"Docker-Content-Digest": blob.digest})


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
