"""Weights files too large for one layer, from every source: the same shards, nothing on disk."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from safetensors import deserialize

from tests.support.commandline import Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import safetensors_bytes, write_model
from tests.support.doubles.registry import FakeRegistry
from tests.support.doubles.s3 import Bucket
from tests.support.remote_models import bucket as bucket
from tests.support.remote_models import environment as environment
from tests.support.remote_models import hub as hub
from tests.support.remote_models import server as server

BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet", "--format", "json")
SPLIT = ("--max-layer-size", "2MiB")
MODEL = "opt/packager/model/"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """One file of 5 MB."""
    return write_model(
        tmp_path / "upstream", shards=1, layers=3, hidden_size=256, intermediate_size=1024
    )


def files_of(layout: Path, record: dict[str, object]) -> dict[str, bytes]:
    """What the layers of ours hold below the model's directory."""
    found = {}
    for layer in record["layers"]:  # type: ignore[attr-defined]
        with tarfile.open(layout / "blobs" / "sha256" / layer["digest"][7:]) as archive:
            for member in archive:
                if member.isfile() and member.name.startswith(MODEL):
                    found[member.name.removeprefix(MODEL)] = archive.extractfile(member).read()  # type: ignore[union-attr]
    return found


def test_every_source_gives_the_same_shards(
    packager: Packager, environment: dict[str, str], bucket: Bucket, model: Path, tmp_path: Path
) -> None:
    digests = {}
    for name, reference in {
        "hf": "hf://acme/tiny",
        "s3": f"{bucket.url}/llama",
        "local": str(model),
    }.items():
        output = f"oci:out-{name}"
        done = packager(*BUILD, *SPLIT, "--model", reference, "--output", output, env=environment)
        assert done.status == 0, done.err
        record = json.loads(done.out)
        digests[name] = [layer["digest"] for layer in record["layers"][:-1]]
    assert digests["hf"] == digests["s3"] == digests["local"]
    assert not list((tmp_path / "disk").rglob("*.safetensors"))

    files = files_of(tmp_path / "out-local", record)
    index = json.loads(files["model.safetensors.index.json"])
    shards = sorted(set(index["weight_map"].values()))
    assert len(shards) == 4
    assert "model.safetensors" not in files
    found = [tensor for shard in shards for tensor in deserialize(files[shard])]
    whole = deserialize((model / "model.safetensors").read_bytes())
    assert sorted(found, key=lambda tensor: tensor[0]) == sorted(
        whole, key=lambda tensor: tensor[0]
    )


def test_a_second_build_of_split_weights_reads_headers_only(
    packager: Packager, environment: dict[str, str], hub: FakeHub
) -> None:
    build = (*BUILD, *SPLIT, "--model", "hf://acme/tiny", "--output", "oci:out")
    first = packager(*build, env=environment)

    second = packager(*build, env=environment, status=0)

    one, two = json.loads(first.out), json.loads(second.out)
    assert one["digest"] == two["digest"]
    assert two["transfer"]["bytes_read"] < 10_000
    assert two["transfer"]["layers_streamed"] == 0


def test_parts_of_one_file_are_fetched_once_and_in_order(
    packager: Packager, environment: dict[str, str], hub: FakeHub, model: Path
) -> None:
    """Their hash goes on from part to part; out of order it would have to begin again."""
    done = packager(
        *BUILD, *SPLIT, "--model", "hf://acme/tiny", "--output", "oci:out", env=environment
    )

    assert done.status == 0, done.err
    asked = [seen.range for seen in hub.seen if "/blobs/" in seen.path and seen.range]
    ranges = [tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in asked]
    data_starts = 8 + int.from_bytes((model / "model.safetensors").read_bytes()[:8], "little")
    parts = [(first, last) for first, last in ranges if first >= data_starts]
    assert len(parts) == 4
    assert [first for first, _ in parts] == [data_starts, *(last + 1 for _, last in parts[:-1])]


def test_wrong_bytes_from_a_hub_are_never_named_in_shards_either(
    packager: Packager, environment: dict[str, str], hub: FakeHub
) -> None:
    """Only all parts together can be held against the digest that the hub lists."""
    hub.damaged["model.safetensors"] = 99
    with FakeRegistry() as registry:
        output = f"{registry.host}/acme/tiny:1"
        build = (*BUILD, *SPLIT, "--model", "hf://acme/tiny", "--output", output)

        done = packager(*build, env=environment)
        again = packager(*build, env=environment)

        assert (done.status, again.status) == (65, 65)
        assert "model.safetensors" in done.err
        assert registry.manifests == {}


def test_a_header_over_1_mib_is_split(packager: Packager, model: Path, tmp_path: Path) -> None:
    """Its header was read as garbage, and the sound checkpoint refused with exit 65."""
    path = model / "model.safetensors"
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header["__metadata__"]["notes"] = "".join(map(str, range(200_000)))
    path.write_bytes(safetensors_bytes(header, raw[8 + int.from_bytes(raw[:8], "little") :]))

    done = packager(
        *BUILD, "--model", str(model), "--max-layer-size", "4MiB", "--output", "oci:out"
    )

    assert done.status == 0, done.err
    files = files_of(tmp_path / "out", json.loads(done.out))
    shards = [name for name in files if name.endswith(".safetensors")]
    assert len(shards) == 3
    found = [tensor for shard in shards for tensor in deserialize(files[shard])]
    assert sorted(found, key=lambda tensor: tensor[0]) == sorted(
        deserialize(path.read_bytes()), key=lambda tensor: tensor[0]
    )


def test_a_tensor_over_the_limit_is_kept_and_reported(packager: Packager, model: Path) -> None:
    done = packager(
        "build", "--instance", "local", "--base", "scratch", "--model", str(model),
        "--max-layer-size", "2MiB", "--output", "oci:out",
    status=0)  # fmt: skip
    assert "layer-over-size" not in done.err

    larger = write_model(model.parent / "wide", shards=1, hidden_size=512, intermediate_size=2048)
    done = packager(
        "build", "--instance", "local", "--base", "scratch", "--model", str(larger),
        "--max-layer-size", "2MiB", "--output", "oci:out-wide",
    status=0)  # fmt: skip
    assert "layer-over-size" in done.err


@pytest.mark.parametrize("size", ["12", "4 parsecs", "-1GiB"])
def test_a_size_that_is_none_is_refused(packager: Packager, model: Path, size: str) -> None:
    done = packager(*BUILD, "--model", str(model), "--max-layer-size", size, "--dry-run", status=2)

    assert "max_layer_size" in done.err


def test_a_file_that_changes_between_its_shards_stops_the_build(tmp_path: Path) -> None:
    from packager.core.image import Blob, FileRange
    from packager.images.blobs import BlobReader, SourceChanged

    path = tmp_path / "w"
    path.write_bytes(bytes(1000))
    reader = BlobReader()
    reader.read(Blob((FileRange(path=str(path), offset=0, length=500),)))
    path.write_bytes(b"x" * 1000)

    with pytest.raises(SourceChanged):
        reader.read(Blob((FileRange(path=str(path), offset=500, length=500),)))
