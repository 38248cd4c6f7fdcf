"""Values of a draft head's own vocabulary: `d2t`, `t2d` and `token_map`.

They are indices of a few hundred kilobytes, which engines use unchecked.  So a plan reads them,
too, by ranges if the head is remote.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from packager.core.documents import NotStrict, parse_json
from packager.core.image import Blob, FileRange, RemoteRange
from packager.core.model import HeadValues, ModelFile, ModelFiles, TensorInfo, WeightsHeader
from packager.models.scales import tensor_offsets

NAMES = ("d2t", "t2d", "token_map")
GENERATION = "generation_config.json"
MAX_TENSOR_BYTES = 8 * 1024 * 1024  # a million tokens in 64 bits
MAX_GENERATION_BYTES = 1024 * 1024
CODES = {"I64": "q", "I32": "i", "U8": "B", "BOOL": "B"}  # by the element type, as `array` has it

Read = Callable[[Blob], bytes]
ReadHeader = Callable[[ModelFile], WeightsHeader]


def read_head_values(
    head: ModelFiles, model: ModelFiles, *, read_header: ReadHeader, read: Read
) -> HeadValues:
    """Read the indices that a head has, and the end tokens that its model states."""
    files = {file.path: file for file in head.files}
    values: dict[str, tuple[int, ...]] = {}
    for tensor in head.tensors:
        name = tensor.name.rpartition(".")[2]
        known = tensor.dtype in CODES and len(tensor.shape) == 1 and tensor.file in files
        if name in NAMES and known and tensor.size <= MAX_TENSOR_BYTES:
            values[name] = _numbers(tensor, files[tensor.file], read_header, read)
    return HeadValues(end_tokens=_end_tokens(model, read) if values else (), **values)


def _numbers(
    tensor: TensorInfo, file: ModelFile, read_header: ReadHeader, read: Read
) -> tuple[int, ...]:
    offset = tensor_offsets(read_header(file))[tensor.name]
    numbers = array(CODES[tensor.dtype])
    numbers.frombytes(read(_part(file, offset, tensor.size)))
    return tuple(numbers)


def _part(file: ModelFile, offset: int, length: int) -> Blob:
    content = file.content
    if isinstance(content, RemoteRange):
        offset += content.offset
        return Blob((replace(content, offset=offset, length=length, in_order=True),))
    assert isinstance(content, FileRange)
    # Without the digest, which is of the whole file.
    return Blob((replace(content, offset=content.offset + offset, length=length, sha256=""),))


def _end_tokens(model: ModelFiles, read: Read) -> tuple[int, ...]:
    """List the ids that end an answer, by config.json and generation_config.json."""
    nested = model.config.get("text_config")
    stated = [model.config, nested if isinstance(nested, Mapping) else {}]
    file = next((file for file in model.files if file.path == GENERATION), None)
    if file is not None and file.size <= MAX_GENERATION_BYTES:
        stated.append(_generation(file, read))
    found: set[int] = set()
    for config in stated:
        value: Any = config.get("eos_token_id")
        found |= {
            one for one in (value if isinstance(value, list) else [value]) if type(one) is int
        }
    return tuple(sorted(found))


def _generation(file: ModelFile, read: Read) -> Mapping[str, Any]:
    whole = file.content if isinstance(file.content, Blob) else Blob((file.content,))
    try:
        parsed = parse_json(read(whole))
    except NotStrict:
        return {}  # reported by the model's own checks
    return parsed if isinstance(parsed, Mapping) else {}
