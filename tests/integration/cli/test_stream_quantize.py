"""Models that are quantized on their way into an image: one read, nothing on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from artifact_cache import open_local
from artifact_cache.trust import generate_key, trust_key
from packager.optimize.keys.documents import parse_document
from tests.support.block_checkpoints import Order, split_scales
from tests.support.buckets import server as server
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import fill_with_numbers, write_model
from tests.support.doubles.registry import FakeRegistry
from tests.support.doubles.s3 import Bucket
from tests.support.remote_models import Remote
from tests.support.remote_models import bucket as bucket
from tests.support.remote_models import environment as environment
from tests.support.remote_models import hub as hub
from tests.support.remote_models import remote as remote

SHARD = "model-00002-of-00003.safetensors"
FP8 = ("--quantize", "fp8")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    place = write_model(tmp_path / "upstream", hidden_size=512, intermediate_size=1024)
    fill_with_numbers(place)
    return place


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


def layers_of(record: dict[str, Any]) -> list[str]:
    return [layer["digest"] for layer in record["layers"]][:-1]


def weight_bytes(place: Path) -> int:
    return sum(file.stat().st_size for file in place.glob("*.safetensors"))


def test_every_source_gives_the_same_layers_from_one_read(
    remote: Remote, bucket: Bucket, model: Path
) -> None:
    places = {"hf": "hf://acme/tiny", "s3": f"{bucket.url}/llama", "local": str(model)}

    built = {name: remote.record(at, f"oci:out-{name}", *FP8) for name, at in places.items()}

    assert layers_of(built["s3"]) == layers_of(built["local"]) == layers_of(built["hf"])
    for name, record in built.items():
        read = record["transfer"]["bytes_read"]
        assert weight_bytes(model) * 0.99 <= read < weight_bytes(model) + 200_000, name
        written = sum(layer["size"] for layer in record["layers"])
        assert written < weight_bytes(model) * 0.8


def test_a_hub_model_is_quantized_into_a_registry_without_a_disk(
    remote: Remote, registry: FakeRegistry
) -> None:
    first = remote.record("hf://acme/tiny", f"{registry.host}/acme/tiny:1", *FP8)
    second = remote.record("hf://acme/tiny", f"{registry.host}/acme/tiny:2", *FP8)

    assert not remote.weights_on_disk()
    transfer = second["transfer"]
    assert transfer["layers_streamed"] == 0
    assert transfer["bytes_read"] < 10_000  # headers
    assert second["digest"] == first["digest"]


@pytest.mark.parametrize("method", ["nvfp4", "rtn,asymmetric", "fp8,block"])
def test_a_tree_and_an_image_are_made_by_one_pass(remote: Remote, model: Path, method: str) -> None:
    tree = ("--output", "dir:tree", "--quantize", method, "--instance", "ml.p5.48xlarge")
    record = remote.record(str(model), "oci:out", *tree)

    times = 2 if "nvfp4" in method else 1
    assert record["transfer"]["bytes_read"] < times * weight_bytes(model) + 200_000
    index = json.loads((remote.root / "tree/model.safetensors.index.json").read_text())
    for name in set(index["weight_map"].values()):
        assert (remote.root / "tree" / name).is_file()


@pytest.mark.parametrize("source", ["hub", "s3", "directory"])
def test_every_form_of_output_is_made_of_the_one_read(
    remote: Remote, bucket: Bucket, model: Path, source: str
) -> None:
    places = {"hub": "hf://acme/tiny", "s3": f"{bucket.url}/llama", "directory": str(model)}
    written = (*FP8, "--layer-format", "erofs", "--output", f"{bucket.url}/trees/tiny")

    whole = remote.record(places[source], "oci:whole", *written, "--verify")
    plain = remote.record(places[source], "oci:plain", *FP8)
    remote.run("node-cache", "oci:whole", str(remote.root / "nodes"), "--verify", "--quiet")

    assert layers_of(whole) == layers_of(plain)
    assert whole["transfer"]["bytes_read"] < weight_bytes(model) + 200_000
    entries = list((remote.root / "nodes").rglob("*.erofs"))
    assert len(entries) >= len(layers_of(plain))
    assert [tree["files"] for tree in whole["trees"]] > [4]
    assert all(layer["erofs"] for layer in whole["layers"])


def test_wrong_bytes_of_a_hub_are_never_named(
    remote: Remote, hub: FakeHub, registry: FakeRegistry
) -> None:
    hub.damaged[SHARD] = 9000

    done = remote.build("hf://acme/tiny", f"{registry.host}/acme/tiny:1", *FP8, status=65)

    assert SHARD in done.err
    assert not registry.manifests


def test_a_matrix_with_an_infinity_ends_the_build(
    remote: Remote, registry: FakeRegistry, model: Path
) -> None:
    data = bytearray((model / SHARD).read_bytes())
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    name = next(one for one in header if one.endswith("q_proj.weight"))
    start = 8 + int.from_bytes(data[:8], "little") + header[name]["data_offsets"][0]
    data[start : start + 2] = (0x7F80).to_bytes(2, "little")
    (model / SHARD).write_bytes(data)

    done = remote.build(str(model), f"{registry.host}/acme/tiny:1", *FP8, status=65)

    assert f"{name} in {SHARD} has values that are NaN or infinite" in done.err
    assert not registry.manifests


def overlap(entries: dict[str, Any], name: str) -> None:
    start, end = entries[name]["data_offsets"]
    entries[name]["data_offsets"] = [start - 2, end - 2]


def reach_out(entries: dict[str, Any], name: str) -> None:
    last = max(entries, key=lambda one: entries[one]["data_offsets"][1])
    entries[last]["data_offsets"][1] += 2
    entries[last]["shape"] = [entries[last]["data_offsets"][1] // 2]


def widen(entries: dict[str, Any], name: str) -> None:
    entries[name]["shape"][1] += 16


def empty(entries: dict[str, Any], name: str) -> None:
    start, _ = entries[name]["data_offsets"]
    entries[name] |= {"shape": [0, 512], "data_offsets": [start, start]}


def retype(entries: dict[str, Any], name: str) -> None:
    entries[name]["dtype"] = "F64"


@pytest.mark.parametrize("spoil", [overlap, reach_out, widen, empty, retype])
@pytest.mark.parametrize("source", ["hf://acme/tiny", ""])
def test_what_a_header_shows_to_be_wrong_ends_the_build_before_a_byte_is_sent(
    remote: Remote,
    hub: FakeHub,
    registry: FakeRegistry,
    model: Path,
    spoil: Callable[[dict[str, Any], str], None],
    source: str,
) -> None:
    data = (model / SHARD).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    entries = {name: one for name, one in header.items() if name != "__metadata__"}
    spoil(entries, next(one for one in entries if one.endswith("q_proj.weight")))
    text = json.dumps({**header, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (model / SHARD).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    hub.add("acme/tiny", model)

    done = remote.build(source or str(model), f"{registry.host}/acme/tiny:1", *FP8, status=65)

    assert SHARD in done.err
    assert not registry.manifests
    assert not registry.blobs


def test_what_the_stream_cannot_do_is_refused_when_planning(remote: Remote, model: Path) -> None:
    place = ("--model", str(model), "--instance", "local")

    static = remote.run("plan", *place, "--quantize", "stream:fp8,static", status=3)
    measured = (*place, *FP8, "--evaluate", "default")
    refused = remote.run("plan", *measured, "--quantizer", "stream", status=3)

    assert "the method looks at texts" in static.out + static.err
    assert "what it costs is to be measured" in refused.out + refused.err


def test_the_tool_does_what_the_stream_cannot_and_what_it_is_asked_to(
    remote: Remote, model: Path
) -> None:
    place = ("--model", str(model), "--instance", "local")

    plain = remote.run("plan", *place, *FP8)
    mixed = remote.run("plan", *place, *FP8, "--quantize-layer", "re:.*mlp.*=int8")
    measured = remote.run("plan", *place, *FP8, "--evaluate", "default")
    asked = remote.run("plan", *place, *FP8, "--quantizer", "llmcompressor")
    nothing = remote.run("plan", *place, "--quantizer", "llmcompressor", status=2)

    for streamed in (plain, mixed):
        assert "no step: the weights are quantized while they are read" in streamed.out
    assert "of processor time for 10.0 MB, at most 500.0 MB of memory; < $0.01 of " in plain.out
    assert "a tool quantizes, not the stream: what it costs" in measured.out + measured.err
    for tools in (measured, asked):
        assert "quantize with llmcompressor" in tools.out
    assert "quantize-by-tool" not in asked.out + asked.err
    assert "--quantizer llmcompressor has no method" in nothing.err


def test_a_result_of_the_tool_is_taken_from_the_cache_in_place_of_rounding(remote: Remote) -> None:
    place = "hf://acme/tiny"  # whose digests are known without reading
    asked = (*FP8, "--cache-dir", str(remote.root / "cache"))
    missed = remote.build(place, "oci:no", *asked, "--require-cached", status=8)
    streamed = remote.record(place, "oci:out", "--output", "dir:tree", *asked)
    publish_tree(remote, remote.root / "tree")

    told = remote.run("plan", "--model", place, "--instance", "local", *asked)
    taken = remote.record(place, "oci:again", *asked, "--require-cached")
    explained = remote.run(*("cache", "explain", "--model", place, "--instance", "local", *asked))

    assert "'quantize' is not in the cache" in missed.err
    assert "quantize with llmcompressor: in the cache" in told.out
    assert "quantize-streams" not in told.out + told.err
    assert [step["reused"] for step in taken["steps"]] == [True]
    assert (streamed["steps"], layers_of(taken)) == ([], layers_of(streamed))
    assert explained.out.startswith("quantize: hit (")


@pytest.mark.parametrize("method", ["fp8", "nvfp4", "rtn,asymmetric"])
def test_layers_of_the_stream_have_the_size_that_is_asked_for(
    remote: Remote, hub: FakeHub, method: str
) -> None:
    model = write_model(
        remote.root / "one", shards=1, layers=5, hidden_size=512, intermediate_size=1024
    )
    fill_with_numbers(model)
    hub.add("acme/one", model)
    asked = ("--quantize", method, "--instance", "ml.p5.48xlarge")
    small = (*asked, "--max-layer-size", "2MiB")

    whole = remote.record("hf://acme/one", "dir:whole", *asked)
    cut = remote.record("hf://acme/one", "oci:cut", *small)
    tree = remote.record("hf://acme/one", "dir:small", *small)

    sizes = [layer["size"] for layer in cut["layers"] if layer["role"] == "weights"]
    assert len(sizes) > 1
    assert max(sizes) <= 2 << 20
    assert cut["transfer"]["bytes_read"] <= whole["transfer"]["bytes_read"] + 1000
    assert tensors_in(remote.root / "small") == tensors_in(remote.root / "whole")
    assert tree["trees"][0]["files"] > whole["trees"][0]["files"]


def tensors_in(tree: Path) -> dict[str, bytes]:
    """Return the bytes of every tensor, by name."""
    found = {}
    for file in tree.glob("*.safetensors"):
        data = file.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        for name, told in header.items():
            begin, end = told["data_offsets"]
            found[name] = data[start + begin : start + end]
    return found


@pytest.mark.parametrize("method", ["int8", "nvfp4", "mxfp8"])
@pytest.mark.parametrize("order", ["first", "last"])
def test_fp8_blocks_are_converted_on_the_way_to_another_scheme(
    remote: Remote, hub: FakeHub, registry: FakeRegistry, model: Path, order: Order, method: str
) -> None:
    place = split_scales(model, remote.root / "blocks", order)
    hub.add("acme/blocks", place)
    asked = ("--quantize", method, "--instance", "ml.p5.48xlarge")
    cached = ("hf://acme/blocks", f"{registry.host}/acme/blocks", *asked, "--cache-dir", "cache")

    told = remote.run("plan", "--model", "hf://acme/blocks", *asked)
    streamed = remote.record(*cached)
    again = elsewhere(remote, "other").record(*cached, "--require-cached")
    local = remote.record(str(place), "oci:local", *asked)
    plain = remote.record(str(model), "oci:plain", *asked)
    served = remote.record(str(place), "oci:served", "--quantize", "none", *asked[2:])

    assert "FP8 weights in blocks of 128×128: they are converted" in told.out + told.err
    assert layers_of(streamed) == layers_of(local) == layers_of(plain) != layers_of(served)
    assert layers_of(again) == layers_of(streamed)
    assert again["transfer"]["bytes_read"] < 20_000  # headers
    times = 2 if method == "nvfp4" else 1
    assert streamed["transfer"]["bytes_read"] < times * weight_bytes(place) + 250_000


def elsewhere(remote: Remote, name: str) -> Remote:
    """Another machine: it shares the artifact cache, and nothing else."""
    environment = {**remote.environment, "XDG_STATE_HOME": str(remote.disk / name)}
    return Remote(remote._packager, environment, remote.root)


@pytest.mark.parametrize("form", ["plain", "erofs"])
@pytest.mark.parametrize("method", ["fp8", "nvfp4", "rtn,asymmetric"])
def test_layers_that_were_streamed_once_are_known_wherever_the_cache_is(
    remote: Remote, hub: FakeHub, registry: FakeRegistry, method: str, form: str
) -> None:
    place, on = "hf://acme/tiny", ("--instance", "ml.p5.48xlarge", "--layer-format", form)
    asked = ("--cache-dir", str(remote.root / "cache"), "--quantize", method, *on)
    first = remote.record(place, f"{registry.host}/acme/tiny:1", *asked)
    other, whole = elsewhere(remote, "other"), weight_bytes(remote.root / "upstream")

    told = other.run("plan", "--model", place, *asked[:-2])
    second = other.record(place, f"{registry.host}/acme/tiny:2", *asked, "--require-cached")
    moved = other.record(place, f"{registry.host}/acme/other:1", *asked, "--require-cached")
    anew = elsewhere(remote, "third").record(place, "oci:out", *asked, "--verify")

    assert "layers with the stream: in the cache (" in told.out or form == "erofs"
    assert first["digest"] == second["digest"] == moved["digest"] == anew["digest"]
    for record in (second, moved):
        assert record["transfer"]["bytes_read"] < 10_000  # headers
        assert {one["believed"] for one in record["layers"] if one["role"] == "weights"} == {
            "cache"
        }
    assert anew["transfer"]["bytes_read"] > whole * 0.99


def test_layers_are_copied_from_where_the_cache_says_that_they_are(
    remote: Remote, hub: FakeHub, registry: FakeRegistry
) -> None:
    asked = (*FP8, "--cache-dir", str(remote.root / "cache"))
    first = remote.record("hf://acme/tiny", f"{registry.host}/acme/tiny:1", *asked)
    other, sent = elsewhere(remote, "other"), hub.sent

    copied = other.record("hf://acme/tiny", "oci:out", *asked, "--require-cached")
    registry.blobs.clear()
    lost = other.build("hf://acme/tiny", "oci:lost", *asked, "--require-cached", status=8)
    anew = other.record("hf://acme/tiny", "oci:anew", *asked)

    assert layers_of(copied) == layers_of(first) == layers_of(anew)
    assert "would be quantized anew" in lost.err
    assert copied["transfer"]["bytes_read"] < weight_bytes(remote.root / "upstream") * 0.6
    assert hub.sent - sent < 2 * weight_bytes(remote.root / "upstream")  # once, by the last


def test_layers_of_the_stream_are_taken_where_a_tool_would_run(
    remote: Remote, registry: FakeRegistry
) -> None:
    place, target = "hf://acme/tiny", f"{registry.host}/acme/tiny:1"
    asked = (*FP8, "--cache-dir", str(remote.root / "cache"))
    first = remote.record(place, target, *asked)
    other, by_tool = elsewhere(remote, "other"), (*asked, "--quantizer", "llmcompressor")
    planned = ("--model", place, "--instance", "local", *by_tool)

    told = other.run("plan", *planned)
    taken = other.record(place, target, *by_tool, "--require-cached")
    explained = other.run("cache", "explain", *planned)
    tree = other.build(place, "dir:tree", *by_tool, "--require-cached", status=8)
    registry.blobs.clear()
    lost = other.build(place, target, *by_tool, "--require-cached", status=8)

    assert "layers with the stream: in the cache (" in told.out
    assert (taken["steps"], layers_of(taken)) == ([], layers_of(first))
    assert taken["transfer"]["bytes_read"] < 10_000  # headers
    assert explained.out.startswith("layers: hit (")
    for refused in (tree, lost):  # nothing but the tool's files would do
        assert "step 'quantize' is not in the cache" in refused.err


def test_entries_in_a_bucket_count_where_their_signature_does(
    remote: Remote, bucket: Bucket, registry: FakeRegistry
) -> None:
    trusted = remote.root / "trusted.json"
    trust_key(trusted, generate_key(remote.root / "ours.pem"))
    generate_key(remote.root / "theirs.pem")
    strict = ("--require-signed", "--trusted-keys", str(trusted))

    def asked(output: str, *options: str) -> tuple[str, ...]:
        places = ("--cache-dir", str(remote.root / output), "--cache-shared", f"{bucket.url}/c")
        return ("hf://acme/tiny", output, *FP8, *places, *options)

    ours, target = ("--signing-key", str(remote.root / "ours.pem")), f"{registry.host}/a/tiny:1"
    first = remote.record(*asked(target, *strict, *ours))
    taken = elsewhere(remote, "two").record(*asked("oci:two", *strict, "--require-cached"))
    for name in bucket.names():  # somebody changes what an entry says of a layer
        if name.startswith("c/v1/cas/"):
            bucket.put(name, bucket.get(name).replace(b"sha256:", b"sha256:0", 1)[:-1])
    three = elsewhere(remote, "three")
    damaged = three.build(*asked("oci:three", *strict, "--require-cached"), status=8)
    for name in bucket.names():  # and writes one of their own
        if name.startswith("c/"):
            bucket.delete(name)
    theirs = ("--signing-key", str(remote.root / "theirs.pem"))
    elsewhere(remote, "theirs").record(*asked("oci:four", *theirs))
    forged = three.build(*asked("oci:five", *strict, "--require-cached"), status=8)
    mended = three.record(*asked("oci:five", *strict))

    assert layers_of(taken) == layers_of(first) == layers_of(mended)
    assert taken["transfer"]["bytes_read"] < weight_bytes(remote.root / "upstream") * 0.6
    assert "would be quantized anew" in damaged.err
    assert "step 'quantize' is not in the cache" in forged.err


def test_entries_of_streamed_layers_are_looked_at_like_all_others(remote: Remote) -> None:
    asked = (*FP8, "--cache-dir", str(remote.root / "cache"))
    place = ("--model", "hf://acme/tiny", "--instance", "local")
    remote.record("hf://acme/tiny", "oci:out", *asked)
    other = ("--quantize", "int8", *asked[2:])

    listed = remote.run("cache", "ls", "--cache-dir", asked[-1])
    hit = remote.run("cache", "explain", *place, *asked)
    missed = remote.run("cache", "explain", *place, *other)

    assert "streamed-layers" in listed.out
    assert hit.out.startswith("layers: hit (")
    assert "layers: miss (" in missed.out
    assert "/precision/weights/algorithm" in missed.out


def publish_tree(remote: Remote, tree: Path) -> None:
    """Publish what the stream wrote as the tool's result, under the key that was last missed."""
    noted = json.loads(next(remote.disk.rglob("lookups.json")).read_text())
    names = ("config.json", "model.safetensors.index.json")

    def build(place: Path) -> None:
        for file in tree.iterdir():
            if file.suffix == ".safetensors" or file.name in names:
                (place / file.name).write_bytes(file.read_bytes())

    into = remote.root / "into"
    into.mkdir()
    cache = open_local(remote.root / "cache/artifacts")
    cache.get_or_build(parse_document(noted[0]["document"]), build, into)
