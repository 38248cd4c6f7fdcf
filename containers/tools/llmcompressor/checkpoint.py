"""A finished checkpoint in files that suit images.

Tensors that no method touches, embeddings and the head, and those that the library did not load,
get files of their own whose names and bytes do not depend on the method, so that quantized
variants of a model share those layers.  The configuration is the one that was given, with the
quantization added: what a library rewrites on saving, engines of other versions
may not read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from packager_worker import BadInput
from safetensors import safe_open
from safetensors.torch import save_file
from whole import Whole

INDEX = "model.safetensors.index.json"
SHARED = ("embed_tokens.weight", "lm_head.weight", "wte.weight", "embed_out.weight")

Tensors = dict[str, torch.Tensor]
Convert = Callable[[str, Callable[[str], torch.Tensor]], Tensors]


class Reader:
    """Tensors of a checkpoint by name, read one at a time."""

    def __init__(self, place: Path) -> None:
        files = sorted(place.glob("*.safetensors"))
        if not files:
            raise BadInput(f"no safetensors in {place.name!r}")
        self._files = {}
        self._places = {}
        for file in files:
            opened = safe_open(file, framework="pt")
            self._places[opened] = file.name
            self._files.update(dict.fromkeys(opened.keys(), opened))

    @property
    def names(self) -> list[str]:
        return sorted(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def get(self, name: str) -> torch.Tensor:
        return self._files[name].get_tensor(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._files[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        return str(self._files[name].get_slice(name).get_dtype())

    def file(self, name: str) -> str:
        """Return the name of the file that a tensor is in."""
        return self._places[self._files[name]]

    def size(self, name: str) -> int:
        return math.prod(self.shape(name)) * _ELEMENT[self.dtype(name)]


def refuse_unsound(reader: Reader) -> None:
    """Raise `BadInput` naming a tensor of the source that has a NaN or an infinity."""
    for name in reader.names:
        tensor = reader.get(name)
        if not tensor.is_floating_point() or not tensor.numel() or tensor.element_size() < 2:
            continue
        ends = torch.stack(torch.aminmax(tensor)).float()  # in one pass; a NaN is in both
        if not ends.isfinite().all():
            count = int((~tensor.isfinite()).sum())
            what = "NaN" if tensor.isnan().any() else "infinite"
            raise BadInput(
                f"{name} in {reader.file(name)} has {count} of {tensor.numel()} values that are "
                f"{what}: no answer of this model is a number",
                "download the checkpoint again, or take another one",
            )


def write_checkpoint(
    source: Path,
    after: Whole,
    output: Path,
    *,
    quantization: dict[str, Any],
    shard_bytes: int,
    convert: Convert | None = None,
) -> dict[str, Any]:
    """Lay out the tensors of a result; return sizes for the report.

    No other file of `source` is kept: licence and tokenizer go into an image from the source
    as it is then, and the result is the same for all of them.

    `convert` turns the group of tensors that a name stands for into others; names
    it has taken are passed over.
    """
    before, grafted = Reader(source), sorted(after.grafted)
    own = [name for name in after.names if name not in set(grafted)]
    shared = [name for name in own if _is_shared(name, before, after)]
    rest = [name for name in own if name not in set(shared)]
    places: dict[str, str] = {}
    total = 0
    for kind, names in (("shared", shared), ("quantized", rest), ("grafted", grafted)):
        shards = list(_shards(names, after, shard_bytes))
        for number, shard in enumerate(shards, 1):
            count = f"-{number:05}-of-{len(shards):05}" if len(shards) > 1 else ""
            file = f"model-{kind}{count}.safetensors"
            tensors = _tensors(shard, after, convert)
            save_file(tensors, output / file, metadata={"format": "pt"})
            places.update(dict.fromkeys(tensors, file))
            total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
            del tensors
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    _write_json(output / INDEX, index)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    _write_json(output / "config.json", {**config, "quantization_config": quantization})
    return {
        "weight_bytes_before": sum(before.size(name) for name in before.names),
        "weight_bytes_after": total,
        "tensors": len(places),
        "shared_tensors": shared,
        "grafted_tensors": len(grafted),
    }


def _is_shared(name: str, before: Reader, after: Whole) -> bool:
    """Embeddings and heads that came through bit by bit."""
    if not name.endswith(SHARED) or name not in before:
        return False
    ours, theirs = after.get(name), before.get(name)
    return ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def _shards(names: Iterable[str], reader: Whole, limit: int) -> Iterator[list[str]]:
    """Groups of at most `limit` bytes, by the order of names; a larger tensor stands alone."""
    shard: list[str] = []
    size = 0
    for name in names:
        more = reader.size(name)
        if shard and size + more > limit and not _belongs(name, shard[-1]):
            yield shard
            shard, size = [], 0
        shard.append(name)
        size += more
    if shard:
        yield shard


def _belongs(name: str, other: str) -> bool:
    """Whether two tensors are of one module: packed weight, scale and zero point stay together."""
    return name.rpartition(".")[0] == other.rpartition(".")[0]


def _tensors(names: list[str], reader: Whole, convert: Convert | None) -> Tensors:
    made: Tensors = {}
    for name in names:
        made.update(convert(name, reader.get) if convert else {name: reader.get(name)})
    return {name: tensor.contiguous() for name, tensor in sorted(made.items())}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


_ELEMENT = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2,
    "U16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
