"""LMI with TensorRT-LLM inside: the versions that an engine is built for."""

from __future__ import annotations

from dataclasses import replace

from packager.engines.trtllm import builds_engines
from tests.support.cases import cases
from tests.support.engine_plans import CONTAINERS


@cases("nothing_is_built_for_candidates_of_the_release_that_ends_engines")
def test_nothing_is_built_for_candidates_of_the_release_that_ends_engines(
    version: str, builds: bool
) -> None:
    assert builds_engines(replace(CONTAINERS["lmi-trt"], engine_version=version)) == builds
