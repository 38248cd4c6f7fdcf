"""Weights files that are too large for one layer, described anew as several shards.

A shard is a header of our own and one range of the original's bytes: only the original's header is
read, and no file is written.  Tensors are never split and keep the order of their bytes, so the
same file gives the same shards everywhere.

A layer of 1 to 4 GiB is what registries store, and engines fetch, without trouble:
S3 copies at most 5 GB at once, and some registries refuse more than 10.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from packager.core.image import Blob, FileRange, Inline, RemoteRange
from packager.core.model import ModelFile, TensorInfo, WeightsHeader
from packager.core.units import GIB
from packager.images.balance import balanced_runs, runs_within
from packager.images.tar import ALIGNMENT, BLOCK

SPLIT_OVER = 5 * GIB  # larger files are split where the request does not say
SHARD_SIZE = 4 * GIB  # at most, of what a file is then split into
STEMS = ("model", "consolidated")  # of the names that loaders look for
_TAR_BYTES = 4 * ALIGNMENT + 8 * BLOCK  # directories, headers, paths and padding around a shard

ReadHeader = Callable[[ModelFile], WeightsHeader]
Piece = tuple[ModelFile, tuple[TensorInfo, ...]]


def split_large(
    files: Sequence[ModelFile], read_header: ReadHeader, *, limit: int | None = None
) -> tuple[ModelFile, ...]:
    """Split the weights files that are larger than `limit`, if any.

    All weights are then named `model-00001-of-0000N.safetensors` in the order
    they had, and an index of our own says what is where; those of Mistral's own format
    begin with `consolidated`.  Weights that engines find by another name than the index's
    or `model.safetensors` stay whole, and so do those that were laid out anew already.
    """
    weights = [file for file in files if file.role == "weights"]
    over, size = (limit, limit) if limit else (SPLIT_OVER, SHARD_SIZE)
    stem = _stem_of(files, weights)
    if all(file.size <= over or isinstance(file.content, Blob) for file in weights) or not stem:
        return tuple(files)
    pieces: list[Piece] = []
    total_size = 0
    for file in weights:
        header = read_header(file)
        total_size += sum(tensor.size for tensor in header.tensors)
        pieces += _split(file, header, size) if file.size > over else [(file, header.tensors)]
    if len(pieces) == len(weights):  # a single tensor is larger than the limit
        return tuple(files)
    names = [_name(stem, number, len(pieces)) for number in range(1, len(pieces) + 1)]
    shards = [replace(file, path=name) for name, (file, _) in zip(names, pieces, strict=True)]
    weight_map = {
        tensor.name: name
        for name, (_, tensors) in zip(names, pieces, strict=True)
        for tensor in tensors
    }
    path = _index(stem)
    index = ModelFile(
        path=path, role="config", content=Inline(weights_index(weight_map, total_size))
    )
    others = [file for file in files if file.role != "weights" and file.path not in (path, *names)]
    return tuple(sorted((*others, *shards, index), key=lambda file: file.path))


def rename_tensors(
    file: ModelFile, read_header: ReadHeader, rename: Callable[[str], str]
) -> ModelFile:
    """Describe a weights file with other names for its tensors; the same where none changes.

    Only the header is new: the tensors' bytes are one range of the original's.
    """
    header = read_header(file)
    renamed = tuple(tensor._replace(name=rename(tensor.name)) for tensor in header.tensors)
    if renamed == header.tensors:
        return file
    content = part_of_weights(file, header.metadata, renamed, header.data_offset)
    return replace(file, content=content, sha256="", part_of=file.sha256)


def _stem_of(files: Sequence[ModelFile], weights: Sequence[ModelFile]) -> str:
    """Return how the names begin whose place an index may take; "" where none may."""
    names, paths = [file.path for file in weights], {file.path for file in files}
    found = (stem for stem in STEMS if _index(stem) in paths or names == [f"{stem}.safetensors"])
    return next(found, "")


def _split(file: ModelFile, header: WeightsHeader, limit: int) -> Iterator[Piece]:
    around = _TAR_BYTES + len(_header(header.metadata, (), 0))
    costs = [tensor.size + len(_entry(tensor, file.size)) + 1 for tensor in header.tensors]
    count = len(runs_within(costs, limit - around))
    offset = header.data_offset
    for run in balanced_runs(costs, count):
        tensors = header.tensors[run.start : run.stop]
        content = part_of_weights(file, header.metadata, tensors, offset)
        yield replace(file, content=content, sha256="", part_of=file.sha256), tensors
        offset += sum(tensor.size for tensor in tensors)


def part_of_weights(
    file: ModelFile, metadata: Mapping[str, str], tensors: Sequence[TensorInfo], offset: int
) -> Blob:
    """Describe weights whose tensors lie one after another in `file` from `offset`."""
    length = sum(tensor.size for tensor in tensors)
    whole = file.content
    assert isinstance(whole, FileRange | RemoteRange), "what is inline is small"
    data = replace(whole, offset=whole.offset + offset, length=length)
    if isinstance(data, RemoteRange):
        data = replace(data, in_order=True)
    return Blob((Inline(_header(metadata, tensors, data.offset)), data))


def without_tensors(file: ModelFile, header: WeightsHeader, dropped: Collection[str]) -> ModelFile:
    """Describe a weights file without some of its tensors: a header of ours, ranges of the rest."""
    whole = file.content
    assert isinstance(whole, FileRange | RemoteRange), "what is inline is small"
    kept = tuple(one for one in header.tensors if one.name not in dropped)
    ranges: list[FileRange | RemoteRange] = []
    offset = header.data_offset
    for tensor in header.tensors:
        at, offset = whole.offset + offset, offset + tensor.size
        if tensor.name in dropped or not tensor.size:
            continue
        last = ranges[-1] if ranges else None
        if last is not None and last.offset + last.length == at:
            ranges[-1] = replace(last, length=last.length + tensor.size)
        else:
            ranges.append(replace(whole, offset=at, length=tensor.size))
    text = Inline(_header(header.metadata, kept, header.data_offset))
    return replace(file, content=Blob((text, *ranges)), sha256="", part_of=file.sha256)


def _header(metadata: Mapping[str, str], tensors: Sequence[TensorInfo], data_offset: int) -> bytes:
    """Write a safetensors header, padded with blanks to the start of the data.

    Its format wants a multiple of 8.  Where the original's data is so aligned,
    we go to the same place in a page: file systems can then share the extents.
    """
    entries = []
    if metadata:
        entries.append(f'"__metadata__":{_json(dict(metadata))}')
    start = 0
    for tensor in tensors:
        entries.append(_entry(tensor, start))
        start += tensor.size
    text = f"{{{','.join(entries)}}}".encode()
    is_aligned = data_offset % 8 == 0
    padding = (data_offset - 8 - len(text)) % ALIGNMENT if is_aligned else -len(text) % 8
    return (len(text) + padding).to_bytes(8, "little") + text + b" " * padding


def _entry(tensor: TensorInfo, start: int) -> str:
    described = {
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "data_offsets": [start, start + tensor.size],
    }
    return f"{_json(tensor.name)}:{_json(described)}"


def weights_index(weight_map: Mapping[str, str], total_size: int) -> bytes:
    """Write the index of shards, from tensor to file: the same bytes for the same shards."""
    document = {"metadata": {"total_size": total_size}, "weight_map": weight_map}
    return (json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _name(stem: str, number: int, count: int) -> str:
    return f"{stem}-{number:05d}-of-{count:05d}.safetensors"


def _index(stem: str) -> str:
    return f"{stem}.safetensors.index.json"
