"""Large weights files as shards, read back tensor by tensor by the safetensors library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from packager.core.image import Blob, FileRange, Inline
from packager.core.model import ModelFile, WeightsHeader
from packager.core.units import GIB, MIB
from packager.images.balance import balanced_runs, runs_within
from packager.images.blobs import BlobReader
from packager.images.reshard import SPLIT_OVER, split_large
from packager.images.tar import ALIGNMENT, TarEntry, make_tar
from packager.models.safetensors import read_weights_header
from tests.support.cases import cases
from tests.support.doubles.models import safetensors_bytes, write_safetensors
from tests.support.made_images import whole

READER = BlobReader()


def weights_of(path: Path) -> ModelFile:
    content = whole(path)
    return ModelFile(path=path.name, role="weights", content=content, sha256="ab" * 32)


def header_of(file: ModelFile) -> WeightsHeader:
    return read_weights_header(file, READER.read)


def no_header(file: ModelFile) -> WeightsHeader:
    raise AssertionError(f"{file.path} was read")


def bytes_of(file: ModelFile) -> bytes:
    content = file.content
    return READER.read(content if isinstance(content, Blob) else Blob((content,)))


def written(files: tuple[ModelFile, ...], directory: Path) -> Path:
    directory.mkdir()
    for file in files:
        (directory / file.path).write_bytes(bytes_of(file))
    return directory


def layer_sizes(files: Iterable[ModelFile]) -> list[int]:
    """Return the sizes of layers that hold one file each."""
    return [
        make_tar([TarEntry(path=f"/opt/packager/model/{file.path}", content=file.content)]).size
        for file in files
    ]


def header_of_bytes(count: int, size: int) -> dict[str, object]:
    """Return a header of tensors of bytes, one behind the other."""
    return {
        f"layer.{number}": {
            "dtype": "U8",
            "shape": [size],
            "data_offsets": [number * size, (number + 1) * size],
        }
        for number in range(count)
    }


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """Tensors of several dtypes and sizes, an empty one, and metadata."""
    random = np.random.default_rng(0)
    path = tmp_path / "model.safetensors"
    save_file(
        {
            **{f"layer.{number}.weight": random.random((64, 100 + number)) for number in range(40)},
            "norm": random.random(33).astype(np.float32),
            "half": random.random(1001).astype(np.float16),
            "odd": np.arange(7, dtype=np.uint8),
            "scalar": np.array(3, dtype=np.int64),
            "empty": np.zeros((0, 4), dtype=np.float32),
        },
        path,
        metadata={"format": "pt", "made by": 'a "quoted" ünit'},
    )
    return path


def test_the_shards_hold_the_same_tensors_and_metadata(single: Path, tmp_path: Path) -> None:
    out = written(split_large([weights_of(single)], header_of, limit=MIB), tmp_path / "out")
    shards = sorted(out.glob("*.safetensors"))
    assert [path.name for path in shards] == [
        f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)
    ]
    index = json.loads((out / "model.safetensors.index.json").read_bytes())
    whole = load_file(single)
    found = {}
    for path in shards:
        with safe_open(path, framework="numpy") as opened:
            assert opened.metadata() == {"format": "pt", "made by": 'a "quoted" ünit'}
            assert all(index["weight_map"][name] == path.name for name in opened.keys())  # noqa: SIM118
        found |= load_file(path)
    assert found.keys() == whole.keys() == index["weight_map"].keys()
    for name, tensor in whole.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].tobytes() == tensor.tobytes()
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in whole.values())


def test_layers_of_shards_stay_within_the_limit_and_are_alike_in_size(single: Path) -> None:
    sizes = layer_sizes(split_large([weights_of(single)], header_of, limit=MIB)[:-1])
    assert max(sizes) <= MIB
    assert min(sizes) > max(sizes) * 0.8


def test_a_shard_is_a_header_and_one_range_of_the_original(single: Path) -> None:
    for file in split_large([weights_of(single)], header_of, limit=MIB)[:-1]:
        assert isinstance(file.content, Blob)
        header, data = file.content.segments
        assert isinstance(header, Inline)
        assert isinstance(data, FileRange)
        assert data.path == str(single)
        assert len(header.data) % 8 == 0
        assert (len(header.data) - data.offset) % ALIGNMENT == 0  # extents can be shared
        assert file.sha256 == ""


def test_shards_of_unaligned_data_have_headers_of_a_multiple_of_8(tmp_path: Path) -> None:
    """Early writers did not pad their headers: the data then begins anywhere."""
    entries = header_of_bytes(9, 60_000)
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * ((3 - len(text)) % 8)
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(200)) * 2700)

    files = split_large([weights_of(path)], header_of, limit=300_000)

    shards = sorted(written(files, tmp_path / "out").glob("*.safetensors"))
    assert len(shards) == 3
    for shard in shards:
        assert int.from_bytes(shard.read_bytes()[:8], "little") % 8 == 0
    found = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
    assert {name: tensor.tobytes() for name, tensor in found.items()} == {
        name: tensor.tobytes() for name, tensor in load_file(path).items()
    }


def test_the_same_file_elsewhere_gives_the_same_shards(single: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    copy = other / single.name
    copy.write_bytes(single.read_bytes())

    one = split_large([weights_of(single)], header_of, limit=MIB)
    two = split_large([weights_of(copy)], header_of, limit=MIB)

    assert [(file.path, bytes_of(file)) for file in one] == [
        (file.path, bytes_of(file)) for file in two
    ]


def test_without_a_limit_only_what_is_over_5_gib_is_split() -> None:
    content = FileRange(path="/nowhere", offset=0, length=SPLIT_OVER)
    files = (ModelFile(path="model.safetensors", role="weights", content=content),)

    assert split_large(files, no_header) == files


def test_what_is_over_5_gib_becomes_equal_shards_below_4(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensor = GIB // 2
    framed = safetensors_bytes(header_of_bytes(12, tensor))
    path.write_bytes(framed)
    with path.open("r+b") as stream:
        stream.truncate(len(framed) + 12 * tensor)  # a hole

    files = split_large([weights_of(path)], header_of)

    sizes = [file.size for file in files if file.role == "weights"]
    assert [size // tensor for size in sizes] == [6, 6]


def test_several_large_shards_are_split_and_named_anew_with_the_small_ones(tmp_path: Path) -> None:
    for number, height in enumerate((1000, 10, 3000), 1):
        tensors = {f"{number}.{part}": ("U8", (height, 200)) for part in range(4)}
        write_safetensors(tmp_path / f"model-{number:05}-of-00003.safetensors", tensors)
    shards = [weights_of(path) for path in sorted(tmp_path.glob("*.safetensors"))]
    old_index = ModelFile(
        path="model.safetensors.index.json", role="config", content=Inline(b'{"weight_map": {}}')
    )
    config = ModelFile(path="config.json", role="config", content=Inline(b"{}"))

    files = split_large([config, *shards, old_index], header_of, limit=MIB)

    assert [file.path for file in files] == [
        "config.json",
        *(f"model-0000{number}-of-00006.safetensors" for number in range(1, 7)),
        "model.safetensors.index.json",
    ]
    assert files[1].content == shards[0].content  # 0.8 MB: as it was, with its digest
    assert files[1].sha256 == shards[0].sha256
    assert files[2].content == shards[1].content
    index = json.loads(bytes_of(files[-1]))
    assert index["metadata"]["total_size"] == 4 * 200 * 4010
    assert sorted(set(index["weight_map"].values())) == [file.path for file in files[1:-1]]


def test_a_tensor_over_the_limit_is_a_shard_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    sizes = {"a": 100_000, "huge": 3_000_000, "b": 100_000, "c": 100_000}
    write_safetensors(path, {name: ("U8", (size,)) for name, size in sizes.items()})

    files = split_large([weights_of(path)], header_of, limit=MIB)

    weight_map = json.loads(bytes_of(files[-1]))["weight_map"]
    assert weight_map["huge"].startswith("model-00002-of-00003")
    assert list(weight_map.values()).count(weight_map["huge"]) == 1


@pytest.mark.parametrize(
    ("name", "tensors", "read"),
    [("model", ["huge"], header_of), ("medusa_lm_head", ["0", "1"], no_header)],
    ids=["a single tensor", "engines find it by its name"],
)
def test_a_file_that_cannot_be_split_stays_as_it_is(
    tmp_path: Path, name: str, tensors: list[str], read: Callable[[ModelFile], WeightsHeader]
) -> None:
    path = tmp_path / f"{name}.safetensors"
    write_safetensors(path, dict.fromkeys(tensors, ("U8", (3_000_000,))))
    files = (weights_of(path),)

    assert split_large(files, read, limit=MIB) == files


@cases("runs")
def test_runs_are_balanced(sizes: list[int], count: int, expected: list[int]) -> None:
    assert [len(run) for run in balanced_runs(sizes, count)] == expected


def test_runs_cover_everything_once_and_in_order() -> None:
    sizes = [(number * 7919) % 100 for number in range(500)]

    for runs in (runs_within(sizes, 150), balanced_runs(sizes, 37)):
        assert [position for run in runs for position in run] == list(range(500))
    assert all(sum(sizes[i] for i in run) <= 150 for run in runs_within(sizes, 150))
    assert len(balanced_runs(sizes, 37)) <= 37


def test_headers_of_many_small_tensors_count_for_the_limit(tmp_path: Path) -> None:
    """16 bytes of a tensor take 80 bytes of header: layers were five times too large."""
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {f"layer.{number:05}.bias": ("U8", (16,)) for number in range(5_000)})
    limit = 128 * 1024

    sizes = layer_sizes(split_large([weights_of(path)], header_of, limit=limit)[:-1])
    assert len(sizes) > 1
    assert max(sizes) <= limit
