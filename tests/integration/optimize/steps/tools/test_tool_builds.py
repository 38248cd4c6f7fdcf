"""Environments for processors and for GPUs: which is made, and that their results are kept apart.

The index is a directory with a build for each, as indexes of torch have them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.errors import ToolUnavailable
from packager.optimize.steps.key_parts import toolchain_of
from packager.optimize.steps.tools.installers import ALLOW_UNHASHED
from tests.unit.optimize.steps.tools.test_environments import own
from tests.unit.optimize.steps.tools.test_tool_builds import tool as tool
from tests.unit.optimize.steps.tools.test_tool_builds import tool_for_both as tool_for_both
from tests.unit.optimize.steps.tools.test_tool_builds import versions

# One process makes the packages of pip that their environments are given.
pytestmark = [pytest.mark.extended, pytest.mark.xdist_group("tool-environments")]


def test_each_build_has_an_environment_of_its_own(tmp_path: Path, tool: Path) -> None:
    """pip takes 1.0+cpu for 1.0 where an index has both: a step on a GPU found no CUDA."""
    made = own(tmp_path, tool)

    for build in ("cpu", "cuda"):
        made.install("two", build)

    on_cpu, on_gpu = made.facts("two", "cpu"), made.facts("two", "cuda")
    assert (on_cpu.packages["first"], on_gpu.packages["first"]) == ("1.0+cpu", "1.0")
    assert ("driver" in on_cpu.environment, "driver" in on_gpu.environment) == (False, True)
    assert (on_cpu.build, on_gpu.build) == ("cpu", "cuda")
    assert sorted(map(versions, made.installed())) == [("two", "cpu", True), ("two", "cuda", True)]
    assert toolchain_of(on_cpu) != toolchain_of(on_gpu)


def test_an_index_without_the_build_for_gpus_is_named(tmp_path: Path, tool: Path) -> None:
    (tmp_path / "wheels/first-1.0-py3-none-any.whl").unlink()

    with pytest.raises(ToolUnavailable, match="has no build of torch for them") as caught:
        own(tmp_path, tool).install("two", "cuda")

    assert "--gpus 0" in caught.value.hint


def test_what_is_installed_unverified_is_for_gpus_all_the_same(tmp_path: Path, tool: Path) -> None:
    made = own(tmp_path, tool, **{ALLOW_UNHASHED: "1"})

    made.install("two", "cuda")

    assert made.facts("two", "cuda").packages["first"] == "1.0"
