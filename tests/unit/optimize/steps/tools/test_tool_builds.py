"""Environments for processors and for GPUs: which is made, and that their results are kept apart.

The index is a directory with a build for each, as indexes of torch have them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.tool import Build
from packager.optimize.steps.key_parts import toolchain_of
from packager.optimize.steps.tools.environments import Installed
from tests.integration.optimize.steps.tools.test_hashes import pin
from tests.integration.optimize.steps.tools.test_hashes import tool as without_gpus
from tests.unit.optimize.steps.test_environment_in_keys import real
from tests.unit.optimize.steps.tools.test_environments import own

tool_for_both = without_gpus  # the fixture, under a name that this module does not use


@pytest.fixture
def tool(tmp_path: Path, tool_for_both: Path) -> Path:
    """The tool of two builds, which says what to install for GPUs."""
    place = tool_for_both
    text = (place / "tool.toml").read_text()
    prefer = 'prefer = "requirements/lock-first-cpu.txt"\n'
    assert prefer in text
    cuda = 'cuda = "requirements/lock-first-cuda.txt"\n'
    (place / "tool.toml").write_text(text.replace(prefer, prefer + cuda))
    lock = pin(tmp_path / "wheels", "first", "1.0")
    (place / "requirements/lock-first-cuda.txt").write_text(lock)
    return place


def versions(found: Installed) -> tuple[str, Build, bool]:
    return found.tool, found.build, found.current


@pytest.mark.parametrize("name", ["llmcompressor", "draft-heads"])
def test_a_key_for_gpus_is_known_before_gigabytes_are_installed(name: str) -> None:
    on_gpu = real(name).for_build("cuda")
    before = on_gpu.facts(None, python="3.11")
    after = on_gpu.facts({**before.environment, "python": "3.11.9"}, python="3.11")

    assert replace(before, installed=True) == after
    assert before.packages["torch"] == "2.13.0"
    assert {"nvidia-cublas", "nvidia-cudnn-cu13", "triton"} <= before.environment.keys()


@pytest.mark.parametrize("name", ["llmcompressor", "draft-heads"])
def test_results_of_gpus_and_processors_never_share_a_key(name: str) -> None:
    """An index without builds for processors gives both environments the same versions."""
    same = {"torch": "2.13.0", "python": "3.11.9"}
    on_cpu, on_gpu = (
        real(name).for_build(build).facts(same, python="3.11") for build in ("cpu", "cuda")
    )

    assert dict(on_cpu.environment) == dict(on_gpu.environment)
    assert toolchain_of(on_cpu) != toolchain_of(on_gpu)


def test_another_lock_for_gpus_is_another_environment(tmp_path: Path, tool: Path) -> None:
    before = {build: own(tmp_path, tool).place("two", build) for build in ("cpu", "cuda")}
    lock = tool / "requirements/lock-first-cuda.txt"
    lock.write_text(lock.read_text() + "# another\n")

    after = {build: own(tmp_path, tool).place("two", build) for build in ("cpu", "cuda")}

    assert (before["cpu"] == after["cpu"], before["cuda"] == after["cuda"]) == (True, False)


def test_a_borrowed_environment_comes_in_the_same_builds() -> None:
    """`evaluate` runs in llm-compressor's."""
    evaluate = real("evaluate").borrowing(real("llmcompressor"))
    on_gpu = evaluate.for_build("cuda")

    assert evaluate.builds == ("cpu", "cuda")
    assert on_gpu.provider == real("llmcompressor").for_build("cuda")
    assert on_gpu.requirements_digest != evaluate.requirements_digest
    assert (evaluate.disk_gb, on_gpu.disk_gb) == (3.0, 9.0)


def test_a_tool_with_one_environment_has_it_for_both() -> None:
    specforge = real("specforge")

    assert specforge.builds == ("cpu",)
    assert specforge.for_build("cuda") == specforge
