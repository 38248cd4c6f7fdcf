"""Weights files too large for one layer, from every source: the same shards, nothing on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import deserialize

from tests.support.commandline import Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import safetensors_bytes, write_model
from tests.support.doubles.registry import FakeRegistry
from tests.support.doubles.s3 import Bucket
from tests.support.remote_models import BUILD, Remote
from tests.support.remote_models import bucket as bucket
from tests.support.remote_models import environment as environment
from tests.support.remote_models import hub as hub
from tests.support.remote_models import remote as remote
from tests.support.remote_models import server as server
from tests.support.written_layouts import WrittenLayout, files_in

SPLIT = ("--max-layer-size", "2MiB")
MODEL = "opt/packager/model/"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """One file of 5 MB."""
    return write_model(
        tmp_path / "upstream", shards=1, layers=3, hidden_size=256, intermediate_size=1024
    )


def files_of(layout: Path, record: dict[str, Any]) -> dict[str, bytes]:
    """What the layers of ours hold below the model's directory."""
    layers = [WrittenLayout(layout).blob(layer["digest"]) for layer in record["layers"]]
    return {
        name.removeprefix(MODEL): content
        for name, (_, content) in files_in(layers).items()
        if name.startswith(MODEL)
    }


def tensors_in(files: dict[str, bytes], shards: list[str]) -> list[tuple[str, dict[str, object]]]:
    """Read the tensors of files, by name."""
    return sorted(
        (tensor for shard in shards for tensor in deserialize(files[shard])),
        key=lambda tensor: tensor[0],
    )


def test_every_source_gives_the_same_shards(remote: Remote, bucket: Bucket, model: Path) -> None:
    places = {"hf": "hf://acme/tiny", "s3": f"{bucket.url}/llama", "local": str(model)}
    built = {
        name: remote.record(place, f"oci:out-{name}", *SPLIT) for name, place in places.items()
    }

    digests = {
        name: [layer["digest"] for layer in record["layers"][:-1]] for name, record in built.items()
    }
    assert digests["hf"] == digests["s3"] == digests["local"]
    assert not remote.weights_on_disk()
    files = files_of(remote.root / "out-local", built["local"])
    shards = sorted(set(json.loads(files["model.safetensors.index.json"])["weight_map"].values()))
    assert len(shards) == 4
    assert "model.safetensors" not in files
    whole = {"model.safetensors": (model / "model.safetensors").read_bytes()}
    assert tensors_in(files, shards) == tensors_in(whole, [*whole])


def test_a_second_build_of_split_weights_reads_headers_only(remote: Remote) -> None:
    one = remote.record("hf://acme/tiny", "oci:out", *SPLIT)

    two = remote.record("hf://acme/tiny", "oci:out", *SPLIT)

    assert one["digest"] == two["digest"]
    assert two["transfer"]["bytes_read"] < 10_000
    assert two["transfer"]["layers_streamed"] == 0


def test_parts_of_a_file_are_fetched_in_order(remote: Remote, hub: FakeHub, model: Path) -> None:
    """Their hash goes on from part to part; out of order it would have to begin again."""
    remote.build("hf://acme/tiny", "oci:out", *SPLIT)

    asked = [seen.range for seen in hub.seen if "/blobs/" in seen.path and seen.range]
    ranges = [tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in asked]
    data_starts = 8 + int.from_bytes((model / "model.safetensors").read_bytes()[:8], "little")
    parts = [(first, last) for first, last in ranges if first >= data_starts]
    assert len(parts) == 4
    assert [first for first, _ in parts] == [data_starts, *(last + 1 for _, last in parts[:-1])]


def test_wrong_bytes_from_a_hub_are_never_named_in_shards(remote: Remote, hub: FakeHub) -> None:
    """Only all parts together can be held against the digest that the hub lists."""
    hub.damaged["model.safetensors"] = 99
    with FakeRegistry() as registry:
        build = ("hf://acme/tiny", f"{registry.host}/acme/tiny:1", *SPLIT)

        done = remote.build(*build, status=65)
        remote.build(*build, status=65)

        assert "model.safetensors" in done.err
        assert registry.manifests == {}


def test_a_header_over_1_mib_is_split(remote: Remote, model: Path) -> None:
    """Its header was read as garbage, and the sound checkpoint refused with exit 65."""
    path = model / "model.safetensors"
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    header["__metadata__"]["notes"] = "".join(map(str, range(200_000)))
    path.write_bytes(safetensors_bytes(header, raw[end:]))

    record = remote.record(str(model), "oci:out", "--max-layer-size", "4MiB")

    files = files_of(remote.root / "out", record)
    shards = [name for name in files if name.endswith(".safetensors")]
    assert len(shards) == 3
    whole = {path.name: path.read_bytes()}
    assert tensors_in(files, shards) == tensors_in(whole, [*whole])


def test_a_tensor_over_the_limit_is_kept_and_reported(packager: Packager, model: Path) -> None:
    build = ("build", "--instance", "local", "--base", "scratch", *SPLIT, "--model")
    wide = write_model(model.parent / "wide", shards=1, hidden_size=512, intermediate_size=2048)

    fits = packager(*build, str(model), "--output", "oci:out", status=0)
    larger = packager(*build, str(wide), "--output", "oci:out-wide", status=0)

    assert "layer-over-size" not in fits.err
    assert "layer-over-size" in larger.err


@pytest.mark.parametrize("size", ["12", "4 parsecs", "-1GiB"])
def test_a_size_that_is_none_is_refused(packager: Packager, model: Path, size: str) -> None:
    done = packager(*BUILD, "--model", str(model), "--max-layer-size", size, "--dry-run", status=2)

    assert "max_layer_size" in done.err
