"""The same deltas in files that every engine reads alike, made while a layer is written.

B is multiplied by what PEFT multiplies the product with, every pair gets one rank by zeros, and the
configuration says rank and alpha alike, so that an engine's own scale is 1.  Values are computed
one by one, by tables of 16-bit numbers or in float64, so that every processor makes the same bytes.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from packager.core.adapters import CONFIG, WEIGHTS, AdaptedModule, Adapter, AdapterRewrite
from packager.core.errors import ModelRefused
from packager.core.image import Blob, Computed, FileRange, Inline, RemoteRange, Segment, Sources
from packager.core.model import ModelFile, WeightsHeader
from packager.core.remote.addresses import is_in_order
from packager.models.adapters.pairs import tensor_names

WIDTH = {"BF16": 2, "F16": 2, "F32": 4}
ALIGNED = 8  # bytes of a header, as safetensors pads it


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedMatrix:
    """Makes a matrix with more columns, all its values multiplied by one number."""

    rows: int
    columns: int
    width: int  # columns of the result
    factor: float
    dtype: str
    name: str

    @property
    def identity(self) -> str:
        """Return what is computed, with its version."""
        size = f"{self.rows}x{self.columns}+{self.width - self.columns}"
        return f"adapter-scale-1 {self.dtype} {size} {self.factor.hex()}"

    def make(self, sources: Sources) -> Iterator[bytes | memoryview]:
        """Yield the rows in order; raise `ModelRefused` for what the type cannot hold."""
        item = WIDTH[self.dtype]
        row, padding = self.columns * item, bytes((self.width - self.columns) * item)
        scaled = _scaler(self.dtype, self.factor, self.name)
        left = bytearray()
        for chunk in sources.read(0):
            left += chunk
            whole = len(left) // row * row
            if whole:
                values = scaled(bytes(left[:whole]))
                del left[:whole]
                yield _padded(values, row, padding)


def rewrite_adapter(
    adapter: Adapter,
    rewrite: AdapterRewrite,
    read_header: Callable[[ModelFile], WeightsHeader],
) -> tuple[ModelFile, ...]:
    """Describe the adapter's files as the engine reads them rightly; no value is read yet."""
    return tuple(
        _rewritten_weights(adapter, rewrite, file, read_header(file))
        if file.path == WEIGHTS
        else _rewritten_config(adapter, rewrite, file)
        if file.path == CONFIG
        else file
        for file in adapter.files
    )


def _rewritten_config(adapter: Adapter, rewrite: AdapterRewrite, file: ModelFile) -> ModelFile:
    changed = {
        **adapter.config,
        "r": rewrite.rank,
        "lora_alpha": rewrite.rank,
        "use_rslora": False,
        "rank_pattern": {},
        "alpha_pattern": {},
        "bias": "none",
        "target_modules": list(adapter.leaves),
    }
    text = json.dumps(changed, indent=2, sort_keys=True) + "\n"
    return replace(file, content=Inline(text.encode()), sha256="", origin="")


def _rewritten_weights(
    adapter: Adapter, rewrite: AdapterRewrite, file: ModelFile, header: WeightsHeader
) -> ModelFile:
    """Describe the pairs in the order of the file: what is read in order proves its digest.

    Other tensors are copies of the base's own, and left out.  Raises `ModelRefused` where a hub's
    file ends with one: what is read of it would be held against no digest.
    """
    halves = {one.a.name: (one, 0) for one in adapter.modules}
    halves |= {one.b.name: (one, 1) for one in adapter.modules}
    described: dict[str, object] = {"__metadata__": {"format": "pt"}}
    segments: list[Segment] = []
    at, end = header.data_offset, 0
    for tensor in header.tensors:
        place = _part(file, at, tensor.size)
        at += tensor.size
        if tensor.name not in halves:
            continue
        module, half = halves[tensor.name]
        shape = (module.outputs, rewrite.rank) if half else (rewrite.rank, module.inputs)
        length = shape[0] * shape[1] * WIDTH[module.dtype]
        if half:
            segments.append(_scaled(module, rewrite.rank, place, length))
        else:
            segments += [place, Inline(bytes(length - tensor.size))]
        name = tensor_names(rewrite.paths.get(module.path, module.path), module.form)[half]
        described[name] = {
            "dtype": module.dtype,
            "shape": list(shape),
            "data_offsets": [end, end + length],
        }
        end += length
    by_parts = isinstance(place, RemoteRange) and is_in_order(place)
    if by_parts and header.tensors[-1].name not in halves:
        raise ModelRefused(
            f"the adapter {adapter.name!r} cannot be read from the hub piece by piece: its file "
            "ends with a tensor that is left out, and only the whole file has a digest",
            hint="download it, and name its directory",
        )
    head = json.dumps(described, separators=(",", ":")).encode()
    head += b" " * (-len(head) % ALIGNED)
    content = Blob((Inline(struct.pack("<Q", len(head)) + head), *filter(_is_there, segments)))
    return replace(file, content=content, sha256="", origin="", part_of=file.sha256)


