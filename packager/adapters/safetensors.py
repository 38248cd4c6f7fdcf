"""Headers of safetensors files: what tensors a shard declares, and that its bytes are there.

Only the header is read.  The rules are upstream's (`Metadata::validate` in
safetensors/src/tensor.rs), and stricter where upstream lets a file through
that two readers may understand differently.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.image import Blob, FileRange, RemoteRange
from packager.core.model import ModelFile, TensorInfo, WeightsHeader
from packager.errors import ModelRefused

MAX_HEADER_BYTES = 100_000_000  # upstream's MAX_HEADER_SIZE
MAX_TENSORS = 500_000  # in one file; the largest released checkpoints hold under 200 000 in all
MAX_DIMENSIONS = 64  # torch's own limit
MAX_NAME_BYTES = 1024

# `Dtype::bitsize` in safetensors/src/tensor.rs at commit 24b0b28 (2026-05-12).
BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


# An entry as every known writer spells it.  A header of such entries alone is read in a third
# of the time; whatever else is in it, or wrong with it, is left to the parser of JSON.
COUNT = r"(?:0|[1-9]\d{0,17})"
PLAIN_ENTRY = re.compile(
    r'("([^"\\\x00-\x1f\x7f]+)":\{"dtype":"([A-Z0-9_]{1,16})",'
    rf'"shape":\[((?:{COUNT}(?:,{COUNT})*)?)\],"data_offsets":\[({COUNT}),({COUNT})\]\}}'
    r'(?:,(?=")|\}\Z))',
    re.ASCII,
)
PLAIN_METADATA = re.compile(
    r'"__metadata__":\{(?:"[^"\\\x00-\x1f]*":"[^"\\\x00-\x1f]*")?\},', re.ASCII
)

Span = tuple[int, int, TensorInfo]  # first byte, the one after the last, the tensor


class BrokenSafetensors(ModelRefused):
    """A safetensors file is damaged, incomplete or deceptive."""

    def __init__(self, file: str, what: str, *, hint: str = "") -> None:
        super().__init__(
            f"{file!r} is not a sound safetensors file: {what}",
            hint=hint or f"get {file!r} again, or save the model again with safetensors",
        )


def read_header(path: Path, file: str) -> tuple[TensorInfo, ...]:
    """Read the tensors of the file at `path`, in the order of their bytes.

    `file` is the shard's path in the model; it is what messages name.
    """
    try:
        header, data_bytes = _read_header_bytes(path, file)
    except OSError as error:
        raise ModelRefused(
            f"{file!r} cannot be read: {os.strerror(error.errno or 0).lower()}",
            hint="check the permissions of the model's files",
        ) from error
    return parse_header(header, data_bytes, file)


def read_weights_header(file: ModelFile, read: Callable[[Blob], bytes]) -> WeightsHeader:
    """Read the header of a file wherever it is, for those who describe its parts anew."""
    start = _first(file, 0, 8)
    length = header_length(read(start), file.size, file.path)
    header = read(_first(file, 8, length))
    return WeightsHeader(
        tensors=parse_header(header, file.size - 8 - length, file.path),
        metadata=json.loads(header).get("__metadata__", {}),
        data_offset=8 + length,
    )


def _first(file: ModelFile, offset: int, length: int) -> Blob:
    content = file.content
    if isinstance(content, RemoteRange):
        return Blob((replace(content, offset=offset, length=length, in_order=True),))
    assert isinstance(content, FileRange)
    return Blob((replace(content, offset=content.offset + offset, length=length),))


def parse_header(header: bytes, data_bytes: int, file: str) -> tuple[TensorInfo, ...]:
    """Check a header against the number of bytes that follow it."""
    if not header.startswith(b"{"):
        raise BrokenSafetensors(file, "its header does not begin with '{'")
    spans = _plain_spans(header, file)
    if spans is None:
        spans = _spans(header, file)
    if any(one[1] != other[0] for one, other in pairwise(spans)):
        spans.sort(key=lambda span: (span[0], span[1], span[2].name))
    end = 0
    for start, stop, tensor in spans:
        if start != end:
            what = "overlap" if start < end else "leave a hole"
            raise BrokenSafetensors(
                file,
                f"the bytes of {shorten(tensor.name)} {what}: they start at {start}, not {end}",
            )
        end = stop
    if end > data_bytes:
        raise BrokenSafetensors(
            file,
            f"it is truncated: tensors end at byte {end}, the data at byte {data_bytes}",
            hint=f"{file!r} was not copied or downloaded to its end: get it again",
        )
    if end < data_bytes:
        raise BrokenSafetensors(file, f"{data_bytes - end} bytes follow the last tensor")
    return tuple(tensor for _, _, tensor in spans)


def _plain_spans(header: bytes, file: str) -> list[Span] | None:
    """Read a header of plain entries; None for any other, right or wrong."""
    try:
        text = header.decode("ascii").rstrip(" ")
    except UnicodeDecodeError:
        return None
    metadata = PLAIN_METADATA.match(text, 1)
    start = metadata.end() if metadata else 1
    entries = PLAIN_ENTRY.findall(text, start)
    # Entries follow one another to the closing brace, with nothing between or behind them.
    if start + sum([len(entry[0]) for entry in entries]) != len(text) or len(entries) > MAX_TENSORS:
        return None
    kinds: dict[tuple[str, str], tuple[tuple[int, ...], int] | None] = {}
    spans: list[Span] = []
    for _, name, dtype, dimensions, first, last in entries:
        kind = dtype, dimensions
        if kind not in kinds:
            kinds[kind] = _shape_and_size(dtype, dimensions)
        found = kinds[kind]
        start_byte, end_byte = int(first), int(last)
        if found is None or end_byte - start_byte != found[1] or not _is_plain_name(name):
            return None
        tensor = TensorInfo(name=name, dtype=dtype, shape=found[0], size=found[1], file=file)
        spans.append((start_byte, end_byte, tensor))
    return spans if len({entry[1] for entry in entries}) == len(spans) else None


def _shape_and_size(dtype: str, dimensions: str) -> tuple[tuple[int, ...], int] | None:
    shape = tuple(map(int, dimensions.split(","))) if dimensions else ()
    bits = BITS.get(dtype, 0) * math.prod(shape)
    odd = dtype not in BITS or bits % 8 or len(shape) > MAX_DIMENSIONS
    return None if odd else (shape, bits // 8)


def _is_plain_name(name: str) -> bool:
    usual = len(name) <= MAX_NAME_BYTES and name[0] != "/" and ".." not in name
    return usual and name != "__metadata__"


def _spans(header: bytes, file: str) -> list[Span]:
    try:
        declared = parse_json(header, max_bytes=MAX_HEADER_BYTES, max_values=6 * MAX_TENSORS)
    except NotStrict as error:
        raise BrokenSafetensors(file, f"its header is refused: {error}") from error
    if not isinstance(declared, dict):
        raise BrokenSafetensors(file, "its header is not a JSON object")
    _check_metadata(declared.pop("__metadata__", {}), file)
    return [_span(name, entry, file) for name, entry in declared.items()]


def _read_header_bytes(path: Path, file: str) -> tuple[bytes, int]:
    # O_NONBLOCK: opening a fifo must not wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BrokenSafetensors(file, "it is not a regular file")
        length = header_length(stream.read(8), status.st_size, file)
        header = stream.read(length)
        if len(header) != length:
            raise BrokenSafetensors(file, "it became shorter while it was read")
    return header, status.st_size - 8 - length


def header_length(head: bytes, size: int, file: str) -> int:
    """Read how long the header is from the first 8 of the file's `size` bytes."""
    if size == 0:
        raise BrokenSafetensors(
            file, "it is empty", hint=f"{file!r} was never downloaded: get it again"
        )
    if size < 8:
        raise BrokenSafetensors(file, f"it ends after {size} of the first 8 bytes")
    (length,) = struct.unpack("<Q", head[:8])
    if length > MAX_HEADER_BYTES:
        raise BrokenSafetensors(
            file, f"its header claims {length} bytes; {MAX_HEADER_BYTES} are allowed"
        )
    if length > size - 8:
        raise BrokenSafetensors(
            file,
            f"it is truncated: the header has {length} bytes, the file {size}",
            hint=f"{file!r} was not copied or downloaded to its end: get it again",
        )
    return int(length)


