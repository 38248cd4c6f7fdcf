"""Files of a base with an adapter folded in: the same names, headers and sizes, other bytes.

Only headers are read.  What no module changes is a range of the base's own file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from packager.core.adapters import WEIGHTS, Adapter
from packager.core.image import Blob, Computed, Place, RemoteRange, Segment
from packager.core.model import ModelFile, ModelFiles, WeightsHeader
from packager.optimize.merge.segments import MergedTensor
from packager.optimize.merge.targets import MergeTarget, find_targets
from packager.optimize.stream.tensors import SourceTensor, cut_segments, read_tensors, unordered

# Processor time for bfloat16, by three shapes of ranks 8, 16 and 64, on a loaded Xeon of two cores
# (`benchmarks/merge.py`, 2026-12-01): 14 to 15 and 1.3 to 1.9 in two runs.  Other types take less.
ELEMENT_NS = 14.5  # to read an element and to write it
RANK_NS = 1.6  # for each rank of it

ReadHeader = Callable[[ModelFile], WeightsHeader]


def merged_files(model: ModelFiles, adapter: Adapter, read_header: ReadHeader) -> ModelFiles:
    """Describe the base with the adapter folded in; raise `ModelRefused` where it cannot be."""
    targets = {target.tensor.name: target for target in find_targets(model, adapter)}
    weights = tuple(file for file in adapter.files if file.path == WEIGHTS)
    factors = {one.info.name: unordered(one.place) for one in read_tensors(weights, read_header)}
    changed = {target.tensor.file for target in targets.values()}
    files = tuple(
        _merged_file(file, targets, factors, adapter.name, read_header)
        if file.path in changed
        else file
        for file in model.files
    )
    conversion = model.conversion and replace(model.conversion, source=())
    return replace(model, files=files, conversion=conversion)


def merge_seconds(model: ModelFiles, adapter: Adapter) -> float:
    """Return about how much processor time the sums take."""
    total = 0.0
    for target in find_targets(model, adapter):
        costs = (one.rows * (ELEMENT_NS + RANK_NS * one.rank) for one in target.updates)
        total += sum(costs) * target.shape[1]
    return total / 1e9


def _merged_file(
    file: ModelFile,
    targets: Mapping[str, MergeTarget],
    factors: Mapping[str, Place],
    adapter: str,
    read_header: ReadHeader,
) -> ModelFile:
    segments: list[Segment] = []
    end = 0
    for tensor, start in _places(file, read_header):
        if tensor.info.name in targets:
            segments += map(_in_order, cut_segments(file.content, end, start - end))
            segments.append(_merged(tensor, targets[tensor.info.name], factors, adapter))
            end = start + tensor.info.size
    segments += map(_in_order, cut_segments(file.content, end, file.size - end))
    content = Blob(tuple(one for one in segments if one.length))
    return replace(file, content=content, sha256="", part_of="", origin="")


def _places(file: ModelFile, read_header: ReadHeader) -> Iterator[tuple[SourceTensor, int]]:
    """Yield a file's tensors with the offset of each."""
    at = read_header(file).data_offset
    for tensor in read_tensors((file,), read_header):
        yield tensor, at
        at += tensor.info.size


def _merged(
    tensor: SourceTensor, target: MergeTarget, factors: Mapping[str, Place], adapter: str
) -> Computed:
    maker = MergedTensor(
        shape=target.shape,
        dtype=tensor.info.dtype,
        updates=target.updates,
        name=tensor.info.name,
        adapter=adapter,
    )
    sources = (tensor.place, *(factors[one.name] for one in target.factors))
    return Computed(maker=maker, sources=sources, length=tensor.info.size)


def _in_order(segment: Segment) -> Segment:
    """Return a part of a file that is proven when all parts were read."""
    return replace(segment, in_order=True) if isinstance(segment, RemoteRange) else segment
