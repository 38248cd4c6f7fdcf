"""A key names every package that a step runs with, whether its environment is made or not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packager.core.facts import ContainerFacts
from packager.core.image import BaseImage, Platform
from packager.core.recipe import StepResult
from packager.core.serving import RenderedFile, ServingConfig
from packager.core.share import share_dir
from packager.core.tool import ToolFacts
from packager.optimize.keys.parts import Toolchain
from packager.optimize.steps.docker import DockerExecutor
from packager.optimize.steps.docker_images import ToolImages
from packager.optimize.steps.failures import StepBroken
from packager.optimize.steps.key_parts import toolchain_in_image, toolchain_of
from packager.optimize.steps.runner import _check_versions
from packager.optimize.steps.tools.definition import ToolDefinition, read_tool
from packager.optimize.steps.tools.locks import installed_versions, pinned_versions
from tests.support.cache_entries import CHECKPOINT
from tests.support.cases import as_type, cases, read_tables
from tests.support.tool_steps import step

TOOLS = share_dir("containers") / "tools"
LOCK = (Path(__file__).parent / "corpus/lock.txt").read_text()


def real(name: str) -> ToolDefinition:
    return read_tool(name, TOOLS / name, TOOLS / "common")


@pytest.mark.parametrize(("python", "numpy"), [("3.11", "2.4.6"), ("3.12", "2.5.5")])
def test_a_lock_tells_what_would_be_installed(python: str, numpy: str) -> None:
    expected = {"torch": "2.13.0+cpu", "numpy": numpy, "jinja2": "3.1.6"}

    assert pinned_versions([LOCK], python) == expected


def test_the_first_of_two_locks_wins() -> None:
    assert pinned_versions(["torch==2.13.0+cpu", "torch==2.13.0"], "3.11") == {
        "torch": "2.13.0+cpu"
    }


def test_what_every_environment_is_begun_with_decides_nothing() -> None:
    versions = {"pip": "23.2.1", "wheel": "1", "Jinja2": "3.1.6", "python": "3.11.7"}

    assert installed_versions(versions, [LOCK]) == {"jinja2": "3.1.6", "python": "3.11"}
    assert installed_versions({"pip": "23.2.1"}, ["pip==23.2.1"]) == {"pip": "23.2.1"}


@pytest.mark.parametrize("name", ["llmcompressor", "draft-heads", "specforge"])
def test_a_machine_without_the_environment_comes_to_the_key_of_one_that_has_it(name: str) -> None:
    """Else it would install gigabytes to find that nothing had to be done."""
    tool = real(name)
    before = tool.facts(None, python="3.11")
    made = {**before.environment, "python": "3.11.9", "pip": "25.0"}
    after = tool.facts(made, python="3.11")

    assert replace(before, installed=True) == after
    assert {"torch", "transformers", "tokenizers", "numpy", "python"} <= before.environment.keys()


@cases("another_version_in_the_environment_is_another_key")
def test_another_version_in_the_environment_is_another_key(changed: dict[str, str]) -> None:
    tool = real("llmcompressor")
    made = dict(tool.facts(None, python="3.11").environment)

    ours = toolchain_of(tool.facts(made))
    theirs = toolchain_of(tool.facts({**made, **changed}))

    [name] = changed
    assert ours.environment.get(name) != theirs.environment[name]
    assert ours.packages == theirs.packages


def test_packages_that_a_tool_names_stand_once() -> None:
    found = toolchain_of(real("llmcompressor").facts(None, python="3.11"))

    assert "torch" not in found.environment
    assert "compressed-tensors" not in found.environment
    assert {"torch", "compressed-tensors"} <= {package.name for package in found.packages}


def test_a_tool_in_another_tools_environment_has_its_packages() -> None:
    borrowed = real("evaluate").borrowing(real("llmcompressor"))

    assert borrowed.facts(None, python="3.11").environment["tokenizers"]


def launcher(**modules: str) -> ServingConfig:
    return ServingConfig(
        files=tuple(
            RenderedFile(path=f"/opt/packager/serving/{name}.py", data=text.encode())
            for name, text in modules.items()
        )
    )


def in_image(serving: ServingConfig) -> Toolchain:
    tool = ToolFacts(name="neuron", worker="a" * 64, requirements="b" * 64, packages={})
    base = BaseImage(
        reference="r", digest=f"sha256:{'1' * 64}", platform=Platform(), layers=(), config={}
    )
    container = as_type(read_tables(__file__)["container"], ContainerFacts)
    return toolchain_in_image(tool, base, container, serving)


@pytest.mark.parametrize("module", ["launch", "compiled_cache", "sitecustomize"])
def test_the_launchers_modules_are_in_the_key(module: str) -> None:
    """Another schema of its manifest left hits that the launcher would not use, in silence."""
    serving = {"launch": "1", "compiled_cache": "1", "sitecustomize": "1", "inputs_adapter": "1"}

    assert in_image(launcher(**serving)) != in_image(launcher(**{**serving, module: "2"}))
    assert in_image(launcher(**serving)) == in_image(launcher(**{**serving, "inputs_adapter": "2"}))


class Engine:
    """A Docker Engine with some images."""

    def __init__(self, **images: Any) -> None:
        self.images = SimpleNamespace(get=images.__getitem__)


def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: dict[str, Any]) -> ToolFacts:
    tool = real("llmcompressor")
    environments: Any = SimpleNamespace(tool=lambda _, build="cpu": tool)
    executor = DockerExecutor(
        environments,
        work_dir=tmp_path,
        log_dir=tmp_path,
        read=lambda _: [],
        on_event=lambda _: None,
        environment={},
    )
    monkeypatch.setattr(ToolImages, "find", lambda _, name: images.get(name))
    return executor.find_tool("llmcompressor")


def test_the_docker_executor_names_its_python_and_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = SimpleNamespace(id=f"sha256:{'2' * 64}", attrs={})

    absent = docker(tmp_path, monkeypatch, {})
    there = docker(tmp_path, monkeypatch, {real("llmcompressor").file.image: base})

    assert (absent.environment["python"], absent.image) == ("3.12", "")
    assert (there.environment["python"], there.image) == ("3.12", "2" * 64)
    assert toolchain_of(there).image == "2" * 64
    assert toolchain_of(absent).image is None


@cases("pythons")
def test_a_result_of_another_python_is_refused(used: dict[str, str], fits: bool) -> None:
    key = CHECKPOINT
    keyed = step("copy", key=key, env=key.invocation.env)
    assert json.loads(json.dumps(key.toolchain.environment))["python"] == "3.11"

    if fits:
        _check_versions(keyed, StepResult(versions=used))
    else:
        with pytest.raises(StepBroken, match="used python"):
            _check_versions(keyed, StepResult(versions=used))
