"""FP8 in blocks, as DeepSeek and MiniMax publish it, turned into bfloat16 while it is read.

Files keep their names; scales go, weights become twice as long, and the configuration no longer
says that anything is quantized.  Only headers are read.  A source that is fetched in order is read
to its last byte, the scales among them, since its digest is that of the whole file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from packager.core.errors import ModelRefused
from packager.core.image import Blob, Computed, Inline, Place, RemoteRange, Segment, Sources
from packager.core.model import Conversion, ModelFile, ModelFiles, TensorInfo, WeightsHeader
from packager.optimize.quantize.stream.formats import ARITHMETIC, ITEM_BYTES
from packager.optimize.stream.blocks import BLOCK_ELEMENTS, Rows, cut_rows, run_in_order
from packager.optimize.stream.tensors import SourceTensor, read_tensors, unordered

SCALE = "_scale_inv"
WEIGHT = "F8_E4M3"
_SCALES = ("F32", "BF16", "F16")
_AT_ONCE = 8  # headers of files that are elsewhere

ReadHeader = Callable[[ModelFile], WeightsHeader]


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenedMatrix:
    """Makes bfloat16 of FP8 in blocks. Its sources are the weights and their scales.

    Others are read for a digest: so many `before` the weights, in order, the rest after them.
    """

    shape: tuple[int, int]
    block: tuple[int, int]
    scale_type: str
    name: str  # of the matrix, for messages
    before: int = 0

    @property
    def identity(self) -> str:
        """Return what is computed, with the version of the arithmetic."""
        rows, columns = self.shape
        down, across = self.block
        return f"widen {ARITHMETIC} {rows}x{columns} {down}x{across} {self.scale_type}"

    def make(self, sources: Sources) -> Iterator[bytes | memoryview]:
        """Yield the products, each rounded to bfloat16."""
        from packager.optimize.quantize.stream.arithmetic import widen_rows

        columns = self.shape[1]
        down, across = self.block
        scales = b"".join(bytes(chunk) for chunk in sources.read(1))
        width = math.ceil(columns / across) * ITEM_BYTES[self.scale_type]
        count = max(1, BLOCK_ELEMENTS // (columns * down)) * down

        def numbered() -> Iterator[tuple[int, Rows]]:
            blocks = cut_rows(sources.read(0), columns, count)
            for number, given in enumerate(blocks):
                yield number * count // down, given

        def work(block: tuple[int, Rows]) -> bytes:
            first, (data, height) = block
            own = scales[first * width : (first + math.ceil(height / down)) * width]
            return widen_rows(data, (height, columns), own, self.scale_type, self.block)

        _drain(sources, range(2, 2 + self.before))
        yield from _with_rest_read(run_in_order(work, numbered()), sources, 2 + self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTensor:
    """Makes the bytes of its first source; `before` others are read before it, the rest after."""

    before: int

    @property
    def identity(self) -> str:
        """Return what is computed: nothing."""
        return f"plain {self.before}"

    def make(self, sources: Sources) -> Iterator[bytes | memoryview]:
        """Yield the bytes as they are."""
        _drain(sources, range(1, 1 + self.before))
        yield from _with_rest_read(sources.read(0), sources, 1 + self.before)


def _with_rest_read(
    pieces: Iterator[bytes] | Iterator[memoryview], sources: Sources, first: int
) -> Iterator[bytes]:
    """Yield pieces; before the last one, with which reading ends, read the sources from `first`."""
    last = b""
    for piece in pieces:
        if last:
            yield last
        last = bytes(piece)
    _drain(sources, range(first, len(sources.places)))
    yield last


def _drain(sources: Sources, numbers: Iterable[int]) -> None:
    for number in numbers:
        for _ in sources.read(number):
            pass


def block_of(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the block that shares a scale; None where a checkpoint is in another form."""
    stated = config.get("quantization_config")
    if not isinstance(stated, dict) or stated.get("quant_method") != "fp8":
        return None
    block = stated.get("weight_block_size")
    if stated.get("activation_scheme", "dynamic") != "dynamic" or not isinstance(block, list):
        return None
    if len(block) != 2 or not all(type(one) is int and 0 < one <= 4096 for one in block):
        return None
    return block[0], block[1]


