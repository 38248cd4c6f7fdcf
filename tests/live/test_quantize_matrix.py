"""Small random models of many architectures by every method: complete and right, or refused.

Each is planned as a user's would be, as bfloat16 and as float16.  What the plan takes is quantized
by the worker's own code, in one process of the tool environment, dequantized with NumPy, and its
logits are held against the source's.  `PACKAGER_SERVE=all` tries options of methods with every
model, and has the evaluate tool compare every result.  `make test` has a case of each kind.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.estimate.sizing.quantizable import find_support, read_table
from tests.live.planned_cases import planned_modules, planned_parameters
from tests.live.tool_programs import run_program, started_program

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
CORPUS = tomllib.loads((Path(__file__).parent / "corpus/quantize_matrix.toml").read_text())
ROWS: list[str] = CORPUS["models"]  # those of the table that every method was tried with
MODELS: list[str] = [*ROWS, *CORPUS["newer"]]
OPTIONAL: list[str] = MODELS if LONG else CORPUS["optional"]
BOUNDS: dict[str, float] = CORPUS["bounds"] | CORPUS["options"]
ROUNDED: dict[str, float] = CORPUS["rounded"]
Told = dict[str, Any]
# Their groups and blocks are more than these models have: planned as others, and swapped.
PLANNED_AS: dict[str, tuple[str, Told]] = {
    "w4afp8": ("rtn,group=32", {"method": "w4afp8"}),
    "fp8,block": ("fp8", {"activations": "block"}),
}
WHOLE = re.compile(CORPUS["whole"])
WRONG: dict[str, dict[str, Any]] = CORPUS["wrong"]

Case = tuple[str, str]  # a model as it is spelled, and what is asked


class Results:
    """What the process says of each case, as soon as it has done it: tests ask in its order."""

    def __init__(self, told: Iterator[Told]) -> None:
        self._told, self._known = told, dict[Case, Told]()

    def __getitem__(self, case: Case) -> Told:
        while case not in self._known:
            found = next(self._told)
            self._known[found["name"], found["label"]] = found
        return self._known[case]


# What reads a source's output, in the second layer, as transformers' code says.
MOVES = {(row["model"], row["asked"]): row["into"] for row in CORPUS["moves"]}

KINDS: list[Case] = [(model, asked) for model, asked in CORPUS["kinds"]]
MATRIX: list[Case] = [
    (model + dtype, asked)
    for methods, models in ((CORPUS["bounds"], MODELS), (CORPUS["options"], OPTIONAL))
    for dtype in ("", "+float16")
    for model in models
    for asked in methods
    if (model + dtype, asked) not in KINDS
]
SOURCES: list[Case] = [
    (model + dtype, asked)
    for row in CORPUS["sources"]
    for model in row["models"]
    for dtype in ("", "+float16")
    for asked in row["asked"]
]
EVALUATED = [*MATRIX, *KINDS] if LONG else [(model, asked) for model, asked in CORPUS["evaluated"]]


def _row_of(table: str, case: Case) -> Told | None:
    """Return the first row that speaks of a case.

    `models` are expressions; one of a float16 model ends in `+float16`, others are of both types.
    """
    model, asked = case
    spelled = (model, model.removesuffix("+float16"))
    for row in CORPUS.get(table, ()):
        if asked in row.get("asked", (asked,)) and any(
            re.fullmatch(one, name) for one in row["models"] for name in spelled
        ):
            return dict(row)
    return None


def _taken(cases: list[Case]) -> list[Case]:
    return [case for case in cases if _row_of("refused", case) is None]


def _right(cases: list[Case]) -> list[Case]:
    return [case for case in _taken(cases) if _row_of("rejected", case) is None]


@pytest.fixture(scope="module")
def selected(request: pytest.FixtureRequest) -> dict[str, dict[Any, None]]:
    """Return what tests were selected for, by the test's name: nothing else is worked for."""
    found: dict[str, dict[Any, None]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.path == request.path:
            values = getattr(getattr(item, "callspec", None), "params", {})
            case = (values.get("model", ""), values.get("asked", ""))
            found.setdefault(item.originalname, {})[values.get("name", case)] = None
    return found


@pytest.fixture(scope="module")
def cases(selected: dict[str, dict[Any, None]]) -> list[Case]:
    """Return the cases of all selected tests, in the order in which they ask for them."""
    found = dict.fromkeys(chain.from_iterable(selected.values()))
    return [one for one in found if isinstance(one, tuple) and all(one)]


@pytest.fixture(scope="module")
def wrong(selected: dict[str, dict[Any, None]]) -> dict[str, dict[str, Any]]:
    """Return the wrong folds of selected tests."""
    asked = set().union(*selected.values())
    return {name: row for name, row in WRONG.items() if name in asked}


@pytest.fixture(scope="module")
def models(
    quantizing_python: Path,
    cases: list[Case],
    wrong: dict[str, dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Write every checkpoint, in one process."""
    place = tmp_path_factory.mktemp("models")
    names = {model for model, _ in cases} | {row["model"] for row in wrong.values()}
    run_program(quantizing_python, "tiny_architectures.py", str(place), *sorted(names))
    return place


@pytest.fixture(scope="module")
def planned(models: Path) -> Callable[[str, str], Told]:
    """Plan a case as a build does; its parameters, or what it is refused with."""

    @functools.cache
    def plan(model: str, asked: str) -> Told:
        try:
            as_asked, swapped = PLANNED_AS.get(asked, (asked, {}))
            parameters = planned_parameters(models / model, as_asked) | swapped
        except PlanRejected as rejected:
            return {"refused": [(e.code, e.message) for e in errors_in(rejected.findings)]}
        modules = sorted(planned_modules(models / model, parameters["ignore"]))
        return {"name": model, "label": asked, "parameters": parameters, "modules": modules}

    return plan


@pytest.fixture(scope="module")
def told(
    quantizing_python: Path,
    models: Path,
    selected: dict[str, dict[Any, None]],
    cases: list[Case],
    wrong: dict[str, dict[str, Any]],
    planned: Callable[[str, str], Told],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Results]:
    """Quantize every case that is planned, in one process: the libraries take long to load."""
    place = tmp_path_factory.mktemp("matrix")
    comparing = test_the_evaluate_tool_compares_the_result_with_its_source.__name__
    evaluated = selected.get(comparing, ())
    work = [
        {**planned(*case), "evaluate": case in evaluated}
        for case in cases
        if "refused" not in planned(*case)
    ]
    for name, row in wrong.items():
        case = planned(row["model"], row["asked"])
        work.append({**case, "label": name, "move": row["move"]})
    (place / "cases.json").write_text(json.dumps(work))
    arguments = (str(place / "cases.json"), str(models), str(place / "w"))
    with started_program(quantizing_python, "quantize_matrix.py", *arguments, place=place) as told:
        yield Results(told)


def _faults(case: Case, found: Told, counted: set[str]) -> Iterator[str]:
    """Yield what is wrong with a result."""
    model, asked = case
    failed, rejected = found.get("failed", ""), _row_of("rejected", case)
    if rejected is not None:
        if rejected["says"] not in failed or found["written"]:
            yield f"not rejected: {failed or 'quantized'}"
        return
    if failed:
        yield f"failed: {failed}"
        return
    for what in ("lost", "added", "retyped", "unsound"):
        if found[what]:
            yield f"{what}: {', '.join(found[what])}"
    if counted != set(found["packed"]):
        yield f"planned otherwise: {', '.join(sorted(counted ^ set(found['packed'])))}"
    kept = [name for name in found["packed"] if WHOLE.fullmatch(name)]
    if kept:
        yield f"quantized: {', '.join(kept)}"
    if not found["packed"]:
        yield "nothing is quantized"
    factor = CORPUS["factors"].get(model.partition("+")[0], 1.0)
    if not found["difference"] <= BOUNDS[asked] * factor:
        yield f"logits are {found['difference']:.3f} from the source's"
    if asked in ROUNDED and not found["rounded"] <= ROUNDED[asked] * factor:
        yield f"logits of rounded inputs are {found['rounded']:.3f} from the source's"


def _check(case: Case, planned: Callable[[str, str], Told], told: Results) -> None:
    """Hold a case against what is stated of it: refused, rejected, or right."""
    refused = _row_of("refused", case)
    if refused is not None:
        ((code, message),) = planned(*case)["refused"]
        assert code == refused["code"]
        assert refused["says"] in message
        return
    assert "refused" not in planned(*case), planned(*case)
    assert not list(_faults(case, told[case], set(planned(*case)["modules"])))


@pytest.mark.parametrize(("model", "asked"), MATRIX)
def test_a_model_is_quantized_whole_and_right_or_refused_when_planning(
    planned: Callable[[str, str], Told], told: Results, model: str, asked: str
) -> None:
    _check((model, asked), planned, told)


@pytest.mark.capability("quantize")
@pytest.mark.parametrize(("model", "asked"), KINDS)
def test_a_model_of_each_kind_is_quantized_right_or_refused(
    planned: Callable[[str, str], Told], told: Results, model: str, asked: str
) -> None:
    _check((model, asked), planned, told)


@pytest.mark.parametrize(("model", "asked"), SOURCES)
def test_a_source_with_rare_or_wrong_numbers_is_refused_or_quantized_right(
    planned: Callable[[str, str], Told], told: Results, model: str, asked: str
) -> None:
    _check((model, asked), planned, told)


@pytest.mark.parametrize(("model", "asked"), _right(MATRIX))
def test_nothing_changes_but_what_is_packed_and_what_scales_moved_out_of(
    told: Results, model: str, asked: str
) -> None:
    folds = told[model, asked]["folds"]
    touched = {name.rpartition(".")[2] for name in (*folds, *chain(*folds.values()))}
    touched |= {"gate"} if "router" in touched else set()  # as checkpoints of PhiMoE call it

    assert {name.split(".")[-2] for name in told[model, asked]["changed"]} <= touched


@pytest.mark.parametrize(("model", "asked"), MOVES)
def test_scales_move_where_the_models_code_allows_it(told: Results, model: str, asked: str) -> None:
    found = {
        name.partition("layers.1.")[2]: sorted(one.partition("layers.1.")[2] for one in readers)
        for name, readers in told[model, asked]["folds"].items()
        if "layers.1." in name
    }

    assert found == {name: sorted(readers) for name, readers in MOVES[model, asked].items()}


@pytest.mark.parametrize("name", WRONG)
def test_a_fold_that_changes_what_the_model_computes_fails_before_anything_is_written(
    told: Results, name: str
) -> None:
    found = told[WRONG[name]["model"], name]

    assert found["failed"].startswith("NotEquivalent: ")
    assert "after scales moved, model.layers." in found["failed"]
    assert WRONG[name]["named"] in found["failed"]
    assert found["written"] == []


@pytest.mark.parametrize("asked", ["smoothquant", "fp8"])
@pytest.mark.parametrize("model", CORPUS["seeing"])
def test_towers_projectors_and_heads_of_models_that_see_stay_bit_by_bit(
    told: Results, model: str, asked: str
) -> None:
    found = told[model, asked]

    packed_or_changed = [*found["packed"], *found["changed"]]
    assert packed_or_changed
    assert not [name for name in packed_or_changed if "layers." not in name]
    assert not [name for name in packed_or_changed if "vision" in name or "visual" in name]


@pytest.mark.parametrize(("model", "asked"), _right(EVALUATED))
def test_the_evaluate_tool_compares_the_result_with_its_source(
    told: Results, model: str, asked: str
) -> None:
    found = told[model, asked]

    assert "evaluating" not in found, found["evaluating"]
    assert 0 <= found["kld"] < 0.5


def test_every_row_of_the_table_is_in_the_matrix() -> None:
    corpus = tomllib.loads((Path(__file__).parent / "corpus/architectures.toml").read_text())
    seen = {corpus["models"][name]["classes"][0] for name in MODELS}
    rows = read_table().rows

    # Refused for every method: Falcon before it was in transformers, one that the engine has not,
    # and by their headers those with all experts in one tensor.
    fused = {"GptOssForCausalLM", "GraniteMoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"}
    fused |= {"Llama4ForCausalLM", "Qwen3VLMoeForConditionalGeneration", "BambaForCausalLM"}
    assert seen - fused == set(rows) - {"RWForCausalLM"}
    every = {corpus["models"][name]["classes"][0] for name in ROWS}
    assert {name for name in rows if rows[name].tried is None} <= {*every, "RWForCausalLM"}
    assert find_support("RWForCausalLM", {}, "fp8").refused
