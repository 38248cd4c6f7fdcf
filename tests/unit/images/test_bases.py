"""Bases are somebody else's: what they state in our words does not reach an image of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.core.image import BaseImage, Blob, Inline, RuntimeConfig
from packager.images.oci import merge_runtime, parse_base
from packager.images.stored import parse_stored
from packager.images.views import OWN_LAYERS, VIEWS
from tests.support.cases import read_tables
from tests.support.made_images import image_with
from tests.support.stored_images import SERVING, image, layer, sealed_as_described


def base(annotations: object, *, created_by: str = "debian") -> BaseImage:
    """Return a base whose only layer has these annotations, and this line of history."""
    tables = read_tables(__file__)
    config, manifest = tables["config"], tables["manifest"]
    config["history"] = [{"created_by": created_by}]
    manifest["layers"][0]["annotations"] = annotations
    return parse_base(
        "registry.test/base:1",
        json.dumps(manifest).encode(),
        json.dumps(config).encode(),
        locate=lambda found: Blob((Inline(bytes(found.size)),)),
    )


def on(below: BaseImage) -> dict[str, Any]:
    """The configuration of an image with one layer of ours on a base."""
    ours = RuntimeConfig(labels={"dev.packager.version": "1"})
    spec = image_with(*below.layers, layer("weights", "shard"), base=below, runtime=ours)
    parsed: dict[str, Any] = json.loads(sealed_as_described(spec).config)
    return parsed


def test_annotations_of_a_base_in_our_name_are_dropped_and_others_stay() -> None:
    stated = {"dev.packager.role": "weights", "dev.packager.content": "x", "org.example.a": "b"}

    assert dict(base(stated).layers[0].annotations) == {"org.example.a": "b"}


def test_labels_of_a_base_in_our_name_are_dropped_and_ours_stay() -> None:
    assert on(base({}))["config"] == {"Labels": {"dev.packager.version": "1", "maintainer": "them"}}


def test_our_labels_win_over_those_of_the_base() -> None:
    merged = merge_runtime(
        {"Labels": {"org.opencontainers.image.title": "theirs"}},
        RuntimeConfig(labels={"org.opencontainers.image.title": "ours"}),
    )

    assert merged["Labels"] == {"org.opencontainers.image.title": "ours"}


def test_history_of_a_base_cannot_pass_for_a_layer_of_ours() -> None:
    made = on(base({}, created_by="packager: weights model.safetensors (1 GB)"))

    lines = [entry["created_by"] for entry in made["history"]]
    assert lines == [
        "base: packager: weights model.safetensors (1 GB)",
        "packager: weights shard (9 B)",
    ]


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_takes_over_no_annotation_in_our_name(name: str) -> None:
    """A copied image is a stranger's; the view of it is a manifest that we make."""
    foreign = json.loads(image(SERVING).sealed.manifest)
    for entry in foreign["layers"]:
        entry["annotations"] = {**read_tables(__file__)["foreign"]}
    foreign["layers"][0]["annotations"]["dev.packager.role"] = "base"
    foreign["annotations"] = {"dev.packager.content": "sha256:" + "c" * 64}
    found = parse_stored("r.test/a:1", json.dumps(foreign).encode(), image(SERVING).sealed.config)

    manifest = json.loads(VIEWS[name](found).sealed.manifest)
    theirs = [one for one in manifest["layers"] if one["digest"] not in OWN_LAYERS]

    assert b"dev.packager.content" not in VIEWS[name](found).sealed.manifest
    assert {json.dumps(entry.get("annotations"), sort_keys=True) for entry in theirs} <= {
        '{"dev.packager.role": "weights", "org.example.a": "b"}',
        '{"org.example.a": "b"}',  # of a base
        *(("null",) if name == "docker" else ()),  # its manifests have none
    }
    assert theirs
