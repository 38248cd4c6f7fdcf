"""LMI with TensorRT-LLM inside: the versions that an engine is built for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.compile.trtllm import builds_engines
from tests.support.engine_plans import CONTAINERS


@pytest.mark.parametrize(
    ("version", "builds"),
    [
        ("0.20.0", False),  # a closed toolkit
        ("0.21.0", True),
        ("1.2.0rc5", True),
        ("1.2.9", True),
        ("1.3.0.dev20260101+gabc", False),
        ("1.3.0rc1", False),
        ("1.3", False),
        ("1.3.0", False),
        ("nightly", False),
    ],
)
def test_nothing_is_built_for_candidates_of_the_release_that_ends_engines(
    version: str, builds: bool
) -> None:
    assert builds_engines(replace(CONTAINERS["lmi-trt"], engine_version=version)) == builds
