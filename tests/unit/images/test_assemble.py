"""Where each layer goes, and that its place does not change what it is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.errors import UsageError
from packager.core.image import BaseImage, FileRange, ImageSpec, Inline
from packager.core.model import ModelFile
from packager.core.serving import MODEL_DIR, RenderedFile, ServingConfig
from packager.core.units import GIB, MIB
from packager.images.assemble import assemble_image, check_layers
from packager.images.layer_plan import draft_layers, model_layers
from packager.images.oci import sha256
from packager.images.rootfs.placement import Placement
from packager.images.tar import DirectoryAttributes
from tests.support.cases import cases, read_tables
from tests.support.image_schemas import CONFIG, MANIFEST, check_oci
from tests.support.made_layers import base_of
from tests.support.stored_images import layer, sealed_as_described

BASE = base_of(
    (layer("base", "debian"), layer("base", "server")),
    rootfs={"type": "layers", "diff_ids": []},
    history=read_tables(__file__)["history"],
)


def file(path: str, size: int = 2 * MIB) -> ModelFile:
    content = FileRange(path=f"/nowhere/{path}", offset=0, length=size)
    role = "weights" if path.endswith(".safetensors") else "config"
    return ModelFile(path=path, role=role, content=content)  # type: ignore[arg-type]


ARTIFACTS = Artifacts(
    model=(file("a.safetensors"), file("b.safetensors"), file("config.json", 10)),
    draft=(file("model.safetensors"),),
    compiled=(file("graph.neff"), file("manifest.json", 10)),
)
SERVING = ServingConfig(files=(RenderedFile(path="/opt/packager/serving/c.json", data=b"{}"),))


def assembled(
    order: str = "base-first", base: BaseImage = BASE, made: Artifacts = ARTIFACTS, **more: Any
) -> ImageSpec:
    fields: Any = {"labels": {}, "created": "1970-01-01T00:00:00Z", "order": order, **more}
    return assemble_image(base, made, SERVING, **fields)


def roles(image: ImageSpec) -> list[str]:
    return [found.role for found in image.layers]


@cases("what_changes_most_comes_last")
def test_what_changes_most_comes_last(order: str, expected: str) -> None:
    image = assembled(order)

    assert roles(image) == expected.split()
    named = [found.annotations.get("dev.packager.role", "base") for found in image.layers]
    assert named == expected.split()


def test_the_order_does_not_change_a_layer() -> None:
    one, other = assembled(), assembled("weights-first")

    assert {found.created_by: found.blob for found in one.layers} == {
        found.created_by: found.blob for found in other.layers
    }


def test_a_layer_is_another_where_the_base_has_its_directories_otherwise() -> None:
    made = replace(ARTIFACTS, model=tuple(replace(one, sha256="aa") for one in ARTIFACTS.model))
    shared, xattrs = DirectoryAttributes(mode=0o1777), ((b"user.note", b"\xff"),)
    elsewhere, other = Placement(directories={"/srv": shared}), DirectoryAttributes(xattrs=xattrs)
    placements = [
        *(Placement(), Placement(directories={"/opt": shared}), elsewhere),
        *(Placement(directories={"/opt": other}), Placement(moved={MODEL_DIR: "/data"})),
    ]

    usual, kept, unused, noted, moved = (
        [(one.content, one.blob) for one in assembled(made=made, placement=one).layers[2:5]]
        for one in placements
    )

    assert usual == unused
    for one in (kept, noted, moved):
        assert not {pair[0] for pair in one} & {pair[0] for pair in usual}
        assert not any(blob in [pair[1] for pair in usual] for _, blob in one)


@pytest.mark.parametrize("order", ["base-first", "weights-first"])
def test_history_and_diff_ids_follow_the_layers(order: str) -> None:
    image = assembled(order)
    layers = [
        found
        if found.digest
        else replace(found, digest=sha256(found.created_by.encode()), diff_id="")
        for found in image.layers
    ]
    sealed = sealed_as_described(replace(image, layers=tuple(layers)))

    check_oci(sealed.manifest, MANIFEST)
    check_oci(sealed.config, CONFIG)
    config = json.loads(sealed.config)
    made = [entry["created_by"] for entry in config["history"] if not entry.get("empty_layer")]
    base = iter(("debian", "server"))
    assert made == [found.created_by if found.role != "base" else next(base) for found in layers]
    assert config["rootfs"]["diff_ids"] == [found.diff_id or found.digest for found in layers]
    assert config["history"].index({"created_by": "ENV A=1", "empty_layer": True}) == (
        1 if order == "base-first" else 5
    )


def test_a_base_that_packager_made_would_cover_the_weights() -> None:
    ours = replace(
        BASE, config={**BASE.config, "config": {"Labels": {"dev.packager.record": "{}"}}}
    )

    with pytest.raises(UsageError, match="would cover"):
        assembled("weights-first", ours)
    assert roles(assembled("base-first", ours))[0] == "base"


def test_compiled_artifacts_have_a_directory_of_their_own() -> None:
    [compiled] = [found for found in assembled().layers if found.role == "compiled"]
    head = compiled.blob.segments[0]

    assert isinstance(head, Inline)
    assert b"opt/packager/compiled/graph.neff" in head.data


def test_many_shards_share_layers_of_much_the_same_size() -> None:
    sizes = [GIB if number % 3 else 3 * GIB for number in range(163)]
    shards = [file(f"{number:03}.safetensors", size) for number, size in enumerate(sizes)]

    layers = model_layers(shards, base_layers=12, directory="/m")

    assert len(layers) <= 90
    assert len(model_layers(shards[:90], base_layers=20, directory="/m")) == 90
    assert max(found.size for found in layers) < 4.1 * GIB
    assert sum(found.size for found in layers) >= sum(sizes)


def test_the_grouping_does_not_depend_on_the_base() -> None:
    shards = [file(f"{number:03}.safetensors") for number in range(163)]

    assert model_layers(shards, base_layers=3, directory="/m") == model_layers(
        shards, base_layers=26, directory="/m"
    )


def test_a_large_draft_is_several_layers() -> None:
    shards = [file(f"{number}.safetensors", 3 * GIB) for number in range(3)]

    assert len(draft_layers(shards, directory="/d")) == 3
    assert len(draft_layers([*shards[:1], file("s.safetensors")], directory="/d")) == 1


def test_layers_over_the_asked_size_are_named() -> None:
    image = assembled()

    assert not list(check_layers(image, 3 * MIB))
    found = list(check_layers(image, MIB))
    assert {finding.code for finding in found} == {"layer-over-size"}
    assert len(found) == 4


def test_compressed_layers_are_never_claimed() -> None:
    """What a layer holds tells the digest of its tar, not of what compressing gives."""
    named = replace(ARTIFACTS, model=(replace(ARTIFACTS.model[0], sha256="a" * 64),), draft=())

    def contents(compression: str) -> list[str]:
        image = assembled(made=named, compression=compression)
        return [found.content[:7] for found in image.layers if found.role == "weights"]

    assert contents("none") == ["sha256:"]
    assert contents("zstd") == contents("auto") == [""]