def _is_there(segment: Segment) -> bool:
    return segment.length > 0


def _scaled(
    module: AdaptedModule, rank: int, place: FileRange | RemoteRange, length: int
) -> Segment:
    if module.scale == 1.0 and rank == module.rank:
        return place
    maker = PaddedMatrix(
        rows=module.outputs,
        columns=module.rank,
        width=rank,
        factor=module.scale,
        dtype=module.dtype,
        name=module.b.name,
    )
    return Computed(maker=maker, sources=(place,), length=length)


def _part(file: ModelFile, offset: int, length: int) -> FileRange | RemoteRange:
    content = file.content
    assert isinstance(content, FileRange | RemoteRange)
    found = replace(content, offset=content.offset + offset, length=length)
    return replace(found, in_order=True) if isinstance(found, RemoteRange) else found


def _padded(values: bytes, row: int, padding: bytes) -> bytes:
    if not padding:
        return values
    return b"".join(
        part for at in range(0, len(values), row) for part in (values[at : at + row], padding)
    )


def _scaler(dtype: str, factor: float, name: str) -> Callable[[bytes], bytes]:
    """Return what multiplies little-endian values, each rounded to the nearest of its type."""
    if dtype == "F32":
        return lambda data: _scaled_singles(data, factor, name)
    table = _products(dtype, factor)

    def scaled(data: bytes) -> bytes:
        numbers = array("H", data)
        if sys.byteorder == "big":
            numbers.byteswap()
        try:
            found = array("H", [table[one] for one in numbers])
        except KeyError:
            raise _not_held(name) from None
        if sys.byteorder == "big":
            found.byteswap()
        return found.tobytes()

    return scaled


@lru_cache(maxsize=64)
def _products(dtype: str, factor: float) -> Mapping[int, int]:
    """Return every finite number of 16 bits times the factor; what is too large is missing."""
    read, write = (_read_bf16, _write_bf16) if dtype == "BF16" else (_read_f16, _write_f16)
    found: dict[int, int] = {}
    for bits in range(1 << 16):
        value = read(bits)
        if value - value != 0:  # NaN or infinite
            continue
        written = write(value * factor)
        if written is not None:
            found[bits] = written
    return found


def _scaled_singles(data: bytes, factor: float, name: str) -> bytes:
    count = len(data) // 4
    try:
        values = struct.unpack(f"<{count}f", data)
        made = struct.pack(f"<{count}f", *(one * factor for one in values))
    except OverflowError:
        raise _not_held(name) from None
    if any(one - one != 0 for one in values):
        raise _not_held(name)
    return made


def _read_bf16(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    return float(value)


def _write_bf16(value: float) -> int | None:
    """Round to the nearest, to even where two are: the product of two floats is exact before."""
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        return None
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    low = bits & 0xFFFF
    half = 0x8000
    up = low > half or (low == half and (bits >> 16) & 1)
    if low == half and single != value:  # the first rounding moved it to the middle
        up = abs(value) > abs(single)
    rounded = (bits >> 16) + bool(up)
    return None if rounded & 0x7F80 == 0x7F80 else rounded


def _read_f16(bits: int) -> float:
    (value,) = struct.unpack("<e", struct.pack("<H", bits))
    return float(value)


def _write_f16(value: float) -> int | None:
    try:
        (bits,) = struct.unpack("<H", struct.pack("<e", value))
    except OverflowError:
        return None
    return int(bits)


def _not_held(name: str) -> ModelRefused:
    return ModelRefused(
        f"{name} has values that are no numbers, or that its scale makes too large for its type",
        hint="save the adapter again with PEFT, in bfloat16 or float32",
        code="AdapterBroken",
    )
