"""Values of scales, as they are in the files."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from packager.core.image import Blob, FileRange, RemoteRange
from packager.core.model import ModelFile, ModelFiles, ModelRef, ScaleValues, TensorInfo
from packager.images.blobs import BlobReader
from packager.models.checkpoints.gate import quantized_scales
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.models.safetensors import read_weights_header
from packager.models.scales import MAX_REMOTE_RANGES, REREAD_BYTES, read_scale_values
from tests.support.cases import read_tables
from tests.support.doubles.models import safetensors_bytes
from tests.support.quantized import FORMATS, arriving, gpt_oss, save

unhex = bytes.fromhex
COUNT = 100
TABLES = read_tables(__file__)

# element type: its 1, its infinity or what it has instead, its numbers that are none, its zeros
SPELLED = {
    kind: (unhex(row["one"]), [*map(unhex, row["not_finite"])], [*map(unhex, row["zero"])])
    for kind, row in TABLES["spelled"].items()
}
NOT_FINITE = [(kind, value) for kind, (_, values, _) in SPELLED.items() for value in values]
ZERO = [(kind, value) for kind, (_, _, values) in SPELLED.items() for value in values]
NUMBERS = [(kind, unhex(value)) for kind, value in TABLES["numbers"]]


def in_hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def written(directory: Path, tensors: Mapping[str, tuple[str, bytes]]) -> ModelFiles:
    """Write tensors of one dimension into a file, and describe it."""
    header: dict[str, object] = {}
    infos, data = [], b""
    for name, (kind, own) in tensors.items():
        size = len(SPELLED[kind][0])
        shape = [len(own) // size]
        offsets = [len(data), len(data) + len(own)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
        file = "model.safetensors"
        infos.append(
            TensorInfo(name=name, dtype=kind, shape=tuple(shape), size=len(own), file=file)
        )
        data += own
    path = directory / "model.safetensors"
    path.write_bytes(safetensors_bytes(header, data))
    content = FileRange(path=str(path), offset=0, length=path.stat().st_size)
    file = ModelFile(path="model.safetensors", role="weights", content=content)
    ref = ModelRef(source="local", name="model")
    return ModelFiles(ref=ref, files=(file,), config={}, tensors=tuple(infos))


def read(model: ModelFiles, **limits: int) -> ScaleValues:
    reader = BlobReader()
    return read_scale_values(
        model,
        model.tensors,
        read_header=lambda file: read_weights_header(file, reader.read),
        read=reader.read,
        **limits,
    )


@pytest.mark.parametrize(("kind", "value"), NOT_FINITE, ids=in_hex)
def test_a_scale_that_is_not_finite_is_found(tmp_path: Path, kind: str, value: bytes) -> None:
    one = SPELLED[kind][0]
    own = one * (COUNT - 1) + value
    found = read(written(tmp_path, {"a_scale": (kind, one * COUNT), "b_scale": (kind, own)}))

    assert (found.not_finite, found.zero, found.some_zero) == (("b_scale",), (), ())
    assert found.read_bytes == found.total_bytes == 2 * COUNT * len(one)


@pytest.mark.parametrize(("kind", "value"), ZERO, ids=in_hex)
def test_a_scale_that_is_0_throughout_is_found(tmp_path: Path, kind: str, value: bytes) -> None:
    one = SPELLED[kind][0]
    model = written(tmp_path, {"a_scale": (kind, one * COUNT), "b_scale": (kind, value * COUNT)})

    found = read(model)

    assert (found.not_finite, found.zero, found.some_zero) == ((), ("b_scale",), ())


@pytest.mark.parametrize("kind", ["F32", "F64", "F16", "BF16"])
def test_a_single_0_among_scales_is_told_from_a_scale_of_0(tmp_path: Path, kind: str) -> None:
    one, _, (zero, *_) = SPELLED[kind]
    found = read(written(tmp_path, {"a_scale": (kind, one * (COUNT - 1) + zero)}))

    assert (found.zero, found.some_zero) == ((), ("a_scale",))


def test_a_few_8_bit_scales_of_0_are_groups_of_next_to_nothing(tmp_path: Path) -> None:
    few = b"\x38" * 95 + bytes(5)
    many = b"\x38" * 80 + bytes(20)
    model = written(tmp_path, {"a_scale": ("F8_E4M3", few), "b_scale": ("F8_E4M3", many)})

    assert read(model).some_zero == ("b_scale",)


@pytest.mark.parametrize(("kind", "value"), NUMBERS, ids=in_hex)
def test_the_largest_and_the_smallest_numbers_pass(tmp_path: Path, kind: str, value: bytes) -> None:
    found = read(written(tmp_path, {"a_scale": (kind, value * COUNT)}))

    assert (found.not_finite, found.zero, found.some_zero) == ((), (), ())


def test_sums_of_doubles_that_overflow_are_no_infinity(tmp_path: Path) -> None:
    large = struct.pack("<d", 1.7e308)

    assert read(written(tmp_path, {"a_scale": ("F64", large * COUNT)})).not_finite == ()


def test_more_scales_than_the_limit_are_read_in_part_each(tmp_path: Path) -> None:
    one = SPELLED["F16"][0]
    tensors = {f"{number}_scale": ("F16", one * 50_000) for number in range(8)}
    tensors["3_scale"] = ("F16", b"\0\x7e" * 50_000)
    model = written(tmp_path, tensors)

    found = read(model, max_bytes=8 * 1000)

    assert (found.read_bytes, found.total_bytes) == (8 * 1000, 8 * 100_000)
    assert found.not_finite == ("3_scale",)
    assert found == read(model, max_bytes=8 * 1000)


def test_a_part_of_nothing_but_0_is_no_proof_and_the_whole_is_read(tmp_path: Path) -> None:
    one = SPELLED["F16"][0]
    tensors = {"a_scale": ("F16", bytes(90_000) + one * 5_000), "b_scale": ("F16", bytes(100_000))}

    found = read(written(tmp_path, tensors), max_bytes=200)

    assert found.zero == ("b_scale",)
    assert found.some_zero == ("a_scale",)


def test_a_part_of_nothing_but_0_of_a_tensor_too_large_to_read_is_a_warning(tmp_path: Path) -> None:
    zeros = bytes(REREAD_BYTES + 2)

    found = read(written(tmp_path, {"a_scale": ("F16", zeros)}), max_bytes=200)

    assert (found.zero, found.some_zero, found.read_bytes) == ((), ("a_scale",), 200)


def test_files_that_are_elsewhere_are_asked_a_bounded_number_of_times(tmp_path: Path) -> None:
    one = SPELLED["F32"][0]
    tensors = {f"{number}_scale": ("F32", one * 4) for number in range(2 * MAX_REMOTE_RANGES)}
    model = written(tmp_path, tensors)
    data = (tmp_path / "model.safetensors").read_bytes()
    asked: list[RemoteRange] = []

    def fetch(blob: Blob) -> bytes:
        (segment,) = blob.segments
        assert isinstance(segment, RemoteRange)
        asked.append(segment)
        return data[segment.offset : segment.offset + segment.length]

    content = RemoteRange(url="hub://org/model", offset=0, length=len(data))
    file = ModelFile(path="model.safetensors", role="weights", content=content)
    there = ModelFiles(ref=model.ref, files=(file,), config={}, tensors=model.tensors)
    found = read_scale_values(
        there, there.tensors, read_header=lambda one: read_weights_header(one, fetch), read=fetch
    )

    assert len(asked) == MAX_REMOTE_RANGES + 2  # and the header, twice
    assert all(segment.in_order for segment in asked)
    assert found.read_bytes == 16 * MAX_REMOTE_RANGES
    assert found.not_finite == found.zero == ()


@pytest.mark.parametrize("form", [*(one.id for one in FORMATS), "gpt-oss"])
def test_the_scales_of_every_writers_files_are_read(tmp_path: Path, form: str) -> None:
    source = gpt_oss() if form == "gpt-oss" else arriving(form)
    model = LocalSource().facts(parse_model_reference(str(save(source, tmp_path / "sound"))))
    scales = quantized_scales(model)
    reader = BlobReader()

    def values(of: ModelFiles) -> ScaleValues:
        return read_scale_values(
            of,
            scales,
            read_header=lambda file: read_weights_header(file, reader.read),
            read=reader.read,
        )

    assert scales
    sound = values(model)
    assert (sound.not_finite, sound.zero, sound.some_zero) == ((), (), ())
    floats = [one for one in scales if one.dtype in SPELLED and not one.name.endswith(".absmax")]
    scale = floats[len(floats) // 2] if floats else scales[0]
    broken = SPELLED[scale.dtype][1][0] * (scale.size // len(SPELLED[scale.dtype][0]))
    damaged = save(source, tmp_path / "damaged", {scale.name: broken})
    found = values(LocalSource().facts(parse_model_reference(str(damaged))))
    assert found.not_finite == ((scale.name,) if floats else ())
