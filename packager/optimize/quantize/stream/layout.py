"""Files of a quantized checkpoint, described by the headers of its source.

The worker of llm-compressor writes the same files (`containers/tools/llmcompressor/checkpoint.py`):
each has what stands for one run of a source's file, in the order of its bytes, so that who writes
the result reads the source in order, once.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packager.core.image import Blob, FileRange, Inline, RemoteRange, Segment
from packager.core.model import ModelFile, TensorInfo
from packager.images.reshard import weights_index
from packager.optimize.quantize.stream.formats import Format
from packager.optimize.quantize.stream.segments import RoundedMatrix, rounded_matrix
from packager.optimize.stream.tensors import SourceTensor

LAYOUT = "1"  # of the files below; another one gets another number
SHARED = ("embed_tokens.weight", "lm_head.weight", "wte.weight", "embed_out.weight")
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What stands for one tensor of the source: names, types, shapes, sizes, and the bytes."""

    file: str  # of the source
    is_shared: bool
    tensors: tuple[tuple[str, str, tuple[int, ...], int], ...]
    content: Segment
    sha256: str  # of the only file that it is made of; "" where that is not known, or several are

    @property
    def size(self) -> int:
        return self.content.length


def quantized_files(
    tensors: Sequence[SourceTensor],
    quantized: Mapping[str, Format],
    fused: Mapping[str, tuple[str, ...]],
    *,
    shard_bytes: int,
) -> tuple[ModelFile, ...]:
    """Describe the weights and their index.

    `quantized` are tensors by name; `fused` has for some of them others that share their scale.
    """
    by_name = {one.info.name: one for one in tensors}
    runs = list(_runs(_pieces(tensors, quantized, fused, by_name), shard_bytes))
    counts = Counter(run[0].is_shared for run in runs)
    numbers: Counter[bool] = Counter()
    files: list[ModelFile] = []
    weight_map: dict[str, str] = {}
    for run in runs:
        is_shared = run[0].is_shared
        numbers[is_shared] += 1
        path = _path(is_shared, numbers[is_shared], counts[is_shared])
        proven = {piece.sha256 for piece in run}
        source = proven.pop() if len(proven) == 1 else ""
        files.append(ModelFile(path=path, role="weights", content=_content(run), part_of=source))
        weight_map |= {tensor[0]: path for piece in run for tensor in piece.tensors}
    total = sum(piece.size for run in runs for piece in run)
    index = Inline(weights_index(weight_map, total))
    return (*files, ModelFile(path=INDEX, role="config", content=index))


def find_unaligned(
    tensors: Iterable[TensorInfo], quantized: Mapping[str, Format], shard_bytes: int
) -> str:
    """Return a tensor that would not begin at a multiple of its elements' size; "" for none.

    Readers view a file as numbers.  `tensors` are in the order of their files and bytes.
    """
    run, end = ("", False), 0
    for tensor in tensors:
        here = (tensor.file, tensor.name.endswith(SHARED) and tensor.name not in quantized)
        parts = [(tensor.shape, tensor.size)]
        if tensor.name in quantized:
            outputs = quantized[tensor.name].outputs(tensor.shape, tensor.dtype)
            parts = [(one.shape, one.size) for one in outputs]
        if here != run or end + sum(size for _, size in parts) > shard_bytes:
            run, end = here, 0
        for shape, size in parts:
            element = size // max(1, math.prod(shape))
            if element and end % element:
                return tensor.name
            end += size
    return ""


def _pieces(
    tensors: Iterable[SourceTensor],
    quantized: Mapping[str, Format],
    fused: Mapping[str, tuple[str, ...]],
    by_name: Mapping[str, SourceTensor],
) -> Iterator[_Piece]:
    for tensor in tensors:
        info = tensor.info
        if info.name not in quantized:
            yield _Piece(
                file=info.file,
                is_shared=info.name.endswith(SHARED),
                tensors=((info.name, info.dtype, info.shape, info.size),),
                content=tensor.place,
                sha256=tensor.sha256,
            )
            continue
        shape, form = (info.shape[0], info.shape[1]), quantized[info.name]
        others = [by_name[name] for name in fused.get(info.name, ())]
        is_of_one = all(other.info.file == info.file for other in others)
        maker = RoundedMatrix(
            form=form,
            shape=shape,
            dtype=info.dtype,
            name=info.name,
            file=info.file,
        )
        module = info.name.removesuffix(".weight")
        yield _Piece(
            file=info.file,
            is_shared=False,
            tensors=tuple(
                (f"{module}.{one.name}", one.dtype, one.shape, one.size)
                for one in form.outputs(shape, info.dtype)
            ),
            content=rounded_matrix(maker, tensor.place, [other.place for other in others]),
            sha256=tensor.sha256 if is_of_one else "",
        )


def _runs(pieces: Iterable[_Piece], limit: int) -> Iterator[list[_Piece]]:
    """Yield what goes into one file: of one source's file and kind, at most `limit` bytes."""
    run: list[_Piece] = []
    size = 0
    for piece in pieces:
        fits = run and (piece.file, piece.is_shared) == (run[-1].file, run[-1].is_shared)
        if run and (not fits or size + piece.size > limit):
            yield run
            run, size = [], 0
        run.append(piece)
        size += piece.size
    if run:
        yield run


def _content(run: Iterable[_Piece]) -> Blob:
    """Describe a safetensors file: its header, then the pieces in order."""
    entries = ['"__metadata__":{"format":"pt"}']
    segments: list[Segment] = []
    end = 0
    for piece in run:
        for name, dtype, shape, size in piece.tensors:
            start, end = end, end + size
            entry = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
            entries.append(f"{_json(name)}:{_json(entry)}")
        _append(segments, piece.content)
    text = f"{{{','.join(entries)}}}".encode()
    text += b" " * (-len(text) % 8)
    return Blob((Inline(len(text).to_bytes(8, "little") + text), *segments))


def _append(segments: list[Segment], content: Segment) -> None:
    """Add a segment; ranges that follow one another in a file become one."""
    last = segments[-1] if segments else None
    if content.length == 0:
        return
    if isinstance(last, FileRange | RemoteRange) and isinstance(content, FileRange | RemoteRange):
        end = last.offset + last.length
        joined = replace(last, length=last.length + content.length)
        if content == replace(last, offset=end, length=content.length):
            segments[-1] = joined
            return
    segments.append(content)


def _path(is_shared: bool, number: int, count: int) -> str:
    kind = "shared" if is_shared else "quantized"
    numbered = f"-{number:05}-of-{count:05}" if count > 1 else ""
    return f"model-{kind}{numbered}.safetensors"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
