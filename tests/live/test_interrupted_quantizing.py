"""Quantizing that is ended at any point goes on, loses little, and gives the same bytes.

Most cases end one process of the tool's by an exception at a named point, and run it again
(`interrupted_quantizing.py`); the last ones kill real processes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from packager.sizing.quantizable import find_support
from tests.support.commandline import TINY
from tests.support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

TOOL = ROOT / "containers/tools"
BLOCKS = 11  # embeddings, and ten layers
Told = dict[str, Any]

# model, method, the ends of runs: (where, before/within/after, the how many-th call)
CASES: dict[str, tuple[str, str, list[tuple[str, str, int]]]] = {
    "awq within layer 1": ("llama", "awq", [("block", "before", 2)]),
    "awq three times": (
        "llama",
        "awq",
        [("block", "after", 3), ("publishing", "after", 4), ("file", "within", 6)],
    ),
    "awq while shards are written": ("llama", "awq", [("shard", "before", 3)]),
    "gptq between two layers": ("llama", "gptq", [("publishing", "after", 6)]),
    "gptq within the last layer": ("llama", "gptq", [("block", "after", BLOCKS)]),
    "gptq with weights on disk": ("llama", "gptq-on-disk", [("block", "after", 6)]),
    "smoothquant when the model is loaded": ("llama", "smoothquant", [("loading", "after", 1)]),
    "smoothquant within layer 5": ("llama", "smoothquant", [("block", "after", 6)]),
    "smoothquant while tensors are written": ("llama", "smoothquant", [("file", "within", 9)]),
    "smoothquant on a full disk": ("llama", "smoothquant", [("file", "full", 9)]),
    "smoothquant when a file has no name": ("llama", "smoothquant", [("renaming", "before", 21)]),
    "smoothquant before a block counts": ("llama", "smoothquant", [("publishing", "before", 6)]),
    "smoothquant after all layers": ("llama", "smoothquant", [("quantizing", "after", 1)]),
    "smoothquant while packing": ("llama", "smoothquant", [("packing", "before", 1)]),
    "smoothquant before the model counts": ("llama", "smoothquant", [("saved", "before", 1)]),
    "smoothquant while gptq follows": ("llama", "smoothquant-gptq", [("block", "after", 15)]),
    "smoothquant between it and gptq": ("llama", "smoothquant-gptq", [("publishing", "after", 11)]),
    "fp8 with measured scales": ("llama", "fp8-static-kv", [("block", "before", 8)]),
    "awq of a mixture of experts": ("mixtral", "awq", [("block", "after", 5)]),
    "gptq of tied embeddings": ("qwen2-tied", "gptq", [("block", "after", 5)]),
    "smoothquant of two masks": ("gemma2", "smoothquant", [("block", "after", 5)]),
    "rtn while layers are rounded": ("llama", "rtn", [("rounding", "before", 8)]),
    "rtn while modules are packed": ("llama", "rtn", [("module", "after", 40)]),
    "nvfp4 while modules are packed": ("llama", "nvfp4", [("file", "within", 20)]),
    "fp8 twice": ("llama", "fp8", [("rounding", "after", 5), ("module", "before", 60)]),
    "gptq while modules are packed": ("llama", "gptq", [("module", "after", 65)]),
    "rtn while shards are written": ("llama", "rtn", [("shard", "after", 2)]),
}
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2-tied": "Qwen2ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
}
HARMS = {
    "a flipped bit": "flipped",
    "an empty file": "cut",
    "a missing file": "gone",
    "a damaged journal": "journal",
    "a journal of another job": "foreign",
    "a journal of another version": "older",
}


def named(name: str) -> Told:
    """Describe a case for the program."""
    model, method, kills = CASES[name]
    return {"name": name, "model": model, "method": method, "kills": kills, "folds": moves(name)}


def moves(name: str) -> Told | None:
    """Return where scales move, as a plan would tell the worker."""
    model, method, _ = CASES[name]
    config = {"num_attention_heads": 4, "num_key_value_heads": 2}
    folds = find_support(ARCHITECTURES[model], config, method.partition("-")[0]).folds
    return None if folds is None else {**folds, "moves": [dict(one) for one in folds["moves"]]}


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
    command = [
        *(str(quantizing_python), str(Path(__file__).with_name("interrupted_quantizing.py"))),
        *(str(TINY), str(root), str(root / "cases.json")),
    ]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()  # libraries print while they load, too
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return {one["name"]: one for one in found}


def environment() -> dict[str, str]:
    """Return what a worker sees."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{TOOL / 'common'}:{TOOL / 'llmcompressor'}",
    }


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_run_goes_on_with_the_same_bytes(told: dict[str, Told], name: str) -> None:
    case = told[name]

    assert case["ended"] == [True] * len(CASES[name][2])
    assert case["same"] and case["files"] >= 4


@pytest.mark.parametrize("name", CASES)
def test_at_most_a_tenth_of_the_blocks_is_done_again(told: dict[str, Told], name: str) -> None:
    case = told[name]
    ends = len(CASES[name][2])

    redone = sum(case["blocks_before"]) + case["blocks_again"] - case["blocks"]

    assert redone <= ends * case["blocks"] // 10


@pytest.mark.parametrize("name", CASES)
def test_at_most_a_tenth_of_the_modules_is_packed_again(told: dict[str, Told], name: str) -> None:
    whole, *runs = told[name]["modules"]

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
    assert said[:3] == ["reading kept work", "loading the model", "quantizing"]
    assert case["steps"][3] == ["quantizing", 5, 11]


def test_a_model_that_is_quantized_is_only_written(told: dict[str, Told]) -> None:
    case = told["awq while shards are written"]

    assert "an earlier run quantized the model: only writing is left" in case["notes"]
    assert case["blocks_again"] == 0
    assert not {"journal.json.part", "part"} & set(case["left"])
