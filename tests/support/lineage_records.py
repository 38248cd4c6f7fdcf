"""Build records: as documents, for graphs of what came from what, and as values."""

from __future__ import annotations

import json
from typing import Any

from packager.core.record import (
    BuildRecord,
    RecordedBase,
    RecordedImage,
    RecordedModel,
    RecordedTree,
    Transfer,
)
from packager.core.request import BuildRequest
from tests.support.places import DATA

_RECORD = (DATA / "lineage" / "record.json").read_bytes()
IMAGE = json.loads(_RECORD)["digest"]
KEY = json.loads(_RECORD)["steps"][0]["key"]


def record(**changes: Any) -> dict[str, Any]:
    """A build of a quantized model, whose data was named in the request."""
    return json.loads(_RECORD) | changes


def build_record(
    *,
    request: BuildRequest | dict[str, Any] | None = None,
    images: tuple[RecordedImage, ...] = (),
    trees: tuple[RecordedTree, ...] = (),
    **changes: Any,
) -> BuildRecord:
    """A build of a model of a bucket, for a base in a registry."""
    digest = f"sha256:{'ab' * 32}"
    given: dict[str, Any] = {
        "packager_version": "1",
        "model": RecordedModel(source="s3", name="tiny"),
        "base": RecordedBase(reference="host/base:1", digest=digest, platform="linux/amd64"),
        "family": "vllm",
        "engine": "vllm",
        "engine_version": "0.27.1",
        "tp_degree": 1,
        "served_name": "tiny",
        "shape": {},
        "created": "",
        "digest": digest,
        "layers": (),
        "transfer": Transfer(),
        "seconds": 1.0,
        **changes,
    }
    asked = BuildRequest.model_validate(request or {"model": "m", "instance": "local"})
    return BuildRecord(request=asked, images=images, trees=trees, **given)
