"""Build records as documents, for graphs of what came from what."""

from __future__ import annotations

from typing import Any

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
