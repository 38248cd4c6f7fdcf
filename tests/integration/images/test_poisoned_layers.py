"""Attackers who want a build to name their weights: nothing they write may be believed.

Each attack ends in the weights of the hub.  The registries are a real one, which lists what is
attached by a tag only, and doubles with and without the API for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import read_tables
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.doubles.raw_registry import (
    CONFIG,
    LAYER,
    MANIFEST,
    RawRegistry,
    descriptor,
    sha256,
)
from tests.support.doubles.registry import FakeRegistry
from tests.support.fresh_machines import Machines, weights_of
from tests.support.fresh_machines import hub as hub
from tests.support.fresh_machines import machines as machines
from tests.support.fresh_machines import model as model


@pytest.fixture(
    params=[
        pytest.param("real", marks=pytest.mark.live, id="docker-registry"),
        pytest.param("listing", id="with the referrers API"),
        pytest.param("plain", id="without the referrers API"),
    ]
)
def place(request: pytest.FixtureRequest) -> Iterator[RawRegistry]:
    """Where the victim keeps images."""
    if request.param == "real":
        yield RawRegistry(request.getfixturevalue("registry"))
        return
    with FakeRegistry(referrers=request.param == "listing") as fake:
        yield RawRegistry(fake.host)


@pytest.fixture
def elsewhere() -> Iterator[RawRegistry]:
    """The attacker's own registry."""
    with FakeRegistry() as fake:
        yield RawRegistry(fake.host)


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own: the real registry serves the whole session."""
    return f"team/{sha256(request.node.name.encode())[7:19]}"


def content_of(shard: Path) -> str:
    """The digest that stands for one shard's layer, as decision 0005 defines it."""
    held = [
        f"/opt/packager/model/{shard.name}",
        shard.stat().st_size,
        False,
        sha256(shard.read_bytes()).removeprefix("sha256:"),
    ]
    return sha256(json.dumps({"tar": 1, "files": [held]}, separators=(",", ":")).encode())


def poison(registry: RawRegistry, repository: str, tag: str, model: Path) -> list[str]:
    """Replace each weights layer of an image by other bytes of its length, said to be the model's.

    Return the digests of the attacker's layers.
    """
    manifest = registry.manifest(repository, tag)
    config = json.loads(registry.blob(repository, manifest["config"]["digest"]))
    shards = {shard.stat().st_size: content_of(shard) for shard in model.glob("*.safetensors")}
    contents = [content_of(shard) for shard in sorted(model.glob("*.safetensors"))]
    assert len(shards) <= len(contents)
    placed = []
    for position, layer in enumerate(manifest["layers"]):
        if layer["annotations"]["dev.packager.role"] != "weights":
            continue
        good = registry.blob(repository, layer["digest"])
        half = len(good) // 2
        evil = good[:half] + bytes(byte ^ 0x55 for byte in good[half : half + 4096])
        evil += good[half + 4096 :]
        layer["digest"] = registry.put_blob(repository, evil)
        layer["annotations"]["dev.packager.content"] = contents[len(placed)]
        config["rootfs"]["diff_ids"][position] = layer["digest"]
        placed.append(layer["digest"])
    data = json.dumps(config).encode()
    registry.put_blob(repository, data)
    manifest["config"] = descriptor(data, CONFIG)
    registry.put_manifest(repository, tag, manifest)
    return placed


@pytest.mark.extended
def test_a_copied_image_of_a_stranger_has_no_say_in_later_builds(
    machines: Machines, place: RawRegistry, elsewhere: RawRegistry, repository: str, model: Path
) -> None:
    """Found as B1: `packager copy` brings a manifest whose annotations lie."""
    good = machines.build("attacker", "hf://acme/tiny", "--output", f"{elsewhere.host}/evil/img:1")
    evil = poison(elsewhere, "evil/img", "1", model)
    machines.run("victim", "copy", f"{elsewhere.host}/evil/img:1", f"{place.host}/{repository}:0")

    built = machines.build("fresh", "hf://acme/tiny", "--output", f"{place.host}/{repository}:prod")

    assert weights_of(built) == weights_of(good)
    assert not set(evil) & set(weights_of(built))
    named = place.manifest(repository, "prod")["layers"]
    assert not set(evil) & {layer["digest"] for layer in named}


@pytest.mark.extended
def test_a_base_image_has_no_say_in_the_weights_of_later_builds(
    machines: Machines,
    hub: FakeHub,
    place: RawRegistry,
    elsewhere: RawRegistry,
    repository: str,
    tmp_path: Path,
) -> None:
    """Found as B2: layers of a base that claim to be the weights of the next version."""
    after = write_model(tmp_path / "v2", hidden_size=512, intermediate_size=1024, seed=2)
    hub.add("acme/next", after)
    good = machines.build("attacker", "hf://acme/next", "--output", f"{elsewhere.host}/e/img:1")
    evil = poison(elsewhere, "e/img", "1", after)
    output = ("--output", f"{place.host}/{repository}")
    machines.build(
        "first", "hf://acme/tiny", "--base", f"{elsewhere.host}/e/img:1", *output_at(output, "1")
    )

    built = machines.build("fresh", "hf://acme/next", *output_at(output, "2"))

    assert weights_of(built) == weights_of(good)
    assert not set(evil) & set(weights_of(built))


def output_at(output: tuple[str, str], tag: str) -> tuple[str, str]:
    return output[0], f"{output[1]}:{tag}"


@pytest.mark.extended
def test_nothing_that_a_base_says_in_our_words_reaches_our_manifest(
    machines: Machines, place: RawRegistry, elsewhere: RawRegistry, repository: str
) -> None:
    tar = bytes(10240)
    elsewhere.put_blob("evil/base", tar)
    stated = read_tables(__file__)["base"]
    rootfs = {"type": "layers", "diff_ids": [sha256(tar)]}
    data = json.dumps({**stated["config"], "rootfs": rootfs}).encode()
    elsewhere.put_blob("evil/base", data)
    layer = {**descriptor(tar, LAYER), "annotations": stated["annotations"]}
    parts = {"config": descriptor(data, CONFIG), "layers": [layer]}
    manifest = {**stated["manifest"], **parts, "mediaType": MANIFEST}
    base_digest = elsewhere.put_manifest("evil/base", "1", manifest)

    machines.build(
        "one",
        "hf://acme/tiny",
        *("--base", f"{elsewhere.host}/evil/base:1"),
        *("--output", f"{place.host}/{repository}:1"),
    )

    made = place.manifest(repository, "1")
    base = made["layers"][0]
    assert base["digest"] == sha256(tar)
    assert base["annotations"] == {"org.example.kept": "yes"}
    assert list(made["annotations"]) == ["org.opencontainers.image.base.digest"]
    labels = json.loads(place.blob(repository, made["config"]["digest"]))["config"]["Labels"]
    assert "dev.packager.view" not in labels
    assert labels["org.opencontainers.image.base.digest"] == base_digest
    assert json.loads(labels["dev.packager.record"])["model"]["name"] == "acme/tiny"
    shown = json.loads(
        machines.run("one", "inspect", f"{place.host}/{repository}:1", "--format", "json").out
    )
    assert [layer["role"] for layer in shown["layers"]][:2] == ["base", "weights"]
