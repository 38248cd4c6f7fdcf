"""Files of a quantized checkpoint by headers alone: runs, names, sizes, ranges, order."""

from __future__ import annotations

import json
import struct

from packager.core.image import Blob, Computed, FileRange, Inline, Layer, RemoteRange
from packager.core.model import ModelFile, TensorInfo, WeightsHeader
from packager.images.order import chains, is_local
from packager.optimize.quantize.stream.formats import Format
from packager.optimize.quantize.stream.layout import find_unaligned, quantized_files
from packager.optimize.stream.tensors import read_tensors

FP8 = Format(kind="fp8")
COMMIT = "a" * 40


def tensor(name: str, shape: tuple[int, ...], file: str = "1", dtype: str = "BF16") -> TensorInfo:
    size = 4 if dtype == "F32" else 2
    for side in shape:
        size *= side
    return TensorInfo(name, dtype, shape, size, f"{file}.safetensors")


FIRST = (
    tensor("embed_tokens.weight", (8, 4)),
    tensor("layers.0.a.weight", (6, 4)),
    tensor("layers.0.norm.weight", (4,)),
    tensor("layers.0.z.bias", (6,)),
)
SECOND = (tensor("layers.1.a.weight", (2, 4), "2"), tensor("lm_head.weight", (8, 4), "2"))
QUANTIZED = dict.fromkeys(("layers.0.a.weight", "layers.1.a.weight"), FP8)


def described(*, remote: bool = False, limit: int = 1 << 20) -> dict[str, ModelFile]:
    files, headers = [], {}
    for number, tensors in (("1", FIRST), ("2", SECOND)):
        size = 100 + sum(one.size for one in tensors)
        url = f"hf://org/name/{number}"
        content = (
            RemoteRange(url=url, offset=0, length=size)
            if remote
            else FileRange(path=f"/m/{number}", offset=0, length=size)
        )
        path = f"{number}.safetensors"
        files.append(ModelFile(path=path, role="weights", content=content))
        headers[path] = WeightsHeader(tensors=tensors, metadata={}, data_offset=100)
    read = read_tensors(reversed(files), lambda file: headers[file.path])
    made = quantized_files(read, QUANTIZED, {}, shard_bytes=limit)
    return {file.path: file for file in made}


def header_of(file: ModelFile) -> dict[str, tuple[str, list[int], list[int]]]:
    assert isinstance(file.content, Blob)
    first = file.content.segments[0]
    assert isinstance(first, Inline)
    (length,) = struct.unpack("<Q", first.data[:8])
    assert (len(first.data), length % 8) == (8 + length, 0)
    told = json.loads(first.data[8:])
    assert told.pop("__metadata__") == {"format": "pt"}
    return {name: (one["dtype"], one["shape"], one["data_offsets"]) for name, one in told.items()}


def test_embeddings_and_the_head_are_apart_and_files_follow_the_sources() -> None:
    files = described()

    assert {
        path: list(header_of(file)) for path, file in files.items() if file.role == "weights"
    } == {
        "model-shared-00001-of-00002.safetensors": ["embed_tokens.weight"],
        "model-quantized-00001-of-00002.safetensors": [
            "layers.0.a.weight",
            "layers.0.a.weight_scale",
            "layers.0.norm.weight",
            "layers.0.z.bias",
        ],
        "model-quantized-00002-of-00002.safetensors": [
            "layers.1.a.weight",
            "layers.1.a.weight_scale",
        ],
        "model-shared-00002-of-00002.safetensors": ["lm_head.weight"],
    }


def test_the_index_names_every_tensor_and_the_size_of_all() -> None:
    content = described()["model.safetensors.index.json"].content
    assert isinstance(content, Inline)
    index = json.loads(content.data)

    assert index["metadata"] == {"total_size": 64 + 24 + 12 + 8 + 12 + 8 + 4 + 64}
    assert index["weight_map"]["layers.1.a.weight_scale"].startswith("model-quantized-00002")
    assert len(index["weight_map"]) == 8


def test_what_stands_beside_each_other_in_the_source_is_one_range() -> None:
    file = described()["model-quantized-00001-of-00002.safetensors"]
    assert isinstance(file.content, Blob)

    _, computed, rest = file.content.segments
    assert isinstance(computed, Computed)
    assert computed.sources == (FileRange(path="/m/1", offset=164, length=48),)
    assert rest == FileRange(path="/m/1", offset=212, length=20)
    entry = header_of(file)["layers.0.a.weight_scale"]
    assert entry == ("BF16", [6, 1], [24, 36])


def test_files_end_where_they_would_be_too_large() -> None:
    paths = [path for path in described(limit=40) if "quantized" in path]

    assert paths == [f"model-quantized-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]


def test_layers_that_are_computed_of_one_remote_file_are_read_in_its_order() -> None:
    files = [file for file in described(remote=True).values() if file.role == "weights"]
    layers = [
        Layer(role="weights", blob=one.content) for one in files if isinstance(one.content, Blob)
    ]

    assert sorted(chains(layers, range(4))) == [[0, 1], [2, 3]]
    assert not any(is_local(layer.blob) for layer in layers)


def test_a_tensor_that_would_not_begin_at_a_multiple_of_its_size_is_found() -> None:
    odd = (tensor("layers.0.a.weight", (3, 3)), tensor("layers.0.b.weight", (2, 2)))
    quantized = dict.fromkeys((one.name for one in odd), FP8)

    assert find_unaligned(FIRST, QUANTIZED, 1 << 20) == ""
    assert find_unaligned(odd, quantized, 1 << 20) == "layers.0.a.weight"
