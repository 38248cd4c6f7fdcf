"""Small random models of many architectures by every method: complete and right, or refused.

Each is planned as a user's would be.  What the plan takes is quantized by the worker's own
code, in one process of the tool environment, dequantized with NumPy, and its logits are
held against the source's.  `PACKAGER_SERVE=all` adds the options of methods, and has the
evaluate tool compare every result.
"""

from __future__ import annotations

import functools
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packager.errors import PlanRejected
from packager.findings import errors_in
from packager.sizing.quantizable import find_support, read_table
from tests.live.planned_cases import planned_parameters
from tests.live.tool_programs import documents_in, run_program

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
CORPUS = tomllib.loads((Path(__file__).parent / "corpus/quantize_matrix.toml").read_text())
MODELS: list[str] = CORPUS["models"]
BOUNDS: dict[str, float] = CORPUS["bounds"] | CORPUS["options"]
# Its one group size is more than these models have inputs: planned as another, and swapped.
PLANNED_AS = {"w4afp8": "rtn,group=32"}
TUNED = "autoround,group=32,iters=2"
CASES = [
    (model, asked)
    for model in MODELS
    for asked in (BOUNDS if LONG else CORPUS["bounds"])
    if LONG or asked in CORPUS["short"] or model in CORPUS["few"]
]
CASES += [] if LONG else [("mixtral", TUNED), ("phi3", TUNED)]
REFUSED = {
    (model, asked): (row["code"], row["says"])
    for row in CORPUS["refused"]
    for model in row["models"]
    for asked in row.get("asked", BOUNDS)
}
EVALUATED = CASES if LONG else [(model, asked) for model, asked in CORPUS["evaluated"]]
WRONG: dict[str, dict[str, Any]] = CORPUS["wrong"]

Told = dict[str, Any]


@pytest.fixture(scope="module")
def models(quantizing_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write every checkpoint, in one process."""
    place = tmp_path_factory.mktemp("models")
    run_program(quantizing_python, "tiny_architectures.py", str(place), *MODELS)
    return place


@pytest.fixture(scope="module")
def planned(models: Path) -> Callable[[str, str], Told]:
    """Plan a case as a build does; its parameters, or what it is refused with."""

    @functools.cache
    def plan(model: str, asked: str) -> Told:
        try:
            parameters = planned_parameters(models / model, PLANNED_AS.get(asked, asked))
        except PlanRejected as rejected:
            return {"refused": [(e.code, e.message) for e in errors_in(rejected.findings)]}
        if asked in PLANNED_AS:
            parameters["method"] = asked
        return {"name": model, "label": asked, "parameters": parameters}

    return plan


@pytest.fixture(scope="module")
def told(
    quantizing_python: Path,
    models: Path,
    planned: Callable[[str, str], Told],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, str], Told]:
    """Quantize every case that is planned, in one process: the libraries take long to load."""
    place = tmp_path_factory.mktemp("matrix")
    cases = [
        {**planned(*case), "evaluate": case in EVALUATED}
        for case in CASES
        if "refused" not in planned(*case)
    ]
    for name, row in WRONG.items():
        case = planned(row["model"], row["asked"])
        folds = {**case["parameters"]["folds"], "moves": [row["move"]]}
        parameters = {**case["parameters"], "folds": folds}
        cases.append({**case, "label": name, "parameters": parameters})
    (place / "cases.json").write_text(json.dumps(cases))
    out = run_program(
        quantizing_python,
        "quantize_matrix.py",
        *(str(place / "cases.json"), str(models), str(place / "w")),
    )
    return {(one["name"], one["label"]): one for one in documents_in(out)}


@pytest.mark.parametrize(("model", "asked"), CASES)
def test_a_model_is_quantized_whole_and_right_or_refused_when_planning(
    planned: Callable[[str, str], Told],
    told: dict[tuple[str, str], Told],
    model: str,
    asked: str,
) -> None:
    if (model, asked) in REFUSED:
        ((code, message),) = planned(model, asked)["refused"]
        assert code == REFUSED[model, asked][0]
        assert REFUSED[model, asked][1] in message
        return
    assert "refused" not in planned(model, asked), planned(model, asked)

    found = told[model, asked]

    assert "failed" not in found, found["failed"]
    assert (found["lost"], found["added"]) == ([], [])
    assert found["packed"]
    assert found["difference"] <= BOUNDS[asked]


@pytest.mark.parametrize(("model", "asked"), [case for case in CASES if case not in REFUSED])
def test_nothing_changes_but_what_is_packed_and_what_scales_moved_out_of(
    planned: Callable[[str, str], Told],
    told: dict[tuple[str, str], Told],
    model: str,
    asked: str,
) -> None:
    moves = planned(model, asked)["parameters"].get("folds", {}).get("moves", [])
    touched = {path.rpartition(".")[2] for move in moves for path in (move["from"], *move["into"])}

    changed = {name.split(".")[-2] for name in told[model, asked]["changed"]}

    assert changed <= touched


@pytest.mark.parametrize("name", WRONG)
def test_a_fold_that_changes_what_the_model_computes_fails_before_anything_is_written(
    told: dict[tuple[str, str], Told], name: str
) -> None:
    found = told[WRONG[name]["model"], name]

    assert found["failed"].startswith("NotEquivalent: ")
    assert "after scales moved, model.layers." in found["failed"]
    assert WRONG[name]["named"] in found["failed"]
    assert found["written"] == []


@pytest.mark.parametrize("asked", ["smoothquant", "fp8"])
@pytest.mark.parametrize("model", CORPUS["seeing"])
def test_towers_projectors_and_heads_of_models_that_see_stay_bit_by_bit(
    told: dict[tuple[str, str], Told], model: str, asked: str
) -> None:
    found = told[model, asked]

    packed_or_changed = [*found["packed"], *found["changed"]]
    assert packed_or_changed
    assert not [name for name in packed_or_changed if "layers." not in name]
    assert not [name for name in packed_or_changed if "vision" in name or "visual" in name]


@pytest.mark.parametrize(("model", "asked"), [case for case in EVALUATED if case not in REFUSED])
def test_the_evaluate_tool_compares_the_result_with_its_source(
    told: dict[tuple[str, str], Told], model: str, asked: str
) -> None:
    found = told[model, asked]

    assert "evaluating" not in found, found["evaluating"]
    assert 0 <= found["kld"] < 0.5


def test_every_row_of_the_table_is_in_the_matrix(models: Path) -> None:
    seen = {
        json.loads((models / name / "config.json").read_text())["architectures"][0]
        for name in MODELS
    }

    # Refused for every method: Falcon before it was in transformers, and by their headers those
    # with all experts in one tensor.
    fused = {"GptOssForCausalLM", "GraniteMoeForCausalLM"}
    assert seen - fused == set(read_table().rows) - {"RWForCausalLM"}
    assert find_support("RWForCausalLM", {}, "fp8").refused
