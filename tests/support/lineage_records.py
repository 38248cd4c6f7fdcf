"""Build records: as documents, for graphs of what came from what, and as values."""

from __future__ import annotations

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

KEY = "6f" * 32
IMAGE = "sha256:" + "a1" * 32


def record(**changes: Any) -> dict[str, Any]:
    """A build of a quantized model, whose data was named in the request."""
    return {
        "schema_version": 2,
        "packager_version": "0.2.0",
        "request": {"model": "./tiny", "instance": "ml.g5.xlarge", "calibration": "chats.jsonl"},
        "model": {"source": "local", "name": "tiny", "revision": ""},
        "base": {"reference": "scratch", "digest": "", "platform": "linux/amd64"},
        "engine": "vllm",
        "engine_version": "0.32.0",
        "served_name": "tiny",
        "digest": IMAGE,
        "config_digest": "sha256:" + "b2" * 32,
        "layers": [{"role": "weights", "digest": "sha256:" + "c3" * 32, "size": 1}],
        "images": [{"target": "docker:tiny:1", "name": "tiny:1", "digest": IMAGE}],
        "steps": [{"name": "quantize", "tool": "llmcompressor", "key": KEY, "seconds": 12.5}],
        **changes,
    }


def build_record(
    *,
    request: dict[str, Any] | None = None,
    images: tuple[RecordedImage, ...] = (),
    trees: tuple[RecordedTree, ...] = (),
) -> BuildRecord:
    """A build of a model of a bucket, for a base in a registry."""
    digest = f"sha256:{'ab' * 32}"
    return BuildRecord(
        packager_version="1",
        request=BuildRequest.model_validate(request or {"model": "m", "instance": "local"}),
        model=RecordedModel(source="s3", name="tiny"),
        base=RecordedBase(reference="host/base:1", digest=digest, platform="linux/amd64"),
        family="vllm",
        engine="vllm",
        engine_version="0.27.1",
        tp_degree=1,
        served_name="tiny",
        shape={},
        created="",
        digest=digest,
        layers=(),
        images=images,
        trees=trees,
        transfer=Transfer(),
        seconds=1.0,
    )
