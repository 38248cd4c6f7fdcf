"""Weights images and ModelPacks made of a serving image's layers."""

from __future__ import annotations

import json

import pytest

from packager.core.image import MEDIA_LAYER
from packager.errors import UsageError
from packager.images.views import VIEWS, modelpack_view, weights_view
from tests.support.image_schemas import CONFIG, MANIFEST, check_modelpack_config, check_oci
from tests.support.stored_images import BASE, DRAFT, SERVING, SHARDS, SMALL, image, layer


def digests(*layers: object) -> list[str]:
    return [found.digest for found in layers]  # type: ignore[attr-defined]


def test_a_serving_image_is_what_the_specification_allows() -> None:
    sealed = image(env={"A": "1"}).sealed

    check_oci(sealed.manifest, MANIFEST)
    check_oci(sealed.config, CONFIG)


def test_the_weights_view_holds_model_and_draft_and_nothing_else() -> None:
    view = weights_view(image())

    found = json.loads(view.sealed.manifest)["layers"]
    assert [entry["digest"] for entry in found] == digests(*SHARDS, SMALL, DRAFT)
    assert {entry["mediaType"] for entry in found} == {MEDIA_LAYER}
    assert json.loads(view.sealed.config)["rootfs"]["diff_ids"] == [
        found.diff_id for found in (*SHARDS, SMALL, DRAFT)
    ]


def test_the_weights_view_is_an_image_by_the_specification() -> None:
    sealed = weights_view(image()).sealed

    check_oci(sealed.manifest, MANIFEST)
    check_oci(sealed.config, CONFIG)


@pytest.mark.parametrize("name", VIEWS)
def test_images_with_the_same_weights_have_the_same_view(name: str) -> None:
    other = image(
        (layer("base", "ubuntu"), *SERVING[1:-1], layer("config", "other settings")),
        record={
            "model": {"source": "hub", "name": "org/tiny", "revision": "c0ffee"},
            "precision": "bf16",
            "request": {"quantize": "awq", "instance": "ml.g5.xlarge"},
        },
        env={"TENSOR_PARALLEL_DEGREE": "8"},
        created="2026-01-01T00:00:00Z",
    )

    assert VIEWS[name](other).digest == VIEWS[name](image()).digest


def test_the_modelpack_is_what_its_specification_says() -> None:
    view = modelpack_view(image())

    check_oci(view.sealed.manifest, MANIFEST)
    check_modelpack_config(view.sealed.config)
    assert json.loads(view.sealed.manifest) == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.cncf.model.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.cncf.model.config.v1+json",
            "digest": view.sealed.config_descriptor.digest,
            "size": len(view.sealed.config),
        },
        "layers": [
            {
                "mediaType": f"application/vnd.cncf.model.{kind}.v1.tar",
                "digest": found.digest,
                "size": found.size,
                "annotations": {"dev.packager.role": found.role},
            }
            for kind, found in (
                ("weight", SHARDS[0]),
                ("weight", SHARDS[1]),
                ("weight.config", SMALL),
            )
        ],
    }
    assert json.loads(view.sealed.config) == {
        "descriptor": {"name": "org/tiny", "revision": "c0ffee"},
        "config": {"format": "safetensors", "precision": "bfloat16", "quantization": "awq"},
        "modelfs": {
            "type": "layers",
            "diffIds": [found.diff_id for found in (*SHARDS, SMALL)],
        },
    }


@pytest.mark.parametrize("suffix", ["+gzip", "+zstd"])
def test_a_compressed_layer_stays_compressed_in_the_modelpack(suffix: str) -> None:
    packed = layer("weights", "shard", media_type=MEDIA_LAYER + suffix)

    [entry] = json.loads(modelpack_view(image((BASE, packed))).sealed.manifest)["layers"]

    assert entry["mediaType"] == f"application/vnd.cncf.model.weight.v1.tar{suffix}"


@pytest.mark.parametrize("name", VIEWS)
def test_an_image_without_baked_weights_has_no_views(name: str) -> None:
    with pytest.raises(UsageError, match="holds no layer of weights"):
        VIEWS[name](image((BASE, SERVING[-1])))


def test_roles_are_read_from_the_history_where_nothing_is_annotated() -> None:
    roles = [found.role for found in image(annotated=False).layers]

    assert roles == ["base", "weights", "weights", "model", "draft", "config"]


def test_layers_of_a_strangers_image_have_no_role() -> None:
    assert [found.role for found in image((BASE,)).layers] == ["layer"]


def test_a_view_of_the_weights_view_is_the_same_weights() -> None:
    view = weights_view(image())

    assert weights_view(view).layers == view.layers
