"""Adapters folded into a base: sums exact to the last bit, the same everywhere, or a refusal."""

from __future__ import annotations

import itertools
import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from packager.core.adapters import WEIGHTS, AdaptedModule, Adapter, AdapterForm
from packager.core.errors import ModelRefused
from packager.core.image import Blob, FileRange, Inline
from packager.core.model import ModelFile, ModelFiles, ModelRef, TensorInfo
from packager.images.blobs import BlobReader
from packager.images.digest_index import fingerprint_of
from packager.models.safetensors import read_weights_header
from packager.optimize.merge import segments
from packager.optimize.merge.files import merged_files
from packager.optimize.merge.targets import find_targets
from packager.optimize.quantize.stream.formats import Format
from packager.optimize.quantize.stream.layout import quantized_files
from packager.optimize.stream.tensors import cut_segments, read_tensors
from tests.support.adapters import safetensors_file
from tests.support.cases import cases_of

cases = cases_of(__file__)

Shapes = Mapping[str, tuple[int, ...]]
MANTISSA = {"BF16": 8, "F16": 11, "F32": 24}
LEAST = {"BF16": -126, "F16": -14, "F32": -126}
Q, HEAD = "model.layers.0.self_attn.q_proj", "lm_head"
BASE: Shapes = {
    "model.embed_tokens.weight": (24, 8),
    f"{Q}.weight": (12, 8),
    "model.norm.weight": (8,),
    "lm_head.weight": (24, 8),
}


def info(name: str, shape: tuple[int, ...], dtype: str = "BF16", file: str = "") -> TensorInfo:
    return TensorInfo(name, dtype, shape, math.prod(shape) * (4 if dtype == "F32" else 2), file)


def module(
    path: str, outputs: int, inputs: int, *, rank: int = 2, experts: int = 1, **changes: Any
) -> AdaptedModule:
    is_embedding = changes.get("form") == "embedding"
    form: AdapterForm = "experts" if experts > 1 else changes.pop("form", "linear")
    dtype = changes.pop("dtype", "F32")
    kind, end = ("lora_embedding_", "") if is_embedding else ("lora_", ".weight")
    a, b = (
        info(f"base_model.model.{path}.{kind}{part}{end}", shape, dtype)
        for part, shape in (("A", (rank * experts, inputs)), ("B", (outputs, rank * experts)))
    )
    return AdaptedModule(
        path=path,
        form=form,
        rank=rank,
        inputs=inputs,
        outputs=outputs,
        scale=changes.pop("scale", 0.5),
        dtype=dtype,
        a=a,
        b=b,
    )


def adapter_of(*modules: AdaptedModule, files: tuple[ModelFile, ...] = (), **more: Any) -> Adapter:
    return Adapter(
        name="sql",
        ref=ModelRef(source="local", name="sql"),
        files=files,
        left_out={},
        config=more.pop("config", {}),
        rank=2,
        alpha=1,
        modules=modules,
        **more,
    )


def model_of(shapes: Shapes, place: Path | None = None, dtype: str = "BF16", **config: Any) -> Any:
    """Return a base of these tensors, written into `place` if there is one."""
    files: tuple[ModelFile, ...] = ()
    if place is not None:
        files = (written(place / "model.safetensors", safetensors_file(shapes, dtype, seed=7)),)
    tensors = tuple(info(name, shape, dtype, "model.safetensors") for name, shape in shapes.items())
    ref = ModelRef(source="local", name="base")
    return ModelFiles(ref=ref, files=files, config=config, tensors=tensors)


def written(path: Path, data: bytes) -> ModelFile:
    path.write_bytes(data)
    content = FileRange(path=str(path), offset=0, length=len(data))
    return ModelFile(path=path.name, role="weights", content=content)


def with_files(adapter: Adapter, place: Path, *, size: float = 1.0) -> Adapter:
    shapes = {one.name: one.shape for each in adapter.modules for one in (each.a, each.b)}
    data = safetensors_file(shapes, adapter.modules[0].dtype, seed=3, size=size)
    return replace(adapter, files=(written(place / WEIGHTS, data),))


def merged(model: ModelFiles, adapter: Adapter) -> ModelFiles:
    return merged_files(model, adapter, header_of)


def header_of(file: ModelFile) -> Any:
    return read_weights_header(file, BlobReader().read)


def blob_of(file: ModelFile) -> Blob:
    return file.content if isinstance(file.content, Blob) else Blob((file.content,))


def tensors_in(file: ModelFile) -> dict[str, list[Fraction]]:
    """Return every tensor's numbers, exactly."""
    return {
        one.info.name: list(numbers(BlobReader().read(Blob((one.place,))), one.info.dtype))
        for one in read_tensors((file,), header_of)
    }


def numbers(data: bytes, dtype: str) -> Iterator[Fraction]:
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
    for (value,) in struct.iter_unpack("<e" if dtype == "F16" else "<f", data):
        yield Fraction(value)


def step(value: Fraction, dtype: str) -> Fraction:
    """Return how far numbers of a type are from each other at a value."""
    exponent = max(math.frexp(float(value))[1] - 1, LEAST[dtype])
    return Fraction(2) ** (exponent - MANTISSA[dtype] + 1)


