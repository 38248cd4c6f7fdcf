"""Quantizing that is ended at any point goes on, loses little, and gives the same bytes.

Most cases end one process of the tool's by an exception at a named point, and run it again
(`interrupted_quantizing.py`); the last ones kill real processes.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from packager.estimate.sizing.quantizable import read_table
from tests.live.tool_programs import documents_in, run_program
from tests.support.commandline import TINY

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

BLOCKS = 11  # embeddings, and ten layers
CORPUS = tomllib.loads((Path(__file__).parent / "corpus/interrupted.toml").read_text())
CASES: dict[str, list[Any]] = CORPUS["cases"]
HARMS: dict[str, str] = CORPUS["harms"]
FOLDS = read_table().folds
Told = dict[str, Any]


def named(name: str) -> Told:
    """Describe a case for the program."""
    model, method, *kills = CASES[name]
    folds = FOLDS.get(method.partition("-")[0], "")
    return {"name": name, "model": model, "method": method, "kills": kills, "folds": folds}


@pytest.fixture(scope="module")
def told(quantizing_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Run all cases in one process: the libraries take long to load."""
    half = named("smoothquant within layer 5")
    cases = [
        *(named(name) for name in CASES),
        *({**half, "name": name, "harms": [harm]} for name, harm in HARMS.items()),
        {**named("rtn while shards are written"), "name": "a damaged model", "harms": ["saved"]},
    ]  # fmt: skip
    root = tmp_path_factory.mktemp("interrupted")
    (root / "cases.json").write_text(json.dumps(cases))
    words = (str(TINY), str(root), str(root / "cases.json"))
    printed = run_program(
        quantizing_python, "interrupted_quantizing.py", *words, tools=("llmcompressor",)
    )
    return {one["name"]: one for one in documents_in(printed)}


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_run_repeats_a_tenth_at_most_and_gives_the_same_bytes(
    told: dict[str, Told], name: str
) -> None:
    """A tenth of the blocks, and of the modules that are packed, for each time that it ended."""
    case, ends = told[name], len(CASES[name]) - 2
    redone = sum(case["blocks_before"]) + case["blocks_again"] - case["blocks"]
    whole, *runs = case["modules"]

    assert case["ended"] == [True] * ends
    assert case["same"] and case["files"] >= 4
    assert redone <= ends * case["blocks"] // 10
    assert whole >= 70
    assert sum(runs) - whole <= (len(runs) - 1) * whole // 10


def test_packed_modules_and_rounded_layers_are_not_made_again(told: dict[str, Told]) -> None:
    notes = told["rtn while modules are packed"]["notes"]

    assert "going on after block 11 of 11: QuantizationModifier" in notes
    assert "39 of 70 modules are packed already" in notes


@pytest.mark.parametrize("name", HARMS)
def test_kept_work_that_is_not_whole_is_dropped_with_a_notice(
    told: dict[str, Told], name: str
) -> None:
    case = told[name]

    assert case["same"] and case["blocks_again"] == BLOCKS
    assert any("what an interrupted run left is not used" in note for note in case["notes"])


def test_a_quantized_model_that_was_damaged_since_is_made_again(told: dict[str, Told]) -> None:
    case = told["a damaged model"]

    assert case["same"]
    assert not any("only writing is left" in note for note in case["notes"])


def test_activations_are_read_back_with_every_bit_and_stride(told: dict[str, Told]) -> None:
    case = told["activations"]

    assert case["trees"] and case["equal"] and case["shared"]
    assert case["refused"] == "a slice"


def test_activations_are_written_again_only_where_they_changed(told: dict[str, Told]) -> None:
    case = told["activations"]

    assert case["unchanged"]
    assert case["rewritten"] == ["expanded", "positions", "shared", "transposed"]


def test_a_full_disk_ends_with_the_place_and_the_next_run_goes_on(told: dict[str, Told]) -> None:
    case = told["smoothquant on a full disk"]

    [[words]] = case["last_words"]
    assert words.startswith("[Errno 28] No space left on device: ")
    assert words.endswith("/work/kept/part'")
    assert any(note.startswith("going on after block") for note in case["notes"])


def test_a_run_says_where_it_goes_on(told: dict[str, Told]) -> None:
    case = told["smoothquant within layer 5"]

    assert "going on after block 5 of 11: SmoothQuantFolding" in case["notes"]
    said = [step[0] for step in case["steps"]]
    assert said[:4] == [
        *("reading kept work", "reading the source", "loading the model", "quantizing")
    ]
    assert case["steps"][4] == ["quantizing", 5, 11]


def test_a_model_that_is_quantized_is_only_written(told: dict[str, Told]) -> None:
    case = told["awq while shards are written"]

    assert "an earlier run quantized the model: only writing is left" in case["notes"]
    assert case["blocks_again"] == 0
    assert not {"journal.json.part", "part"} & set(case["left"])
