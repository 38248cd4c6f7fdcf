"""What a build says of its layers."""

from __future__ import annotations

from packager.build.report import summary_lines
from packager.core.record import (
    BuildRecord,
    RecordedBase,
    RecordedLayer,
    RecordedModel,
    Transfer,
)
from packager.core.request import BuildRequest
from tests.support.cases import cases_of

cases = cases_of(__file__)

DIGEST = "sha256:" + 64 * "a"


@cases("layers_are_listed_in_the_order_of_the_image")
def test_layers_are_listed_in_the_images_order(roles: tuple[str, ...], said: list[str]) -> None:
    record = BuildRecord(
        packager_version="1",
        request=BuildRequest(model="model", instance="local"),
        model=RecordedModel(source="local", name="model"),
        base=RecordedBase(reference="base", digest=DIGEST, platform="linux/amd64"),
        family="vllm",
        engine="vllm",
        engine_version="1",
        tp_degree=1,
        served_name="model",
        shape={},
        created="1970-01-01T00:00:00Z",
        digest=DIGEST,
        layers=tuple(RecordedLayer(role=role, digest=DIGEST, size=1) for role in roles),
        images=(),
        transfer=Transfer(),
        seconds=1.0,
    )

    header, *rows, _ = summary_lines(record)

    assert header.split() == ["layer", "size", "digest"]
    assert [row.partition("  ")[0] for row in rows] == said