def _check_metadata(metadata: object, file: str) -> None:
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):
        raise BrokenSafetensors(file, "its '__metadata__' is not a map of strings")


def _span(name: str, entry: Any, file: str) -> Span:
    """Check one tensor by itself: name, dtype, shape, and that its bytes suit them."""
    _check_name(name, file)
    shown = shorten(name)
    if not isinstance(entry, dict):
        raise BrokenSafetensors(file, f"the entry of {shown} is not a JSON object")
    dtype, shape, start, stop = _fields(shown, entry, file)
    if dtype not in BITS:
        raise BrokenSafetensors(
            file,
            f"{shown} has the unknown dtype {shorten(dtype)}",
            hint=f"known are {', '.join(sorted(BITS))}",
        )
    bits = BITS[dtype]
    for dimension in shape:
        bits *= dimension
    if bits % 8:
        raise BrokenSafetensors(file, f"{shown} does not end at a byte: {bits} bits of {dtype}")
    if stop - start != bits // 8:
        raise BrokenSafetensors(
            file,
            f"{shown} has {stop - start} bytes; dtype {dtype} and shape {shorten(shape)} "
            f"need {bits // 8}",
        )
    return start, stop, TensorInfo(name=name, dtype=dtype, shape=shape, size=bits // 8, file=file)


def _check_name(name: str, file: str) -> None:
    """Refuse names that no exporter writes: engines put them into paths and logs."""
    odd = (
        not name
        or not name.isprintable()
        or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES
        or name.startswith("/")
        or ".." in name.split("/")
    )
    if odd:
        raise BrokenSafetensors(file, f"the tensor name {shorten(name)} is not acceptable")


def _fields(
    shown: str, entry: Mapping[str, Any], file: str
) -> tuple[str, tuple[int, ...], int, int]:
    dtype = entry.get("dtype")
    if not isinstance(dtype, str):
        raise BrokenSafetensors(file, f"{shown} has no dtype")
    shape = _counts(entry.get("shape"))
    if shape is None or len(shape) > MAX_DIMENSIONS:
        raise BrokenSafetensors(file, f"the shape of {shown} is not a list of counts")
    offsets = _counts(entry.get("data_offsets"))
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BrokenSafetensors(
            file, f"the data_offsets of {shown} are not a pair of ascending counts"
        )
    return dtype, shape, offsets[0], offsets[1]


def _counts(value: Any) -> tuple[int, ...] | None:
    """Give a JSON list of integers that fit 64 bits, else None. `true` is not an integer."""
    if isinstance(value, list) and all(
        type(number) is int and 0 <= number < 2**64 for number in value
    ):
        return tuple(value)
    return None
