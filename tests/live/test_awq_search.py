"""AWQ's search of the worker gives the library's numbers, bit by bit, on any number of threads."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.samples import Sample, Samples
from packager.core.tool import ToolFacts
from packager.engines.vllm.family import VllmFamily
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.planning.planner import make_plan
from packager.quantize.llmcompressor import LlmCompressorQuantizer
from tests.live.tool_programs import documents_in, run_program
from tests.support.headers import facts_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
TOOL = ToolFacts(name="llmcompressor", worker="a" * 64, requirements="b" * 64, packages={})
TEXTS = Samples(source="texts", samples=tuple(Sample(text=f"text {n}") for n in range(8)))
# Plain, with experts, with norms that add 1, with linear attention, attention and MLP side by
# side, with fused matrices, and with latent attention.
FEW = ("llama", "mixtral", "gemma2", "qwen3-next", "falcon-7b", "phi3", "deepseek-v3")
MORE = ("qwen2", "qwen3-moe", "cohere", "opt", "bloom", "gpt-neox", "olmo2", "llava", "qwen3.5")
MODELS = (*FEW, *(MORE if LONG else ()))
METHODS = ("awq,group=32", "awq,group=32,symmetric")


def test_a_matrix_is_rounded_as_the_library_does(quantizing_python: Path) -> None:
    found = lines(quantizing_python, "rounding")

    assert len(found) == 4 * 3 * 2 * 2 * 4
    assert [one for one in found if not one["equal"]] == []


def test_what_is_not_as_it_is_known_is_left_to_the_library(quantizing_python: Path) -> None:
    found = lines(quantizing_python, "left")

    matrices = {one["matrix"]: one["left"] for one in found if "matrix" in one}
    assert matrices == dict.fromkeys(matrices, True) | {"nothing": False}
    beside = {
        (one["module"], one["threads"], one["texts"])
        for one in found
        if "module" in one and not one["left"]
    }
    assert beside == {("plain", threads, 2) for threads in (2, 3, 6)}
    assert all(one["equal"] for one in found if "module" in one)


def test_models_are_quantized_as_by_the_librarys_own_search(
    quantizing_python: Path, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    run_program(quantizing_python, "tiny_architectures.py", str(models), *MODELS)
    cases = [
        planned(models, name, method)
        for name in MODELS
        for method in (METHODS if name == "llama" or LONG else METHODS[:1])
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))

    found = lines(
        quantizing_python,
        *("models", str(tmp_path / "cases.json"), str(models), str(tmp_path / "work")),
    )

    assert len(found) == 2 * len(cases)
    assert [one for one in found if not one["equal"]] == []
    # None was left to the library, and all texts but those of one thread passed side by side.
    assert all(one["searched"] == one["left"] > 0 for one in found)
    assert all(bool(one["beside"]) == (one["threads"] > 1) for one in found)


def planned(models: Path, name: str, method: str) -> dict[str, Any]:
    """Plan a case as a build does."""
    files = LocalSource().facts(parse_model_reference(str(models / name)))
    facts = facts_of(files, "ml.p5.48xlarge", quantize=method)
    facts = replace(facts, samples=TEXTS, tools={"llmcompressor": TOOL})
    quantizer = LlmCompressorQuantizer()
    step = quantizer.step(facts, make_plan(facts, VllmFamily(), quantizer=quantizer))
    return {"name": name, "label": method, "parameters": {**step.parameters, "memory_bytes": 1}}


def lines(python: Path, *arguments: str) -> list[dict[str, Any]]:
    return documents_in(run_program(python, "awq_search.py", *arguments))
