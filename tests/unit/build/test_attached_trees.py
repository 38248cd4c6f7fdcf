"""Records of images that were built with a tree, as others may read them."""

from __future__ import annotations

from packager.build.attached_record import published
from packager.core.record import (
    BuildRecord,
    RecordedBase,
    RecordedImage,
    RecordedModel,
    RecordedTree,
    Transfer,
)
from packager.core.request import BuildRequest


def test_the_directory_of_a_tree_is_not_published() -> None:
    tree = RecordedTree(
        target="dir:/home/ann/out", name="dir:/home/ann/out", digest="sha256:1", files=1, size=1
    )
    record = BuildRecord(
        packager_version="1",
        request=BuildRequest(model="org/m", instance="local", outputs=("dir:/home/ann/out",)),
        model=RecordedModel(source="hub", name="org/m"),
        base=RecordedBase(reference="scratch", digest="", platform="linux/amd64"),
        family="vllm",
        engine="vllm",
        engine_version="1",
        tp_degree=1,
        served_name="m",
        shape={},
        created="1970-01-01T00:00:00Z",
        digest="sha256:2",
        layers=(),
        images=(RecordedImage(target="r.example/m:1", name="r.example/m:1", digest="sha256:2"),),
        trees=(tree,),
        transfer=Transfer(),
        seconds=1.0,
    )

    assert "ann" not in published(record).model_dump_json()