def is_sum(found: Fraction, exact: Fraction, dtype: str) -> bool:
    """Whether a number is the nearest of its type; the sum was rounded to float32 before."""
    half = step(exact, dtype) / 2
    return abs(found - exact) <= half + step(exact, "F32")


@pytest.mark.parametrize("lora", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_each_element_is_the_nearest_to_the_sum(tmp_path: Path, dtype: str, lora: str) -> None:
    model = model_of(BASE, tmp_path, dtype)
    adapter = with_files(adapter_of(module(Q, 12, 8, rank=3, scale=0.7, dtype=lora)), tmp_path)
    base, thin = tensors_in(model.files[0]), tensors_in(adapter.files[0])
    (one,) = adapter.modules
    a, b, scale = thin[one.a.name], thin[one.b.name], Fraction(one.scale)

    found = tensors_in(merged(model, adapter).files[0])

    name = f"{Q}.weight"
    for row, column in itertools.product(range(12), range(8)):
        product = total(b[row * 3 + rank] * a[rank * 8 + column] for rank in range(3))
        exact = base[name][row * 8 + column] + scale * product
        assert is_sum(found[name][row * 8 + column], exact, dtype), (row, column)
    assert {key for key in base if base[key] != found[key]} == {name}


EXPERTS = "model.layers.0.mlp.experts"
LAYOUTS: Mapping[str, Shapes] = {
    "one tensor of all": {f"{EXPERTS}.gate_up_proj": (3, 8, 6)},
    "inputs by outputs": {f"{EXPERTS}.gate_up_proj": (3, 6, 8)},
    "one of each": {
        f"{EXPERTS}.{number}.{part}.weight": (4, 6)
        for number in range(3)
        for part in ("gate_proj", "up_proj")
    },
    "of Mixtral": {
        f"model.layers.0.block_sparse_moe.experts.{number}.{part}.weight": (4, 6)
        for number in range(3)
        for part in ("w1", "w3")
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_parameter_of_all_experts_is_added_to_experts_however_they_are_stored(
    tmp_path: Path, layout: str
) -> None:
    shapes = LAYOUTS[layout]
    model = model_of(shapes, tmp_path, "F32")
    adapter = with_files(adapter_of(module(EXPERTS, 8, 6, rank=2, experts=3)), tmp_path)
    base, thin = tensors_in(model.files[0]), tensors_in(adapter.files[0])
    (one,) = adapter.modules
    a, b = thin[one.a.name], thin[one.b.name]

    found = tensors_in(merged(model, adapter).files[0])

    for expert, output, given in itertools.product(range(3), range(8), range(6)):
        product = total(
            b[output * 6 + rank * 3 + expert] * a[(expert * 2 + rank) * 6 + given]
            for rank in range(2)
        )
        name, at = place_of(layout, shapes, expert, output, given)
        exact = base[name][at] + product / 2
        assert abs(found[name][at] - exact) <= step(exact, "F32") + step(product, "F32")


def total(terms: Iterable[Fraction]) -> Fraction:
    return sum(terms, Fraction(0))


def place_of(layout: str, shapes: Shapes, expert: int, output: int, given: int) -> tuple[str, int]:
    """Return the tensor of one weight, and which of its elements it is."""
    if len(shapes) > 1:
        part = [*shapes][expert * 2 + output // 4]
        return part, output % 4 * 6 + given
    (name,) = shapes
    if layout == "inputs by outputs":
        return name, (expert * 6 + given) * 8 + output
    return name, (expert * 8 + output) * 6 + given


def test_an_embedding_and_a_head_of_its_own_are_changed(tmp_path: Path) -> None:
    model = model_of(BASE, tmp_path, "F32", tie_word_embeddings=False)
    parts = (
        module("model.embed_tokens", 8, 24, form="embedding"),
        module(HEAD, 24, 8),
    )
    adapter = with_files(adapter_of(*parts), tmp_path)
    base, thin = tensors_in(model.files[0]), tensors_in(adapter.files[0])
    a, b = thin[parts[0].a.name], thin[parts[0].b.name]

    found = tensors_in(merged(model, adapter).files[0])

    name = "model.embed_tokens.weight"
    for token, column in itertools.product(range(24), range(8)):
        product = total(a[rank * 24 + token] * b[column * 2 + rank] for rank in range(2))
        exact = base[name][token * 8 + column] + product / 2
        near = step(exact, "F32") + step(product, "F32")
        assert abs(found[name][token * 8 + column] - exact) <= near
    assert found["lm_head.weight"] != base["lm_head.weight"]


def built(place: Path, dtype: str = "BF16") -> ModelFile:
    adapter = with_files(adapter_of(module(Q, 12, 8), module(HEAD, 24, 8)), place)
    return merged(model_of(BASE, place, dtype), adapter).files[0]


def test_names_headers_and_sizes_are_the_bases(tmp_path: Path) -> None:
    model = model_of(BASE, tmp_path)
    adapter = with_files(adapter_of(module(Q, 12, 8), module(HEAD, 24, 8)), tmp_path)

    file = merged(replace(model, files=(replace(model.files[0], sha256="0" * 64),)), adapter).files[
        0
    ]

    assert header_of(file) == header_of(model.files[0])
    assert (file.path, file.size, file.sha256) == (model.files[0].path, model.files[0].size, "")
    assert BlobReader().read(blob_of(file)) != BlobReader().read(blob_of(model.files[0]))


@pytest.mark.parametrize("elements", [1, 17, 1 << 20])
def test_bytes_depend_neither_on_blocks_nor_on_where_they_are_cut(
    tmp_path: Path, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = built(tmp_path)
    whole = BlobReader().read(blob_of(file))
    monkeypatch.setattr(segments, "BLOCK_ELEMENTS", elements)

    for start, length in ((0, len(whole)), (500, 333), (len(whole) - 1, 1)):
        part = Blob(tuple(cut_segments(file.content, start, length)))
        assert BlobReader().read(part) == whole[start : start + length]


def test_the_fingerprint_says_the_adapter_too(tmp_path: Path) -> None:
    first = fingerprint_of(blob_of(built(tmp_path)))
    model = model_of(BASE, tmp_path)
    other = adapter_of(module(Q, 12, 8, scale=0.25), module(HEAD, 24, 8))

    second = fingerprint_of(blob_of(merged(model, with_files(other, tmp_path)).files[0]))

    assert first is not None
    assert second is not None
    assert first.text != second.text


@pytest.mark.parametrize("kind", ["fp8", "nvfp4"])
def test_what_is_quantized_in_the_stream_is_the_merged_matrix(tmp_path: Path, kind: Any) -> None:
    form = Format(kind=kind, group_size=16 if kind == "nvfp4" else 0)
    shapes = {f"{Q}.weight": (16, 32), f"{Q[:-6]}k_proj.weight": (16, 32)}
    (tmp_path / "whole").mkdir()
    adapter = with_files(adapter_of(module(Q, 16, 32)), tmp_path)
    streamed = merged(model_of(shapes, tmp_path), adapter).files[0]
    whole = written(tmp_path / "whole/model.safetensors", BlobReader().read(blob_of(streamed)))
    quantized = dict.fromkeys(shapes, form)
    fused = {one: (*{*shapes} - {one},) for one in shapes} if kind == "nvfp4" else {}

    made = [
        [
            BlobReader().read(blob_of(one))
            for one in quantized_files(
                read_tensors((file,), header_of), quantized, fused, shard_bytes=1 << 30
            )
        ]
        for file in (streamed, whole)
    ]

    assert made[0] == made[1]
    assert len(made[0]) == 2


@cases("beyond")
def test_what_is_no_number_of_the_type_is_refused(
    tmp_path: Path, dtype: str, size: float, scale: float, bits: str, told: str
) -> None:
    model = model_of(BASE, tmp_path, dtype)
    adapter = with_files(
        adapter_of(module(Q, 12, 8, scale=scale, dtype="F32")), tmp_path, size=size
    )
    if bits:
        place = tmp_path / WEIGHTS
        place.write_bytes(place.read_bytes()[:-4] + bytes.fromhex(bits))

    with pytest.raises(ModelRefused, match=told):
        BlobReader().read(blob_of(merged(model, adapter).files[0]))


@cases("refused")
def test_what_would_be_another_model_is_refused(
    base: dict[str, list[Any]] | None,
    config: dict[str, Any] | None,
    dtype: str | None,
    modules: list[dict[str, Any]] | None,
    more: dict[str, Any] | None,
    told: str,
) -> None:
    shapes = {name: tuple(shape) for name, shape in base.items()} if base else BASE
    model = model_of(shapes, dtype=dtype or "BF16", **(config or {}))
    given = [module(**one) for one in modules or [{"path": Q, "outputs": 12, "inputs": 8}]]
    extra = dict(more or {})
    if "others" in extra:
        extra["others"] = tuple(info(name, tuple(shape)) for name, shape in extra["others"])

    with pytest.raises(ModelRefused, match=told) as refused:
        find_targets(model, adapter_of(*given, **extra))

    assert refused.value.code == "AdapterUnmerged"


@cases("found")
def test_names_of_checkpoints_and_paths_of_modules_meet(
    path: str, tensor: str, shape: tuple[int, ...], turned: bool | None
) -> None:
    model = model_of({tensor: shape, "model.norm.weight": (8,)})
    sides = (shape[1], shape[0]) if turned else (shape[0], shape[1])
    config = {"fan_in_fan_out": True} if turned else {}

    (target,) = find_targets(model, adapter_of(module(path, *sides), config=config))

    assert target.tensor.name == tensor
    assert target.updates[0].transposed == bool(turned)


def test_what_is_inline_is_cut_too() -> None:
    content = Blob((Inline(b"abcdef"), Inline(b"ghi")))

    assert list(cut_segments(content, 4, 3)) == [Inline(b"ef"), Inline(b"g")]
    assert json.dumps([one.length for one in cut_segments(content, 0, 9)]) == "[6, 3]"
