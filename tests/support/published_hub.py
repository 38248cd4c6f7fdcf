"""A hub with published models: their real config.json and tensors of the real shapes, all zero."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from packager.core.model import TensorInfo
from tests.support.doubles.fake_hub import FakeHub, HubFile, Repository
from tests.support.shapes import config_of, plain

SHARD_BYTES = 5_000_000_000
TEXTS = {"tokenizer.json": b"{}", "tokenizer_config.json": b"{}"}


class Zeros(bytes):
    """A header with zeros behind it that nobody holds: only slices are ever made."""

    length: int

    def __new__(cls, header: bytes, length: int) -> Zeros:
        made = super().__new__(cls, header)
        made.length = length
        return made

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: object) -> bytes:  # type: ignore[override]
        assert isinstance(part, slice)
        first, last, _ = part.indices(self.length)
        head = bytes.__getitem__(self, slice(first, last))
        return head + b"\0" * (last - first - len(head))


@dataclass(frozen=True)
class Shard(HubFile):
    """A file of a commit whose digest is that of its header."""

    @property
    def sha256(self) -> str:  # type: ignore[override]
        assert isinstance(self.content, Zeros)
        return hashlib.sha256(bytes.__getitem__(self.content, slice(None))).hexdigest()

    @property
    def git_sha1(self) -> str:  # type: ignore[override]
        return self.sha256[:40]


def publish(hub: FakeHub, name: str) -> None:
    """Add a model under its name, in shards as large as publishers make them."""
    files = {path: HubFile(data, lfs=False) for path, data in TEXTS.items()}
    files["config.json"] = HubFile(json.dumps(config_of(name)).encode(), lfs=False)
    shards = list(_shards(plain(name).tensors))
    held: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        path = f"model-{number:05}-of-{len(shards):05}.safetensors"
        files[path] = _shard(tensors)
        held |= {tensor.name: path for tensor in tensors}
    index = json.dumps({"metadata": {}, "weight_map": held}).encode()
    files["model.safetensors.index.json"] = HubFile(index, lfs=False)
    commit = hashlib.sha1(name.encode()).hexdigest()
    hub.repositories[name] = Repository(commits={commit: files}, refs={"main": commit})


def _shards(tensors: Iterable[TensorInfo]) -> Iterable[list[TensorInfo]]:
    held: list[TensorInfo] = []
    for tensor in tensors:
        if held and sum(one.size for one in held) + tensor.size > SHARD_BYTES:
            yield held
            held = []
        held.append(tensor)
    yield held


def _shard(tensors: list[TensorInfo]) -> Shard:
    header, at = {}, 0
    for tensor in tensors:
        ends = [at, at + tensor.size]
        header[tensor.name] = {
            "dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": ends,
        }  # fmt: skip
        at += tensor.size
    text = json.dumps(header).encode()
    whole = len(text).to_bytes(8, "little") + text
    return Shard(Zeros(whole, len(whole) + at), lfs=True)
