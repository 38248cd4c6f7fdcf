"""Tensors of weights files, and where their bytes are, in the order of the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from packager.core.image import Blob, Computed, FileRange, Inline, Place, RemoteRange, Segment
from packager.core.model import ModelFile, TensorInfo, WeightsHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTensor:
    """A tensor of the source, and where its bytes are."""

    info: TensorInfo
    place: Place
    sha256: str  # of the whole file that it is made of, where the source proves it; else ""


def read_tensors(
    files: Iterable[ModelFile], read_header: Callable[[ModelFile], WeightsHeader]
) -> tuple[SourceTensor, ...]:
    """Return the tensors of weights files, in the order of the files' names and of their bytes."""
    found = []
    for file in sorted(files, key=lambda one: one.path):
        header = read_header(file)
        at = header.data_offset
        for info in header.tensors:
            (place,) = cut_segments(file.content, at, info.size)
            if isinstance(place, RemoteRange):
                place = replace(place, in_order=True)
            assert not isinstance(place, Inline), "what is inline is small"
            found.append(SourceTensor(info=info, place=place, sha256=file.sha256 or file.part_of))
            at += info.size
    return tuple(found)


def cut_segments(content: Segment | Blob, offset: int, length: int) -> Iterator[Segment]:
    """Yield the parts of a file's content that its bytes from `offset` are; none is empty."""
    segments = content.segments if isinstance(content, Blob) else (content,)
    end = offset + length
    at = 0
    for segment in segments:
        first, last = max(offset, at), min(end, at + segment.length)
        if first < last or (length == 0 and at <= offset <= at + segment.length):
            yield _part(segment, first - at, last - first)
            if length == 0:
                return
        at += segment.length


def _part(segment: Segment, start: int, length: int) -> Segment:
    if (start, length) == (0, segment.length):
        return segment
    if isinstance(segment, Inline):
        return Inline(segment.data[start : start + length])
    assert isinstance(segment, FileRange | RemoteRange | Computed)
    return replace(segment, offset=segment.offset + start, length=length)


def unordered(place: Place) -> Place:
    """Return a place that is read out of turn: what is read in order proves its file."""
    if isinstance(place, Computed):
        return replace(place, sources=tuple(map(unordered, place.sources)))
    return replace(place, in_order=False) if isinstance(place, RemoteRange) else place
