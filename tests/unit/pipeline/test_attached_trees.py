"""Records of images that were built with a tree, as others may read them."""

from __future__ import annotations

from packager.core.record import RecordedImage, RecordedTree
from packager.core.request import BuildRequest
from packager.pipeline.attached_record import published
from tests.support.lineage_records import build_record


def test_the_directory_of_a_tree_is_not_published() -> None:
    tree = RecordedTree(
        target="dir:/home/ann/out", name="dir:/home/ann/out", digest="sha256:1", files=1, size=1
    )
    record = build_record(
        request=BuildRequest(model="org/m", instance="local", outputs=("dir:/home/ann/out",)),
        images=(RecordedImage(target="r.example/m:1", name="r.example/m:1", digest="sha256:2"),),
        trees=(tree,),
    )

    assert "ann" not in published(record).model_dump_json()
