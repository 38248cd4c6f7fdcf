"""Machines that never saw a model: what an image in the registry already tells them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import fresh_machines
from tests.support.cases import cases
from tests.support.commandline import Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.fresh_machines import hub as hub
from tests.support.fresh_machines import model as model

WEIGHTS = 9_000_000  # a little less than they have
HEADERS = 100_000  # of the shards, which splitting reads
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Machines(fresh_machines.Machines):
    """Machines of one key, the registry of their builds, and the hub of their models."""

    def __init__(
        self, packager: Packager, hub: FakeHub, root: Path, registry: FakeRegistry
    ) -> None:
        super().__init__(packager, hub, root)
        self.hub, self.registry = hub, registry
        self.output = ("--output", f"{registry.host}/acme/tiny:1")

    def environment(self, machine: str) -> dict[str, str]:
        own = super().environment(machine)
        return {name: value for name, value in own.items() if name != "XDG_CONFIG_HOME"}

    def build_tiny(self, machine: str, *options: str, name: str = "acme/tiny:1") -> dict[str, Any]:
        """Build the hub's model, streamed, into the registry."""
        output = f"{self.registry.host}/{name}"
        return self.build(machine, "hf://acme/tiny", "--output", output, *options)


@pytest.fixture
def machines(packager: Packager, hub: FakeHub, tmp_path: Path) -> Iterator[Machines]:
    with FakeRegistry() as registry:
        yield Machines(packager, hub, tmp_path, registry)


def weights(record: dict[str, Any]) -> set[str]:
    return set(fresh_machines.weights_of(record))


def shard_requests(hub: FakeHub) -> list[str]:
    """Reads of whole weights files; headers are asked for in short ranges."""
    return [seen.path for seen in hub.seen if seen.path.startswith("/blobs/") and not seen.range]


def not_weights(record: dict[str, Any]) -> int:
    return sum(layer["size"] for layer in record["layers"] if layer["role"] != "weights")


@pytest.mark.parametrize("tag", ["1", "2"], ids=["the same tag", "another tag"])
def test_a_fresh_machine_neither_reads_nor_sends_weights(machines: Machines, tag: str) -> None:
    first = machines.build_tiny("one")
    machines.hub.seen.clear()

    second = machines.build_tiny("two", name=f"acme/tiny:{tag}")

    assert second["digest"] == first["digest"]
    assert shard_requests(machines.hub) == []
    assert second["transfer"]["bytes_read"] <= not_weights(second)
    assert second["transfer"]["bytes_sent"] == 0


@pytest.mark.parametrize("first_source", ["hf://acme/tiny", "acme/tiny"], ids=["hf", "hub"])
def test_parts_of_large_files_are_recognised_too(machines: Machines, first_source: str) -> None:
    split = ("--max-layer-size", "2MiB", *machines.output)
    first = machines.build("one", first_source, *split)
    before = sum(layer["role"] == "weights" for layer in first["layers"])

    second = machines.build("two", "hf://acme/tiny", *split)

    assert before > 3
    assert second["digest"] == first["digest"]
    assert second["transfer"]["bytes_read"] <= not_weights(second) + HEADERS
    assert second["transfer"]["bytes_sent"] == 0


def test_a_fresh_machine_with_other_settings_sends_those_alone(machines: Machines) -> None:
    machines.build_tiny("one")
    machines.hub.seen.clear()

    second = machines.build_tiny("two", "--max-batch", "7")

    assert shard_requests(machines.hub) == []
    assert 0 < second["transfer"]["bytes_sent"] < 100_000


def test_what_was_downloaded_is_recognised_where_it_is_streamed(machines: Machines) -> None:
    first = machines.build("one", "acme/tiny", *machines.output)
    machines.hub.seen.clear()

    assert machines.build_tiny("two")["digest"] == first["digest"]
    assert shard_requests(machines.hub) == []


