"""Published models as scripts/model-shapes wrote them down: config.json, and names and shapes.

`data/shapes.json.gz`; a model that transformers cannot build has its config.json alone.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from functools import cache
from math import prod
from typing import Any

from packager.core.model import ModelFiles, ModelRef, TensorInfo
from tests.support.places import DATA

FILE = DATA / "architectures" / "shapes.json.gz"


@cache
def models() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = json.loads(gzip.decompress(FILE.read_bytes()))
    return found["models"]


def config_of(name: str) -> dict[str, Any]:
    return dict(models()[name]["config"])


def plain(name: str) -> ModelFiles:
    """The model in bf16, as its headers would say; what quantized it is left out."""
    config = {k: v for k, v in config_of(name).items() if k != "quantization_config"}
    tensors = tuple(_tensors(models()[name]["tensors"])) or (_tensor("norm.weight", [8]),)
    return ModelFiles(
        ref=ModelRef(source="hub", name=name), files=(), config=config, tensors=tensors
    )


def _tensors(rows: list[tuple[str, list[int], str]]) -> Iterator[TensorInfo]:
    for pattern, shape, layers in rows:
        for layer in _numbers(layers):
            yield _tensor(pattern.replace("#", str(layer)), shape)


def _tensor(name: str, shape: list[int]) -> TensorInfo:
    size = 2 * prod(shape)
    return TensorInfo(name=name, dtype="BF16", shape=tuple(shape), size=size, file="m.safetensors")


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
