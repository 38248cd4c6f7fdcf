"""AWQ's search of the worker gives the library's numbers, bit by bit, on any number of threads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.live.planned_cases import planned_parameters
from tests.live.tool_programs import documents_in, run_program

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
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
        {"name": name, "label": method, "parameters": planned_parameters(models / name, method)}
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


def lines(python: Path, *arguments: str) -> list[dict[str, Any]]:
    return documents_in(run_program(python, "awq_search.py", *arguments))
