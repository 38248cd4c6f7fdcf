"""A finished checkpoint in files that suit images.

Embeddings and the head get files of their own whose names and bytes do not depend on the method, so
that quantized variants of a model share those layers.  All else is in the source's order: the same
files are written by who quantizes while reading (`packager/optimize/quantize/stream/layout.py`).
The configuration is the one that was given, with the quantization added: what a library rewrites on
saving, engines of other versions may not read.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from packager_worker import BadInput
from safetensors import safe_open
from whole import Whole

INDEX = "model.safetensors.index.json"
WEIGHTS = (".weight", ".weight_packed", ".qweight")
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

    @property
    def in_order(self) -> list[str]:
        """Names in the order of their bytes, file by file."""
        return [name for opened in self._places for name in opened.offset_keys()]

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
    before = Reader(source)
    files = list(_files(before, after, shard_bytes))
    counts = Counter(kind for kind, _ in files)
    numbers: Counter[str] = Counter()
    places: dict[str, str] = {}
    total = 0
    for kind, names in files:
        numbers[kind] += 1
        file = _file_name(kind, numbers[kind], counts[kind])
        tensors = _tensors(names, after, convert)
        write_tensors(tensors, output / file)
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
        "shared_tensors": [name for kind, names in files if kind == "shared" for name in names],
        "grafted_tensors": len(after.grafted),
    }


def write_tensors(tensors: Tensors, place: Path) -> None:
    """Write a safetensors file, tensors in the order given, or larger elements first.

    Readers view a file as numbers: each tensor must begin at a multiple of its elements' size.
    """
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors.values()]
    starts = zip(accumulate(sizes, initial=0), tensors.values(), strict=False)
    if any(start % tensor.element_size() for start, tensor in starts):
        ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
        tensors = dict(ordered)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        dtype, shape = NAMES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with place.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy()))


def _files(before: Reader, after: Whole, limit: int) -> Iterator[tuple[str, list[str]]]:
    """Yield kinds and names of the files: each has what stands for one run of a source's file.

    Who reads the source in order can write the result in order.  Embeddings and the head are in
    files of their own, at most `limit` bytes go together, and what stands for one tensor is never
    parted.
    """
    places = {name: (at, before.file(name)) for at, name in enumerate(before.in_order)}
    groups: dict[str, list[str]] = {}
    for name in after.names:
        groups.setdefault(after.stand_for.get(name, ""), []).append(name)
    scales = groups.pop("", [])  # of the cache: they stand for no tensor
    run: list[str] = []
    size, last = 0, ("", "")
    for own in sorted(groups, key=lambda name: places[name]):
        names = sorted(groups[own], key=lambda name: _rank(name, after))
        more = sum(map(after.size, names))
        kind = "shared" if names == [own] and _is_shared(own, before, after) else "quantized"
        here = (kind, places[own][1])
        if run and (here != last or size + more > limit):
            yield last[0], run
            run, size = [], 0
        run, size, last = [*run, *names], size + more, here
    if last[0] == "shared" and scales:
        yield last[0], run
        run, last = [], ("quantized", "")
    if run or scales:
        yield last[0], [*run, *scales]


def _rank(name: str, after: Whole) -> tuple[bool, int, str]:
    """Sort weights before what stands beside them, and larger elements before smaller ones."""
    return not name.endswith(WEIGHTS), -_ELEMENT[after.dtype(name)], name


def _file_name(kind: str, number: int, count: int) -> str:
    numbered = f"-{number:05}-of-{count:05}" if count > 1 else ""
    return f"model-{kind}{numbered}.safetensors"


def _is_shared(name: str, before: Reader, after: Whole) -> bool:
    """Embeddings and heads that came through bit by bit."""
    if not name.endswith(SHARED):
        return False
    ours, theirs = after.get(name), before.get(name)
    return ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def _tensors(names: list[str], reader: Whole, convert: Convert | None) -> Tensors:
    made: Tensors = {}
    for name in names:
        made.update(convert(name, reader.get) if convert else {name: reader.get(name)})
    return {name: tensor.contiguous() for name, tensor in made.items()}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e8m0fnu: "F8_E8M0",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64",
    torch.bool: "BOOL", torch.complex64: "C64",
}  # fmt: skip
_ELEMENT = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2,
    "U16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
