"""Machines that never saw a model: what an image in the registry already tells them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.fresh_machines import hub as hub
from tests.support.fresh_machines import model as model

BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet", "--format", "json")
WEIGHTS = 9_000_000  # a little less than they have
HEADERS = 100_000  # of the shards, which splitting reads
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


class Machines:
    """Builds on machines that share nothing but the hub and the registry."""

    def __init__(self, packager: Packager, hub: FakeHub, root: Path) -> None:
        self._packager, self._hub, self._root = packager, hub, root

    def build(self, machine: str, model: str, *arguments: str) -> dict[str, Any]:
        environment = {
            "HF_ENDPOINT": self._hub.url,
            "HF_HOME": str(self._root / machine / "hf"),
            "XDG_STATE_HOME": str(self._root / machine / "state"),
        }
        done = self._packager(*BUILD, "--model", model, *arguments, env=environment)
        assert done.status == 0, done.err
        found: dict[str, Any] = json.loads(done.out)
        return found


@pytest.fixture
def machines(packager: Packager, hub: FakeHub, tmp_path: Path) -> Machines:
    return Machines(packager, hub, tmp_path)


def shard_requests(hub: FakeHub) -> list[str]:
    """Reads of whole weights files; headers are asked for in short ranges."""
    return [seen.path for seen in hub.seen if seen.path.startswith("/blobs/") and not seen.range]


def not_weights(record: dict[str, Any]) -> int:
    return sum(layer["size"] for layer in record["layers"] if layer["role"] != "weights")


@pytest.mark.parametrize("tag", ["1", "2"], ids=["the same tag", "another tag"])
def test_a_fresh_machine_neither_reads_nor_sends_weights_that_are_there(
    machines: Machines, hub: FakeHub, registry: FakeRegistry, tag: str
) -> None:
    first = machines.build("one", "hf://acme/tiny", "--output", f"{registry.host}/acme/tiny:1")
    hub.seen.clear()

    second = machines.build("two", "hf://acme/tiny", "--output", f"{registry.host}/acme/tiny:{tag}")

    assert second["digest"] == first["digest"]
    assert shard_requests(hub) == []
    assert second["transfer"]["bytes_read"] <= not_weights(second)
    assert second["transfer"]["bytes_sent"] == 0


@pytest.mark.parametrize("first_source", ["hf://acme/tiny", "acme/tiny"], ids=["hf", "hub"])
def test_parts_of_large_files_are_recognised_too(
    machines: Machines, hub: FakeHub, registry: FakeRegistry, first_source: str
) -> None:
    split = ("--max-layer-size", "2MiB", "--output", f"{registry.host}/acme/tiny:1")
    first = machines.build("one", first_source, *split)
    before = sum(layer["role"] == "weights" for layer in first["layers"])

    second = machines.build("two", "hf://acme/tiny", *split)

    assert before > 3
    assert second["digest"] == first["digest"]
    assert second["transfer"]["bytes_read"] <= not_weights(second) + HEADERS
    assert second["transfer"]["bytes_sent"] == 0


def test_a_fresh_machine_with_other_settings_sends_those_alone(
    machines: Machines, hub: FakeHub, registry: FakeRegistry
) -> None:
    output = ("--output", f"{registry.host}/acme/tiny:1")
    machines.build("one", "hf://acme/tiny", *output)
    hub.seen.clear()

    second = machines.build("two", "hf://acme/tiny", "--max-batch", "7", *output)

    assert shard_requests(hub) == []
    assert 0 < second["transfer"]["bytes_sent"] < 100_000


def test_what_was_downloaded_is_recognised_where_it_is_streamed(
    machines: Machines, hub: FakeHub, registry: FakeRegistry
) -> None:
    output = ("--output", f"{registry.host}/acme/tiny:1")
    first = machines.build("one", "acme/tiny", *output)
    hub.seen.clear()

    second = machines.build("two", "hf://acme/tiny", *output)

    assert second["digest"] == first["digest"]
    assert shard_requests(hub) == []


def test_a_fresh_machine_reads_a_directory_once_and_sends_nothing(
    machines: Machines, registry: FakeRegistry, model: Path, tmp_path: Path
) -> None:
    output = ("--output", f"{registry.host}/acme/tiny:1")
    first = machines.build("one", str(model), *output)
    copied = shutil.copytree(model, tmp_path / "copied" / model.name)

    second = machines.build("two", str(copied), *output)

    assert second["digest"] == first["digest"]
    assert second["transfer"]["bytes_sent"] == 0
    files = sum(path.stat().st_size for path in model.iterdir())
    assert second["transfer"]["bytes_read"] <= files


def test_other_weights_of_the_same_shapes_are_sent(
    machines: Machines, hub: FakeHub, registry: FakeRegistry, tmp_path: Path
) -> None:
    output = ("--output", f"{registry.host}/acme/tiny:1")
    first = machines.build("one", "hf://acme/tiny", *output)
    other = write_model(tmp_path / "other", hidden_size=512, intermediate_size=1024, seed=7)
    hub.add("acme/tiny", other)

    second = machines.build("two", "hf://acme/tiny", *output)

    weights = [
        {layer["digest"] for layer in record["layers"] if layer["role"] == "weights"}
        for record in (first, second)
    ]
    assert not weights[0] & weights[1]
    assert second["transfer"]["bytes_sent"] > WEIGHTS


def test_verify_reads_all_and_sends_nothing_that_is_there(
    machines: Machines, hub: FakeHub, registry: FakeRegistry
) -> None:
    output = ("--output", f"{registry.host}/acme/tiny:1")
    first = machines.build("one", "hf://acme/tiny", *output)

    for machine in ("one", "two"):
        again = machines.build(machine, "hf://acme/tiny", "--verify", *output)

        assert again["digest"] == first["digest"]
        assert again["transfer"]["bytes_read"] > WEIGHTS
        assert again["transfer"]["bytes_sent"] == 0


def test_other_repositories_do_not_count(
    machines: Machines, hub: FakeHub, registry: FakeRegistry
) -> None:
    machines.build("one", "hf://acme/tiny", "--output", f"{registry.host}/acme/tiny:1")

    second = machines.build("two", "hf://acme/tiny", "--output", f"{registry.host}/other/tiny:1")

    assert second["transfer"]["bytes_read"] > WEIGHTS
    assert second["transfer"]["bytes_sent"] > WEIGHTS


def test_a_second_repository_takes_weights_over_without_their_bytes(
    machines: Machines, hub: FakeHub, registry: FakeRegistry
) -> None:
    build = ("one", "hf://acme/tiny", "--output")
    first = machines.build(*build, f"{registry.host}/acme/tiny:1")

    second = machines.build(*build, f"{registry.host}/prod/tiny:9", "--max-batch", "7")

    digests = [
        {layer["digest"] for layer in record["layers"] if layer["role"] == "weights"}
        for record in (first, second)
    ]
    assert digests[0] == digests[1]
    assert all(("prod/tiny", digest) in registry.blobs for digest in digests[0])
    assert second["transfer"]["bytes_read"] == 0
    assert second["transfer"]["bytes_sent"] < 100_000


def test_a_registry_that_refuses_mounts_gets_the_bytes(
    machines: Machines, hub: FakeHub, registry: FakeRegistry
) -> None:
    machines.build("one", "hf://acme/tiny", "--output", f"{registry.host}/acme/tiny:1")
    registry.quirks.mounts = False

    second = machines.build("one", "hf://acme/tiny", "--output", f"{registry.host}/prod/tiny:1")

    assert second["transfer"]["bytes_sent"] > WEIGHTS
    assert registry.uploads == {}


def test_a_digest_that_lies_about_its_size_is_read_instead(
    machines: Machines, hub: FakeHub, registry: FakeRegistry
) -> None:
    output = ("--output", f"{registry.host}/acme/tiny:1")
    first = machines.build("one", "hf://acme/tiny", *output)
    short = registry.put("acme/tiny", b"not the weights")
    pretend_all_weights_are(registry, short)

    second = machines.build("two", "hf://acme/tiny", *output)

    assert second["digest"] == first["digest"]
    assert second["transfer"]["bytes_read"] > WEIGHTS


def test_a_digest_that_is_not_there_is_read_instead(
    machines: Machines, hub: FakeHub, registry: FakeRegistry
) -> None:
    output = ("--output", f"{registry.host}/acme/tiny:1")
    first = machines.build("one", "hf://acme/tiny", *output)
    pretend_all_weights_are(registry, sha256(b"nowhere"))

    second = machines.build("two", "hf://acme/tiny", *output)

    assert second["digest"] == first["digest"]
    assert registry.uploads == {}


@pytest.mark.parametrize(
    ("media_type", "manifest"),
    [
        (MANIFEST, b"x" * 5_000_000),
        (MANIFEST, b"[" * 1_000_000),
        (MANIFEST, b'{"layers": [{"digest": "sha256:", "size": -1}]}'),
        ("application/vnd.oci.image.index.v1+json", b'{"manifests": [], "layers": []}'),
    ],
    ids=["longer than a manifest", "deep", "garbage", "index"],
)
def test_an_earlier_image_that_cannot_be_used_costs_time_alone(
    machines: Machines, hub: FakeHub, registry: FakeRegistry, media_type: str, manifest: bytes
) -> None:
    registry.put_manifest("acme/tiny", "0", manifest, media_type)

    built = machines.build("one", "hf://acme/tiny", "--output", f"{registry.host}/acme/tiny:1")

    assert (
        registry.manifests["acme/tiny", "1"][1]
        == registry.manifests["acme/tiny", built["digest"]][1]
    )


def pretend_all_weights_are(registry: FakeRegistry, digest: str) -> None:
    """Let the manifest of the tag name another blob for every weights layer."""
    _, data = registry.manifests["acme/tiny", "1"]
    document = json.loads(data)
    for layer in document["layers"]:
        if layer["annotations"]["dev.packager.role"] == "weights":
            layer["digest"] = digest
    registry.put_manifest("acme/tiny", "1", json.dumps(document).encode(), MANIFEST)
