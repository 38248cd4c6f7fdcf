"""Safetensors headers: what tensors a shard declares, and that its bytes are there.

Only the header is read.  The rules are upstream's (`Metadata::validate` in
safetensors/src/tensor.rs), and stricter where upstream lets a file through
that two readers may understand differently.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any, BinaryIO

from packager.core.documents import NotStrict, parse_first, shorten
from packager.core.errors import ModelRefused
from packager.core.image import Blob, FileRange, Inline, RemoteRange
from packager.core.model import ModelFile, TensorInfo, WeightsHeader

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

MAX_METADATA = 65_536  # entries; released checkpoints have some hundreds at most
MAX_ENTRY_CHARACTERS = 8192  # of a tensor's description: 64 dimensions of 20 digits are 1,400
MAX_REST = 4 * 1024 * 1024  # what is matched at once

# An entry as every known writer spells it.  A header of such entries alone is read in a third
# of the time; whatever else is in it, or wrong with it, is left to the parser of JSON.
# All repetitions are bounded: without a bound, the matcher keeps state for each.
COUNT = r"(?:0|[1-9]\d{0,17})"
LONGEST_SHAPE = MAX_DIMENSIONS * len(f"{10**17},") - 1  # characters
SHAPE = re.compile(rf"(?:{COUNT}(?:,{COUNT}){{0,{MAX_DIMENSIONS - 1}}})?", re.ASCII)
PLAIN_ENTRY = re.compile(
    rf'"([^"\\\x00-\x1f\x7f]{{1,{MAX_NAME_BYTES}}})":\{{"dtype":"([A-Z0-9_]{{1,16}})",'
    rf'"shape":\[([0-9,]{{0,{LONGEST_SHAPE}}})\],'  # few different ones: SHAPE matches each once
    rf'"data_offsets":\[({COUNT}),({COUNT})\]\}}'
    r'(?:,(?=")|\}\Z)',
    re.ASCII,
)
AROUND = len('"":{"dtype":"","shape":[],"data_offsets":[,]},')  # characters beside those five
BLANKS = re.compile(r"[ \t\n\r]*")
# Some of a JSON string, never half of a surrogate pair: decoded at once, every escape of a long
# string would be an object.
STRING_PIECE = re.compile(
    r'(?:[^"\\\x00-\x1f]{1,4096}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r'|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})){1,1024}'
)
SURROGATE = re.compile("[\ud800-\udfff]")

_TOO_MANY = f"it holds more than {MAX_TENSORS} tensors"

Span = tuple[int, int, TensorInfo]  # first byte, the one after the last, the tensor
Found = tuple[list[Span], Mapping[str, str]]  # tensors and metadata


class BrokenSafetensors(ModelRefused):
    """A safetensors file is damaged, incomplete or deceptive."""

    def __init__(self, file: str, what: str, *, hint: str = "") -> None:
        super().__init__(
            f"{file!r} is not a sound safetensors file: {what}",
            hint=hint or f"get {file!r} again, or save the model again with safetensors",
        )


def read_header(stream: BinaryIO, file: str) -> tuple[TensorInfo, ...]:
    """Read the tensors of an open file from its start, in the order of their bytes.

    `file` is the shard's path in the model; it is what messages name.
    """
    size = os.fstat(stream.fileno()).st_size
    length = header_length(stream.read(8), size, file)
    header = stream.read(length)
    if len(header) != length:
        raise BrokenSafetensors(file, "it became shorter while it was read")
    return parse_header(header, size - 8 - length, file)


def read_weights_header(file: ModelFile, read: Callable[[Blob], bytes]) -> WeightsHeader:
    """Read the header of a file wherever it is, for those who describe its parts anew."""
    start = _first(file, 0, 8)
    length = header_length(read(start), file.size, file.path)
    header = read(_first(file, 8, length))
    tensors, metadata = _checked(header, file.size - 8 - length, file.path)
    return WeightsHeader(tensors=tensors, metadata=metadata, data_offset=8 + length)


def _first(file: ModelFile, offset: int, length: int) -> Blob:
    whole = file.content  # one that was described anew has the header that it had
    content = whole.segments[0] if isinstance(whole, Blob) else whole
    if isinstance(content, Inline):  # written for it
        return Blob((Inline(content.data[offset : offset + length]),))
    if isinstance(content, RemoteRange):
        return Blob((replace(content, offset=offset, length=length, in_order=True),))
    assert isinstance(content, FileRange)
    # Without the digest: a header is compared with the rest of its file when that is read.
    return Blob((replace(content, offset=content.offset + offset, length=length, sha256=""),))


def parse_header(header: bytes, data_bytes: int, file: str) -> tuple[TensorInfo, ...]:
    """Check a header against the number of bytes that follow it.

    Takes at most ten times the memory that the header has, whatever is in it.
    """
    return _checked(header, data_bytes, file)[0]


def _checked(
    header: bytes, data_bytes: int, file: str
) -> tuple[tuple[TensorInfo, ...], Mapping[str, str]]:
    if not header.startswith(b"{"):
        raise BrokenSafetensors(file, "its header does not begin with '{'")
    spans, metadata = _plain_spans(header, file) or _spans(header, file)
    if [0, *map(itemgetter(1), spans)][:-1] != list(map(itemgetter(0), spans)):
        spans.sort(key=lambda span: (span[0], span[1], span[2].name))
        _refuse_gaps(spans, file)
    end = spans[-1][1] if spans else 0
    if end > data_bytes:
        raise BrokenSafetensors(
            file,
            f"it is truncated: tensors end at byte {end}, the data at byte {data_bytes}",
            hint=f"{file!r} was not copied or downloaded to its end: get it again",
        )
    if end < data_bytes:
        raise BrokenSafetensors(file, f"{data_bytes - end} bytes follow the last tensor")
    return tuple(map(itemgetter(2), spans)), metadata


def _refuse_gaps(spans: list[Span], file: str) -> None:
    """Refuse tensors, sorted by their bytes, that do not follow one another from byte 0."""
    end = 0
    for start, stop, tensor in spans:
        if start != end:
            what = "overlap" if start < end else "leave a hole"
            raise BrokenSafetensors(
                file,
                f"the bytes of {shorten(tensor.name)} {what}: they start at {start}, not {end}",
            )
        end = stop


def _plain_spans(header: bytes, file: str) -> Found | None:
    """Read a header of plain entries; None for any other, right or wrong."""
    try:
        text = header.decode("ascii").rstrip(" ")
    except UnicodeDecodeError:
        return None
    metadata: Mapping[str, str] = {}
    at = 1
    if text.startswith('{"__metadata__":{'):
        try:
            metadata, at = _metadata(text, len('{"__metadata__":'))
        except NotStrict:
            return None
        if None in metadata.values() or not text.startswith(',"', at):
            return None
        at += 1
    kinds: dict[tuple[str, str], tuple[str, tuple[int, ...], int]] = {}
    spans: list[Span] = []
    end, before = 0, "0"  # of the last tensor: the next one mostly begins there
    is_odd = ".." in text or '"/' in text  # in a name, or in the metadata
    make = tuple.__new__  # that of a named tuple takes three times as long
    while at < len(text):
        # Entries follow one another to the closing brace, with nothing between or behind them.
        # A part ends behind the first character of the next entry, which is not a closing brace.
        part = text.rfind('},"', at, at + MAX_REST) + 2 if len(text) - at > MAX_REST else len(text)
        entries = PLAIN_ENTRY.findall(text, at, part + (part < len(text)))
        read = len("".join(chain.from_iterable(entries))) + AROUND * len(entries)
        if read != part - at or part <= at:
            return None
        if len(spans) + len(entries) > MAX_TENSORS:
            raise BrokenSafetensors(file, _TOO_MANY)
        at = part
        for name, dtype, dimensions, first, last in entries:
            kind = dtype, dimensions
            found = kinds.get(kind)
            if found is None:
                found = _shape_and_size(dtype, dimensions)
                if found is None:
                    return None
                kinds[kind] = found
            start = end if first == before else int(first)
            end, before = int(last), last
            if end - start != found[2]:
                return None
            if is_odd and (name[0] == "/" or ".." in name):
                return None
            spans.append((start, end, make(TensorInfo, (name, *found, file))))
    names = {span[2].name for span in spans}
    is_whole = spans and len(names) == len(spans) and "__metadata__" not in names
    return (spans, metadata) if is_whole else None


def _shape_and_size(dtype: str, dimensions: str) -> tuple[str, tuple[int, ...], int] | None:
    if SHAPE.fullmatch(dimensions) is None:
        return None
    shape = tuple(map(int, dimensions.split(","))) if dimensions else ()
    bits = BITS.get(dtype, 0) * math.prod(shape)
    odd = dtype not in BITS or bits % 8 or len(shape) > MAX_DIMENSIONS
    return None if odd else (dtype, shape, bits // 8)


def _spans(header: bytes, file: str) -> Found:
    """Read any header, one entry after another: what is refused is never held as a whole."""
    names: set[str] = set()
    spans: list[Span] = []
    metadata: Mapping[str, str] = {}
    wrong: BrokenSafetensors | None = None
    try:
        for name, value in _entries(header.decode("utf-8")):
            if name in names:
                raise NotStrict(f"the key {shorten(name)} stands twice")
            if len(names) > MAX_TENSORS:
                raise BrokenSafetensors(file, _TOO_MANY)
            names.add(name)
            try:
                if name == "__metadata__":
                    metadata = _of_strings(value, file)
                else:
                    spans.append(_span(name, value, file))
            except BrokenSafetensors as error:
                wrong = wrong or error  # invalid JSON further on is the better message
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not UTF-8"
        raise BrokenSafetensors(file, f"its header is refused: {what}") from None
    except NotStrict as error:
        raise BrokenSafetensors(file, f"its header is refused: {error}") from error
    if wrong:
        raise wrong
    return spans, metadata


def _entries(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a JSON object that ends where the text does."""
    at = _skip(text, 1)
    if text.startswith("}", at):
        return _end(text, at + 1)
    while True:
        name, at = _string(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        if name == "__metadata__" and text.startswith("{", at):
            value, at = _metadata(text, at)
        else:
            value, at = _value(text, at, name)
        yield name, value
        at = _skip(text, at)
        if text.startswith("}", at):
            return _end(text, at + 1)
        at = _skip(text, _expect(text, at, ","))


def _end(text: str, at: int) -> None:
    at = _skip(text, at)
    if at != len(text):
        raise _not_json(at)


def _metadata(text: str, at: int) -> tuple[Mapping[str, Any], int]:
    """Read the object at `at`; values other than strings become None."""
    found: dict[str, Any] = {}
    at = _skip(text, at + 1)
    if text.startswith("}", at):
        return found, at + 1
    while True:
        name, at = _string(text, at)
        if name in found:
            raise NotStrict(f"the key {shorten(name)} stands twice")
        if len(found) == MAX_METADATA:
            raise NotStrict(f"its '__metadata__' has more than {MAX_METADATA} entries")
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        if text.startswith('"', at):
            found[name], at = _string(text, at)
        else:
            found[name], at = None, _value(text, at, name)[1]
        at = _skip(text, at)
        if text.startswith("}", at):
            return found, at + 1
        at = _skip(text, _expect(text, at, ","))


def _string(text: str, at: int) -> tuple[str, int]:
    at = _expect(text, at, '"')
    pieces = []
    while piece := STRING_PIECE.match(text, at):
        plain = piece[0]
        pieces.append(json.loads(f'"{plain}"') if "\\" in plain else plain)
        at = piece.end()
    whole = "".join(pieces)
    if SURROGATE.search(whole):
        raise NotStrict("a string in it is half of a surrogate pair")
    return whole, _expect(text, at, '"')


def _value(text: str, at: int, name: str) -> tuple[Any, int]:
    """Read any short value: what describes a tensor is never long."""
    part = text[at : at + MAX_ENTRY_CHARACTERS]
    try:
        value, length = parse_first(part)
    except NotStrict as error:
        if len(part) == MAX_ENTRY_CHARACTERS and str(error).startswith("it is not JSON"):
            most = MAX_ENTRY_CHARACTERS
            raise NotStrict(f"the entry {shorten(name)} has more than {most} characters") from None
        raise
    return value, at + length


def _skip(text: str, at: int) -> int:
    blanks = BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _expect(text: str, at: int, mark: str) -> int:
    if not text.startswith(mark, at):
        raise _not_json(at)
    return at + 1


def _not_json(at: int) -> NotStrict:
    return NotStrict(f"it is not JSON at character {at + 1}")


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


def _of_strings(metadata: object, file: str) -> Mapping[str, str]:
    if not isinstance(metadata, dict) or None in metadata.values():
        raise BrokenSafetensors(file, "its '__metadata__' is not a map of strings")
    return metadata


def _span(name: str, entry: Any, file: str) -> Span:
    """Check one tensor by itself: name, dtype, shape, and that its bytes suit them."""
    _check_name(name, file)
    if not isinstance(entry, dict):
        raise BrokenSafetensors(file, f"the entry of {shorten(name)} is not a JSON object")
    dtype, shape, start, stop = _fields(name, entry, file)
    if dtype not in BITS:
        raise BrokenSafetensors(
            file,
            f"{shorten(name)} has the unknown dtype {shorten(dtype)}",
            hint=f"known are {', '.join(sorted(BITS))}",
        )
    bits = BITS[dtype]
    for dimension in shape:
        bits *= dimension
    if bits % 8:
        raise BrokenSafetensors(
            file, f"{shorten(name)} does not end at a byte: {bits} bits of {dtype}"
        )
    if stop - start != bits // 8:
        raise BrokenSafetensors(
            file,
            f"{shorten(name)} has {stop - start} bytes; dtype {dtype} and shape {shorten(shape)} "
            f"need {bits // 8}",
        )
    # One text for all tensors of a type, or a header takes more than ten times its size.
    kept = sys.intern(dtype)
    return start, stop, TensorInfo(name=name, dtype=kept, shape=shape, size=bits // 8, file=file)


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
    name: str, entry: Mapping[str, Any], file: str
) -> tuple[str, tuple[int, ...], int, int]:
    dtype = entry.get("dtype")
    if not isinstance(dtype, str):
        raise BrokenSafetensors(file, f"{shorten(name)} has no dtype")
    shape = _counts(entry.get("shape"))
    if shape is None or len(shape) > MAX_DIMENSIONS:
        raise BrokenSafetensors(file, f"the shape of {shorten(name)} is not a list of counts")
    offsets = _counts(entry.get("data_offsets"))
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BrokenSafetensors(
            file, f"the data_offsets of {shorten(name)} are not a pair of ascending counts"
        )
    return dtype, shape, offsets[0], offsets[1]


def _counts(value: Any) -> tuple[int, ...] | None:
    """Return a JSON list of unsigned 64-bit integers, else None. `true` is not an integer."""
    listed: list[Any] = value if isinstance(value, list) else [None]
    is_counts = all(type(number) is int and 0 <= number < 2**64 for number in listed)
    return tuple(listed) if is_counts else None
