"""What the quantizing worker leaves out for older readers of its configuration."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cases import cases
from tests.support.workers import ROOT, load

readers: Any = load(ROOT / "containers" / "tools" / "llmcompressor" / "readers.py")


@cases("configurations")
def test_keys_that_older_readers_forbid_are_left_out_where_they_are_empty(
    written: str, kept: str | None
) -> None:
    """vLLM before 0.14: 'validation error for VllmConfig: zp_dtype Extra inputs not permitted'."""
    assert readers.without_empty_keys(json.loads(written)) == json.loads(kept or written)