def test_a_known_directory_is_not_sent(machines: Machines, model: Path, tmp_path: Path) -> None:
    first = machines.build("one", str(model), *machines.output)
    copied = shutil.copytree(model, tmp_path / "copied" / model.name)

    second = machines.build("two", str(copied), *machines.output)

    assert second["digest"] == first["digest"]
    assert second["transfer"]["bytes_sent"] == 0
    files = sum(path.stat().st_size for path in model.iterdir())
    assert second["transfer"]["bytes_read"] <= files


def test_other_weights_of_the_same_shapes_are_sent(machines: Machines, tmp_path: Path) -> None:
    first = machines.build_tiny("one")
    other = write_model(tmp_path / "other", hidden_size=512, intermediate_size=1024, seed=7)
    machines.hub.add("acme/tiny", other)

    second = machines.build_tiny("two")

    assert not weights(first) & weights(second)
    assert second["transfer"]["bytes_sent"] > WEIGHTS


def test_verify_reads_all_and_sends_nothing_that_is_there(machines: Machines) -> None:
    first = machines.build_tiny("one")

    for machine in ("one", "two"):
        again = machines.build_tiny(machine, "--verify")

        assert again["digest"] == first["digest"]
        assert again["transfer"]["bytes_read"] > WEIGHTS
        assert again["transfer"]["bytes_sent"] == 0


def test_other_repositories_do_not_count(machines: Machines) -> None:
    machines.build_tiny("one")

    second = machines.build_tiny("two", name="other/tiny:1")

    assert second["transfer"]["bytes_read"] > WEIGHTS
    assert second["transfer"]["bytes_sent"] > WEIGHTS


def test_a_second_repository_takes_weights_over_without_their_bytes(machines: Machines) -> None:
    first = machines.build_tiny("one")

    second = machines.build_tiny("one", "--max-batch", "7", name="prod/tiny:9")

    assert weights(first) == weights(second)
    assert all(("prod/tiny", digest) in machines.registry.blobs for digest in weights(first))
    assert second["transfer"]["bytes_read"] == 0
    assert second["transfer"]["bytes_sent"] < 100_000


def test_a_registry_that_refuses_mounts_gets_the_bytes(machines: Machines) -> None:
    machines.build_tiny("one")
    machines.registry.quirks.mounts = False

    assert machines.build_tiny("one", name="prod/tiny:1")["transfer"]["bytes_sent"] > WEIGHTS
    assert machines.registry.uploads == {}


@pytest.mark.parametrize("content", [b"not the weights", None], ids=["shorter", "not there"])
def test_weights_of_a_wrong_digest_are_read(machines: Machines, content: bytes | None) -> None:
    first = machines.build_tiny("one")
    wrong = machines.registry.put("acme/tiny", content) if content else sha256(b"nowhere")
    pretend_all_weights_are(machines.registry, wrong)

    second = machines.build_tiny("two")

    assert second["digest"] == first["digest"]
    assert second["transfer"]["bytes_read"] > WEIGHTS
    assert machines.registry.uploads == {}


@pytest.mark.extended
@cases("unusable", media_type="application/vnd.oci.image.manifest.v1+json")
def test_an_unusable_earlier_image(machines: Machines, media_type: str, manifest: bytes) -> None:
    machines.registry.put_manifest("acme/tiny", "0", manifest, media_type)

    built = machines.build_tiny("one")

    assert (
        machines.registry.manifests["acme/tiny", "1"][1]
        == machines.registry.manifests["acme/tiny", built["digest"]][1]
    )


def pretend_all_weights_are(registry: FakeRegistry, digest: str) -> None:
    """Let the manifest of the tag name another blob for every weights layer."""
    _, data = registry.manifests["acme/tiny", "1"]
    document = json.loads(data)
    for layer in document["layers"]:
        if layer["annotations"]["dev.packager.role"] == "weights":
            layer["digest"] = digest
    registry.put_manifest("acme/tiny", "1", json.dumps(document).encode(), MANIFEST)
