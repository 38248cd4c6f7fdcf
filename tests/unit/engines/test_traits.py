"""What differs between engines is asked of their traits, and never of a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.traits import UNKNOWN_ENGINE, DraftTraits, EngineTraits
from packager.engines.traits import engine_traits
from tests.support.cases import cases_of
from tests.support.doubles.containers import FAMILIES, with_traits
from tests.support.engine_plans import CONTAINERS, plan_for
from tests.support.places import ROOT

cases = cases_of(__file__)

PACKAGE = ROOT / "packager"
NAMES = {*FAMILIES, "tensorrt-llm", "tensorrt_llm", "trtllm", "transformers-neuronx", "neuronx"}
# Rooms that are about engines by name: those that describe them, and what recognizes them in
# configurations of strangers; AWS's documents name engines, too.
ABOUT_ENGINES = ("engines/", "addons/contrib/", "addons/check/", "addons/server/sagemaker/")


def test_an_engine_that_nobody_knows_has_the_traits_of_none() -> None:
    stranger = replace(CONTAINERS["vllm"], family="demo", engine="demo")

    assert engine_traits(stranger) == UNKNOWN_ENGINE == EngineTraits()


@cases("drafts_are_read_as_the_engine_inside_reads_them")
def test_drafts_are_read_as_the_engine_inside_reads_them(
    container: str, expected: DraftTraits
) -> None:
    assert CONTAINERS[container].traits.drafts == expected


@cases("formats_toolchains_and_caches_are_the_containers")
def test_formats_toolchains_and_caches_are_the_containers(
    container: str, awq: str, toolchain: str, caches: bool
) -> None:
    traits = CONTAINERS[container].traits

    assert (traits.awq_format, traits.neuron_toolchain, traits.bakes_compile_caches) == (
        awq,
        toolchain,
        caches,
    )


def test_nothing_outside_asks_an_engine_for_its_name() -> None:
    """`container.engine == "vllm"` would treat a family of another package as second class."""
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.relative_to(PACKAGE).as_posix().startswith(ABOUT_ENGINES)
        for line in names_compared(path)
    ]

    assert found == []


def names_compared(path: Path) -> Iterator[int]:
    """Yield the lines that compare something, but for kinds of devices, with an engine's name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        else:
            continue
        words = {text for side in sides for text in texts(side)}
        is_device = any(ast.unparse(side).endswith(("kind", "accelerator")) for side in sides)
        if words & NAMES and not is_device:
            yield node.lineno


def texts(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


@pytest.mark.parametrize("container", ["tgi", "neuron-tgi", "lmi-13"])
def test_what_reads_no_answers_has_no_parsers(container: str) -> None:
    traits = CONTAINERS[container].traits

    assert (traits.tool_parsers, traits.reasoning_parsers) == ((), ())


def test_what_a_version_can_read_is_in_its_traits() -> None:
    sglang = with_traits(replace(CONTAINERS["sglang"], engine_version="0.5.5")).traits
    vllm = with_traits(replace(CONTAINERS["vllm"], engine_version="0.10.2")).traits

    assert sglang.tool_parsers == (
        *("deepseekv3", "deepseekv31", "glm", "glm45", "gpt-oss", "kimi_k2", "llama3"),
        *("mistral", "pythonic", "qwen", "qwen25", "qwen3_coder", "step3", "minimax-m2"),
    )
    assert "deepseek_r1" in (vllm.reasoning_parsers or ())


@cases("what_cannot_be_told_a_name_answers_with_another")
def test_what_cannot_be_told_a_name_answers_with_another(container: str, name: str) -> None:
    assert plan_for(container, tp_degree=24).answers_as == name
