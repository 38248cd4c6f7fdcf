"""Weights images and ModelPacks made of a serving image's layers."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable

import pytest

from packager.core.errors import UsageError
from packager.core.image import MEDIA_LAYER, Inline
from packager.images.stored import StoredImage
from packager.images.views import (
    OWN_LAYERS,
    VIEWS,
    docker_view,
    kserve_view,
    modelcar_view,
    modelpack_view,
    weights_view,
)
from tests.support.cases import read_tables
from tests.support.image_schemas import CONFIG, MANIFEST, check_modelpack_config, check_oci
from tests.support.stored_images import BASE, DRAFT, RECORD, SERVING, SHARDS, SMALL, image, layer


def digests(*layers: object) -> list[str]:
    return [found.digest for found in layers]  # type: ignore[attr-defined]


def layers_of(view: StoredImage) -> list[str]:
    return [found.descriptor.digest for found in view.layers]


def check_is_image(view: StoredImage) -> None:
    check_oci(view.sealed.manifest, MANIFEST)
    check_oci(view.sealed.config, CONFIG)


@pytest.mark.parametrize("view", [lambda found: found, weights_view, kserve_view, modelcar_view])
def test_images_follow_the_specification(view: Callable[[StoredImage], StoredImage]) -> None:
    check_is_image(view(image(env={"A": "1"})))


def test_the_weights_view_holds_model_and_draft_and_nothing_else() -> None:
    view = weights_view(image())

    found = json.loads(view.sealed.manifest)["layers"]
    assert [entry["digest"] for entry in found] == digests(*SHARDS, SMALL, DRAFT)
    assert {entry["mediaType"] for entry in found} == {MEDIA_LAYER}
    assert json.loads(view.sealed.config)["rootfs"]["diff_ids"] == [
        found.diff_id for found in (*SHARDS, SMALL, DRAFT)
    ]


@pytest.mark.parametrize("name", ["weights", "modelpack", "kserve"])
def test_images_with_the_same_weights_have_the_same_view(name: str) -> None:
    other = image(
        (layer("base", "ubuntu"), *SERVING[1:-1], layer("config", "other settings")),
        record={**RECORD, "request": {"quantize": "awq", "instance": "ml.g5.xlarge"}},
        env={"TENSOR_PARALLEL_DEGREE": "8"},
        created="2026-01-01T00:00:00Z",
    )

    assert VIEWS[name](other).digest == VIEWS[name](image()).digest


def test_the_modelpack_is_what_its_specification_says() -> None:
    view = modelpack_view(image())

    check_oci(view.sealed.manifest, MANIFEST)
    check_modelpack_config(view.sealed.config)
    expected = read_tables(__file__)["modelpack"]
    assert json.loads(view.sealed.manifest) == expected["manifest"]
    assert json.loads(view.sealed.config) == expected["config"]


@pytest.mark.parametrize("suffix", ["+gzip", "+zstd"])
def test_a_compressed_layer_stays_compressed_in_the_modelpack(suffix: str) -> None:
    packed = layer("weights", "shard", media_type=MEDIA_LAYER + suffix)

    [entry] = json.loads(modelpack_view(image((BASE, packed))).sealed.manifest)["layers"]

    assert entry["mediaType"] == f"application/vnd.cncf.model.weight.v1.tar{suffix}"


@pytest.mark.parametrize("name", sorted(VIEWS.keys() - {"docker"}))
def test_an_image_without_baked_weights_has_no_view_of_them(name: str) -> None:
    with pytest.raises(UsageError, match="holds no layer of weights"):
        VIEWS[name](image((BASE, SERVING[-1])))


def test_roles_are_read_from_the_history_where_nothing_is_annotated() -> None:
    roles = [found.role for found in image(annotated=False).layers]

    assert roles == ["base", "weights", "weights", "model", "draft", "config"]
    assert [found.role for found in image((BASE,)).layers] == ["layer"]  # a stranger's


@pytest.mark.parametrize("view", [weights_view, kserve_view, modelcar_view, docker_view])
def test_a_view_of_itself_changes_nothing(view: Callable[[StoredImage], StoredImage]) -> None:
    once = view(image())

    assert view(once).layers == once.layers
    assert view is not docker_view or view(once).digest == once.digest


# Nodes keep the layer: its digest stays.
LINK = "sha256:b61b9bdee5167699400ff5ef337f8b470e1856cf4b687532f17e7f632b4954be"


def test_the_link_is_a_relative_one_to_the_model_in_a_layer_of_1536_bytes() -> None:
    [(digest, blob)] = OWN_LAYERS.items()
    data = b"".join(part.data for part in blob.segments if isinstance(part, Inline))

    assert (digest, len(data)) == (LINK, 1536)
    assert digest == "sha256:" + hashlib.sha256(data).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        [link] = archive.getmembers()
    assert (link.name, link.issym(), link.linkname) == ("models", True, "opt/packager/model")
    assert (link.mtime, link.uid, link.gid, link.mode) == (0, 0, 0, 0o777)


def test_the_kserve_view_is_the_weights_view_and_the_link() -> None:
    view = kserve_view(image())

    assert layers_of(view) == [*digests(*SHARDS, SMALL, DRAFT), LINK]
    assert json.loads(view.sealed.config)["rootfs"]["diff_ids"][-1] == LINK
    assert view.labels["dev.packager.view"] == "kserve"


def test_the_modelcar_view_is_the_whole_image_and_the_link() -> None:
    serving = image(env={"A": "1"})
    view = modelcar_view(serving)

    assert layers_of(view) == [*digests(*SERVING), LINK]
    assert {**view.runtime} == {**serving.runtime}


def test_the_link_is_in_no_other_view() -> None:
    assert weights_view(modelcar_view(image())).digest == weights_view(image()).digest


def test_an_image_without_a_base_has_no_shell_for_a_sidecar() -> None:
    with pytest.raises(UsageError, match="no base, and so no shell") as refused:
        modelcar_view(image(SERVING[1:]))

    assert "--view kserve" in refused.value.hint


def test_the_docker_view_has_other_types_and_the_same_bytes() -> None:
    serving = image(env={"A": "1"})
    docker = "application/vnd.docker."

    view = docker_view(serving)

    assert view.sealed.config == serving.sealed.config
    assert layers_of(view) == digests(*SERVING)
    assert [found.role for found in view.layers] == [found.role for found in serving.layers]
    document = json.loads(view.sealed.manifest)
    assert document["mediaType"] == f"{docker}distribution.manifest.v2+json"
    assert view.sealed.manifest_descriptor.media_type == document["mediaType"]
    assert document["config"]["mediaType"] == f"{docker}container.image.v1+json"
    types = {entry["mediaType"] for entry in document["layers"]}
    assert types == {f"{docker}image.rootfs.diff.tar"}
    fields = {name for entry in document["layers"] for name in entry}
    assert fields == {"mediaType", "size", "digest"}


def test_an_image_whose_weights_are_mounted_has_a_docker_view() -> None:
    mounted = image((BASE, SERVING[-1]))

    assert docker_view(mounted).sealed.config == mounted.sealed.config


def test_dockers_manifests_know_no_zstd() -> None:
    packed = image((layer("base", "debian", media_type=f"{MEDIA_LAYER}+zstd"), *SERVING[1:]))

    with pytest.raises(UsageError, match="know no layers of"):
        docker_view(packed)


def test_a_modelpack_has_no_docker_view() -> None:
    with pytest.raises(UsageError, match="no image that an engine can start"):
        docker_view(modelpack_view(image()))
