"""Check of the scales of packed weights: they must be numbers other than 0.

Nothing is converted for it: fast built-in loops count the bytes that cannot be part of a wrong
value, and only the few others are checked one by one.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from packager.core.files.opening import open_range
from packager.core.image import Blob, FileRange, RemoteRange
from packager.core.model import ModelFile, ModelFiles, ScaleValues, TensorInfo, WeightsHeader

MAX_BYTES = 32 * 1024 * 1024  # above, a part of each tensor is read
MAX_REMOTE_RANGES = 256  # each is a request
MAX_REMOTE_BYTES = 64 * 1024  # of one tensor
LEAST_BYTES = 64  # of each tensor, however many there are
PIECE = 1024 * 1024
REREAD_BYTES = 16 * 1024 * 1024  # for tensors of which the part that was read is 0

ELEMENT = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
ZEROS_8 = bytes((0x00, 0x80))
NOT_FINITE_8 = {
    "F8_E4M3": bytes((0x7F, 0xFF)),
    "F8_E5M2": bytes((*range(0x7C, 0x80), *range(0xFC, 0x100))),
    "F8_E8M0": bytes((0xFF,)),
}
# First bytes (the last in the file) of what may be infinite or no number.
LARGE = {"F16": NOT_FINITE_8["F8_E5M2"], "BF16": bytes((0x7F, 0xFF))}
EXPONENT = {"F16": 0x7C00, "BF16": 0x7F80}
MANY_ZEROS = 0.1  # of 8-bit scales, which are 0 where a group's weights are next to nothing

Read = Callable[[Blob], bytes]
ReadHeader = Callable[[ModelFile], WeightsHeader]
ReadPart = Callable[[int, int], bytes]  # offset in the file, length


@dataclass(slots=True)
class _Seen:
    """Statistics of the elements of one tensor, as far as they were read."""

    elements: int = 0
    zeros: int = 0
    finite: bool = True


def read_scale_values(
    model: ModelFiles,
    scales: tuple[TensorInfo, ...],
    *,
    read_header: ReadHeader,
    read: Read,
    max_bytes: int = MAX_BYTES,
) -> ScaleValues:
    """Read scales, all of them or an equal part of each, and say what is wrong with them.

    Parts are chosen by the tensors' names, so that equal files give equal findings.  Of files
    that are elsewhere at most `MAX_REMOTE_RANGES` parts are read.
    """
    known = tuple(scale for scale in scales if _format(scale) in ELEMENT)
    by_file: defaultdict[str, list[TensorInfo]] = defaultdict(list)
    files = {file.path: file for file in model.files}
    for scale in known:
        if scale.file in files:
            by_file[scale.file].append(scale)
    total = sum(scale.size for scale in known)
    least = min(LEAST_BYTES, max_bytes)
    share = max_bytes if total <= max_bytes else max(least, max_bytes // max(1, len(known)))
    remote = [path for path in by_file if not isinstance(files[path].content, FileRange)]
    if remote:
        share = min(share, MAX_REMOTE_BYTES)
        by_file = _sampled(by_file)
    result = _Result()
    for path, wanted in by_file.items():
        header = read_header(files[path])
        offsets = tensor_offsets(header)
        for part in _open(files[path], read):
            for scale in wanted:
                at = offsets[scale.name]
                result.add(scale, *_look(scale, at, share, part, result))
    return ScaleValues(
        read_bytes=result.read_bytes,
        total_bytes=total,
        not_finite=tuple(result.not_finite),
        zero=tuple(result.zero),
        some_zero=tuple(result.some_zero),
    )


class _Result:
    def __init__(self) -> None:
        self.read_bytes = 0
        self.reread_bytes = 0
        self.not_finite: list[str] = []
        self.zero: list[str] = []
        self.some_zero: list[str] = []

    def add(self, scale: TensorInfo, seen: _Seen, length: int) -> None:
        self.read_bytes += length
        if not seen.finite:
            self.not_finite.append(scale.name)
        elif seen.elements and seen.zeros == seen.elements and length == scale.size:
            self.zero.append(scale.name)
        elif seen.zeros > (MANY_ZEROS * seen.elements if ELEMENT[_format(scale)] == 1 else 0):
            self.some_zero.append(scale.name)


def _format(scale: TensorInfo) -> str:
    """Return the element type; MX formats keep their exponents in plain bytes."""
    is_exponent = scale.dtype == "U8" and scale.name.endswith(("_scale", "_scales"))
    return "F8_E8M0" if is_exponent else scale.dtype


def _sampled(by_file: Mapping[str, list[TensorInfo]]) -> defaultdict[str, list[TensorInfo]]:
    """Return a sample of at most `MAX_REMOTE_RANGES` tensors, chosen by a hash of their names."""
    everything = [scale for scales in by_file.values() for scale in scales]
    everything.sort(key=lambda scale: (_seed(scale.name), scale.name))
    kept = {scale.name for scale in everything[:MAX_REMOTE_RANGES]}
    found: defaultdict[str, list[TensorInfo]] = defaultdict(list)
    for path, scales in by_file.items():
        if some := [scale for scale in scales if scale.name in kept]:
            found[path] = some
    return found


def tensor_offsets(header: WeightsHeader) -> dict[str, int]:
    """Return where each tensor begins in its file."""
    offsets, at = {}, header.data_offset
    for tensor in header.tensors:
        offsets[tensor.name] = at
        at += tensor.size
    return offsets


def _open(file: ModelFile, read: Read) -> Iterator[ReadPart]:
    """Yield, once, what reads a part of the file; a local one stays open meanwhile."""
    content = file.content
    if isinstance(content, FileRange):
        with open_range(content) as stream:
            yield lambda offset, length: os.pread(stream.fileno(), length, content.offset + offset)
    elif isinstance(content, RemoteRange):
        yield lambda offset, length: read(
            Blob((replace(content, offset=content.offset + offset, length=length, in_order=True),))
        )


def _look(
    scale: TensorInfo, at: int, share: int, part: ReadPart, result: _Result
) -> tuple[_Seen, int]:
    """Read a part of a tensor; all of it when the part is nothing but 0."""
    element = ELEMENT[_format(scale)]
    length = min(scale.size, share // element * element or element)
    room = (scale.size - length) // element
    start = _seed(scale.name) % (room + 1) * element
    seen = _Seen()
    _take(scale, at + start, length, part, seen)
    whole = length == scale.size
    if seen.elements == seen.zeros and not whole and seen.elements:
        result.reread_bytes += scale.size
        if result.reread_bytes <= REREAD_BYTES:
            seen, length = _Seen(), scale.size
            _take(scale, at, length, part, seen)
    return seen, length


def _take(scale: TensorInfo, offset: int, length: int, part: ReadPart, seen: _Seen) -> None:
    for start in range(0, length, PIECE):
        data = part(offset + start, min(PIECE, length - start))
        _count(data, _format(scale), seen)


def _count(data: bytes, of_type: str, seen: _Seen) -> None:
    seen.elements += len(data) // ELEMENT[of_type]
    if of_type in NOT_FINITE_8:
        seen.finite &= not _among(data, NOT_FINITE_8[of_type])
        seen.zeros += data.count(0) if of_type == "F8_E8M0" else _among(data, ZEROS_8)
    elif ELEMENT[of_type] == 2:
        first = data[1::2]
        if _among(first, LARGE[of_type]):
            exponent = EXPONENT[of_type]
            seen.finite &= all(word & exponent != exponent for word in set(_words(data)))
        if _among(first, ZEROS_8):
            seen.zeros += sum(1 for word in _words(data) if not word & 0x7FFF)
    else:
        numbers = array("f" if of_type == "F32" else "d")
        numbers.frombytes(data)
        # Sums of finite floats stay finite in doubles; of doubles they need not.
        if not isfinite(sum(numbers)):
            seen.finite &= all(map(isfinite, numbers))
        seen.zeros += numbers.count(0.0)


def _among(data: bytes, values: bytes) -> int:
    """Count the bytes that are one of `values`."""
    return len(data) - len(data.translate(None, values))


def _words(data: bytes) -> memoryview:
    return memoryview(data[: len(data) // 2 * 2]).cast("H")


def _seed(name: str) -> int:
    return zlib.crc32(name.encode())