def widened(model: ModelFiles, read_header: ReadHeader) -> ModelFiles:
    """Describe the model in bfloat16; raise `ModelRefused` where a scale is missing or unfit."""
    block = block_of(model.config)
    assert block is not None, "whoever asks has looked"
    scales = {one.name: one for one in model.tensors if one.name.endswith(SCALE)}
    infos = {one.name: one for one in model.tensors}
    matrices = {
        tensor.name: _checked(tensor, scales.get(f"{tensor.name}{SCALE}"), block)
        for tensor in model.tensors
        if tensor.dtype == WEIGHT
    }
    for name in scales:
        if name.removesuffix(SCALE) not in matrices:
            raise _refused(name, "is the scale of no weight in FP8")
    weights = [file for file in model.files if file.role == "weights"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(read_header, weights)
        headers = {one.path: header for one, header in zip(weights, found, strict=True)}
    places = {one.info.name: one for one in read_tensors(weights, lambda one: headers[one.path])}
    changed = {infos[name].file for name in (*matrices, *scales)}
    files = tuple(
        _file(file, headers[file.path], places, matrices, block) if file.path in changed else file
        for file in model.files
        if file.path != "model.safetensors.index.json"
    )
    tensors = tuple(_wide(one) for one in model.tensors if one.name not in scales)
    config = {name: value for name, value in model.config.items() if name != "quantization_config"}
    index = [file for file in model.files if file.path == "model.safetensors.index.json"]
    made = [_index(file, tensors) for file in index]
    ordered = sorted((*files, *made), key=lambda file: file.path)
    return replace(
        model,
        files=tuple(ordered),
        tensors=tensors,
        config=config,
        conversion=Conversion(
            held=f"FP8 weights in blocks of {block[0]}×{block[1]}",
            identity=f"widen {ARITHMETIC} {block[0]}x{block[1]}",
            source=tuple(weights),
        ),
    )


def _checked(tensor: TensorInfo, scale: TensorInfo | None, block: tuple[int, int]) -> TensorInfo:
    """Return the scale of a matrix; raise `ModelRefused` where it does not fit."""
    if len(tensor.shape) != 2 or not all(tensor.shape):
        raise _refused(tensor.name, f"is FP8 of shape {list(tensor.shape)}")
    if scale is None:
        raise _refused(tensor.name, f"has no {tensor.name.rpartition('.')[2]}{SCALE}")
    wanted = tuple(math.ceil(size / own) for size, own in zip(tensor.shape, block, strict=True))
    if scale.shape != wanted or scale.dtype not in _SCALES:
        raise _refused(
            scale.name, f"is {scale.dtype} of shape {list(scale.shape)}, not of {list(wanted)}"
        )
    return scale


def _refused(name: str, what: str) -> ModelRefused:
    return ModelRefused(
        f"weights in blocks of FP8 cannot be converted: {name[:200]} {what}",
        hint="serve the checkpoint as it is (`--quantize none`), or take the one in 16 bits",
    )


def _wide(tensor: TensorInfo) -> TensorInfo:
    if tensor.dtype != WEIGHT:
        return tensor
    return tensor._replace(dtype="BF16", size=2 * tensor.size)


def _file(
    file: ModelFile,
    header: WeightsHeader,
    places: Mapping[str, SourceTensor],
    matrices: Mapping[str, TensorInfo],
    block: tuple[int, int],
) -> ModelFile:
    """Describe one file: a header, and what stands for each of its tensors, in their order."""
    kept = [one for one in header.tensors if not one.name.endswith(SCALE)]
    segments: list[Segment] = []
    waiting: list[Place] = []  # scales that are read for the digest alone
    for tensor in header.tensors:
        place = places[tensor.name].place
        if tensor.name.endswith(SCALE):
            if isinstance(place, RemoteRange):
                _wait(waiting, place)
            continue
        scale = matrices.get(tensor.name)
        if scale is None and not waiting:
            segments += [place] if place.length else []
            continue
        segments.append(_segment(tensor, place, scale, places, waiting, block))
        waiting = []
    if waiting and segments:
        segments[-1] = _with_rest(segments[-1], waiting)
    is_of_one = all(matrices[one.name].file == file.path for one in kept if one.name in matrices)
    return replace(
        file,
        content=Blob((Inline(_header(kept, header.metadata)), *segments)),
        sha256="",
        part_of=(file.sha256 or file.part_of) if is_of_one else "",
        origin="",
    )


def _wait(waiting: list[Place], place: RemoteRange) -> None:
    """Add a range; those that follow one another are one request."""
    last = waiting[-1] if waiting else None
    if isinstance(last, RemoteRange) and last.offset + last.length == place.offset:
        waiting[-1] = replace(last, length=last.length + place.length)
    elif place.length:
        waiting.append(place)


def _segment(
    tensor: TensorInfo,
    place: Place,
    scale: TensorInfo | None,
    places: Mapping[str, SourceTensor],
    waiting: list[Place],
    block: tuple[int, int],
) -> Computed:
    if scale is None:
        plain = PlainTensor(before=len(waiting))
        return Computed(maker=plain, sources=(place, *waiting), length=tensor.size)
    maker = WidenedMatrix(
        shape=(tensor.shape[0], tensor.shape[1]),
        block=block,
        scale_type=scale.dtype,
        name=tensor.name,
        before=len(waiting),
    )
    own = unordered(places[scale.name].place)
    return Computed(maker=maker, sources=(place, own, *waiting), length=2 * tensor.size)


def _with_rest(segment: Segment, rest: list[Place]) -> Segment:
    """Return the last segment of a file, which also reads what is left of it."""
    if isinstance(segment, Computed):
        return replace(segment, sources=(*segment.sources, *rest))
    assert not isinstance(segment, Inline)
    return Computed(maker=PlainTensor(before=0), sources=(segment, *rest), length=segment.length)


def _header(tensors: Iterable[TensorInfo], metadata: Mapping[str, str]) -> bytes:
    document: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for tensor in map(_wide, tensors):
        start, end = end, end + tensor.size
        document[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _index(file: ModelFile, tensors: Iterable[TensorInfo]) -> ModelFile:
    """Return the index without the scales."""
    from packager.images.reshard import weights_index

    listed = {one.name: one.file for one in tensors}
    total = sum(one.size for one in tensors)
    return replace(
        file, content=Inline(weights_index(listed, total)), sha256="", part_of="", origin=""
    )
