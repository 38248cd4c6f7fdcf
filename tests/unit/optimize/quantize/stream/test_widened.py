"""FP8 in blocks as bfloat16: the same numbers from any place of the scales, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import ModelRefused
from packager.core.image import Blob, FileRange, RemoteRange
from packager.core.model import ModelFile, ModelFiles, ModelRef
from packager.images.blobs import BlobReader
from packager.models.safetensors import read_weights_header
from packager.optimize.quantize.stream.widened import block_of, widened
from tests.support.block_checkpoints import CONFIG, Order, split_scales
from tests.support.doubles.models import fill_with_numbers, safetensors_bytes, write_model


def source_in(place: Path) -> Path:
    """Write a small model whose matrices are no multiples of a block."""
    source = write_model(place, hidden_size=192, intermediate_size=320, heads=2, kv_heads=1)
    fill_with_numbers(source)
    return source


class InOrder:
    """A hub that notes which bytes of a file are read in order, and refuses to go back."""

    scheme = "hub"

    def __init__(self, place: Path) -> None:
        self.place, self.read_to = place, dict[str, int]()

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        name = segment.url.partition("://")[2]
        if segment.in_order:
            assert self.read_to.get(name, segment.offset) == segment.offset, segment
            self.read_to[name] = segment.offset + segment.length
        data = (self.place / name).read_bytes()
        yield data[segment.offset : segment.offset + segment.length]


def model_in(place: Path, *, remote: bool = False) -> tuple[ModelFiles, BlobReader, InOrder]:
    hub = InOrder(place)
    reader = BlobReader((hub,))
    files = []
    for path in sorted(place.glob("*.safetensors")):
        size = path.stat().st_size
        content = (
            RemoteRange(url=f"hub://{path.name}", offset=0, length=size)
            if remote
            else FileRange(path=str(path), offset=0, length=size)
        )
        files.append(ModelFile(path=path.name, role="weights", content=content, sha256="a" * 64))
    model = ModelFiles(
        ref=ModelRef(source="local", name="m"),
        files=tuple(files),
        config=json.loads((place / "config.json").read_text()),
        tensors=tuple(
            tensor for file in files for tensor in read_weights_header(file, reader.read).tensors
        ),
    )
    return model, reader, hub


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("scale", ["F32", "BF16"])
@pytest.mark.parametrize("order", ["first", "beside", "last"])
def test_each_file_has_the_numbers_that_weights_and_scales_mean(
    tmp_path: Path, order: Order, scale: str, remote: bool
) -> None:
    source = source_in(tmp_path / "bf16")
    place = split_scales(source, tmp_path / "fp8", order, scale)
    model, reader, hub = model_in(place, remote=remote)
    hub.read_to.clear()

    made = widened(
        model, lambda file: read_weights_header(file, BlobReader((InOrder(place),)).read)
    )

    assert "quantization_config" not in made.config
    for file in made.files:
        if isinstance(file.content, Blob):
            content = reader.read(file.content)
            expected = (source / file.path).read_bytes()
            start, wanted = (8 + int.from_bytes(one[:8], "little") for one in (content, expected))
            assert json.loads(content[8:start]) == json.loads(expected[8:wanted])
            assert content[start:] == expected[wanted:]
            assert len(content) == file.size
            assert file.part_of == "a" * 64
            told = read_weights_header(file, reader.read).tensors
            assert told == tuple(one for one in made.tensors if one.file == file.path)
    if remote:  # all that lies behind a header, so that the digest of the file is proven
        behind = {name: (place / name).stat().st_size for name in hub.read_to}
        assert hub.read_to == behind


def test_scales_may_lie_in_another_file(tmp_path: Path) -> None:
    source = source_in(tmp_path / "bf16")
    place = split_scales(source, tmp_path / "fp8")
    model, _, _ = model_in(place)
    apart = move_scales(model, place)

    reader = BlobReader()
    made = widened(apart, lambda file: read_weights_header(file, reader.read))

    for file in made.files:
        if isinstance(file.content, Blob) and "scales" not in file.path:
            content, expected = reader.read(file.content), (source / file.path).read_bytes()
            start, wanted = (8 + int.from_bytes(one[:8], "little") for one in (content, expected))
            assert content[start:] == expected[wanted:]
            assert file.part_of == ("" if b"proj" in content[:start] else "a" * 64)


def move_scales(model: ModelFiles, place: Path) -> ModelFiles:
    """Copy all scales into a file of their own; the others keep bytes that nothing names."""
    entries, data = {}, b""
    for tensor in model.tensors:
        if tensor.name.endswith("_scale_inv"):
            own = read_tensor(place / tensor.file, tensor.name)
            offsets = [len(data), len(data) + len(own)]
            entries[tensor.name] = {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "data_offsets": offsets,
            }
            data += own
    (place / "scales.safetensors").write_bytes(safetensors_bytes(entries, data))
    for file in model.files:
        drop_scales(place / file.path)
    return model_in(place)[0]


def read_tensor(path: Path, name: str) -> bytes:
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:start])[name]["data_offsets"]
    return data[start + begin : start + end]


def drop_scales(path: Path) -> None:
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    entries, kept = {}, b""
    for name in (one for one in header if not one.endswith("_scale_inv")):
        own = read_tensor(path, name)
        entries[name] = header[name] | {"data_offsets": [len(kept), len(kept) + len(own)]}
        kept += own
    path.write_bytes(safetensors_bytes(entries, kept))


def missing(header: dict[str, Any], name: str) -> None:
    del header[f"{name}_scale_inv"]


def narrow(header: dict[str, Any], name: str) -> None:
    told = header[f"{name}_scale_inv"]
    told["shape"] = [told["shape"][0] * told["shape"][1], 1]


def flat(header: dict[str, Any], name: str) -> None:
    header[name]["shape"] = [header[name]["shape"][0] * header[name]["shape"][1]]


def orphan(header: dict[str, Any], name: str) -> None:
    header["other_scale_inv"] = header.pop(f"{name}_scale_inv")


def integer(header: dict[str, Any], name: str) -> None:
    header[f"{name}_scale_inv"]["dtype"] = "I32"


@pytest.mark.parametrize("spoil", [missing, narrow, flat, orphan, integer])
def test_a_scale_that_does_not_fit_is_refused_from_headers(
    tmp_path: Path, spoil: Callable[[dict[str, Any], str], None]
) -> None:
    source = source_in(tmp_path / "bf16")
    model, reader, _ = model_in(split_scales(source, tmp_path / "fp8"))
    header = {one.name: one._asdict() | {"shape": list(one.shape)} for one in model.tensors}
    spoil(header, "model.layers.0.mlp.down_proj.weight")
    tensors = tuple(
        next(one for one in model.tensors if one.name == told["name"])._replace(
            name=name, dtype=told["dtype"], shape=tuple(told["shape"])
        )
        for name, told in header.items()
    )
    spoiled = ModelFiles(ref=model.ref, files=model.files, config=model.config, tensors=tensors)

    with pytest.raises(ModelRefused, match=r"down_proj\.weight|other_scale_inv"):
        widened(spoiled, lambda file: read_weights_header(file, reader.read))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (128, 128)),
        ({"quant_method": "fbgemm_fp8"}, None),
        ({"weight_block_size": None}, None),
        ({"weight_block_size": [128]}, None),
        ({"weight_block_size": [0, 128]}, None),
        ({"weight_block_size": [128.0, 128]}, None),
        ({"activation_scheme": "static"}, None),
    ],
)
def test_only_that_form_is_converted(
    change: dict[str, Any], expected: tuple[int, int] | None
) -> None:
    assert block_of({"quantization_config": {**CONFIG, **change}}) == expected
