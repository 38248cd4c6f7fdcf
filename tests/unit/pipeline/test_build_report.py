"""What a build says of its layers."""

from __future__ import annotations

from packager.core.record import RecordedLayer
from packager.pipeline.report import summary_lines
from tests.support.cases import cases
from tests.support.lineage_records import build_record

DIGEST = "sha256:" + 64 * "a"


@cases("layers_are_listed_in_the_order_of_the_image")
def test_layers_are_listed_in_the_images_order(roles: tuple[str, ...], said: list[str]) -> None:
    layers = tuple(RecordedLayer(role=role, digest=DIGEST, size=1) for role in roles)

    header, *rows, _ = summary_lines(build_record(layers=layers))

    assert header.split() == ["layer", "size", "digest"]
    assert [row.partition("  ")[0] for row in rows] == said
