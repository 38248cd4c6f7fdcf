"""Quantized models of many architectures, answered by vLLM on a processor as their weights would.

Random models of two layers, quantized by the worker's own code.  vLLM of the serving base answers
greedily; the same weights, dequantized with NumPy and loaded as a plain checkpoint in 32 bits, say
of each token how far it is from the one that they would have chosen (`plain_answers.py`).  What
the engine rounds before its products is rounded there too.

Logits of random weights lie close together, and bfloat16 may change the choice.  How much it moves
a token's distance is measured, for each: one that is further off than that explains is an error.

`PACKAGER_SERVE=all` starts every architecture by every method.  Experts are not here: they have
no quantized kernels on processors without AMX (`test_engine_weights.py` loads them).  Nor are
models that see, which want an image processor.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
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
from tests.support.headers import facts_of
from tests.support.places import ROOT
from tests.support.vllm_packages import python_3_11, unpacked_base

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
TOOL = ToolFacts(name="llmcompressor", worker="a" * 64, requirements="b" * 64, packages={})
TEXTS = Samples(source="texts", samples=tuple(Sample(text=f"text {n}") for n in range(8)))
SERVED = (
    "llama", "llama-mha", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "phi", "phi3",
    "olmo2", "glm4", "granite", "starcoder2", "gpt-neox", "opt", "bloom", "falcon-7b",
    "falcon-40b", "cohere", "cohere2",
)  # fmt: skip
FEW = ("llama", "gemma2")
METHODS = ("awq,group=32", "fp8", "smoothquant")
ROUNDED = {"fp8": "float", "smoothquant": "int"}  # activations, a token at a time, while serving
# A token may be as many times its own spread away from the best, and all by a little: 8 readings
# say little of a spread.  Those that bfloat16 moves by half a deviation say nothing.
SPREADS, TIE = 4, 0.05
SAYS_NOTHING, FEW_OF_THEM = 0.5, 2
PROMPTS = [
    [5, 12, 19, 26, 33, 40, 47, 54],
    [700, 901, 33, 64, 1200, 77],
    [1500, 3, 900, 1999, 42, 42, 17, 8, 256, 1024, 99],
]
# When planning: no norm of OLMo-2's feeds a matrix; vLLM mixes Bloom's packed weights up.
REFUSED = [("olmo2", "smoothquant"), ("bloom", "awq,group=32")]
# vLLM 0.32.0 answers GPT-NeoX otherwise than transformers, also unquantized: what it answers to the
# quantized weights is held against what it answers to the plain ones.
ENGINES_OWN = ("gpt-neox",)
CASES = [
    (model, method)
    for model in SERVED
    for method in METHODS
    if (LONG or (model in FEW and method == "awq,group=32"))
    and (model, method) not in REFUSED
    and (model not in ENGINES_OWN or method == "awq,group=32")  # others round activations too
]

Told = Mapping[str, Any]


@pytest.fixture(scope="module")
def told(
    quantizing_python: Path, serving_base: str, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[tuple[str, str], Told]:
    """Quantize every case, ask the engine, and ask the plain weights of its answers."""
    del serving_base
    place = tmp_path_factory.mktemp("served")
    names = sorted({model for model, _ in CASES})
    _run(quantizing_python, "tiny_architectures.py", str(place / "models"), "--wide", *names)
    cases = [_case(place, model, method) for model, method in CASES]
    (place / "cases.json").write_text(json.dumps(cases))
    arguments = (str(place / "cases.json"), str(place / "models"), str(place / "work"))
    made = _run(quantizing_python, "quantize_matrix.py", *arguments)
    assert not [line for line in _lines(made) if "failed" in line]
    kept = {str(Path(case["keep"]) / "quantized"): case for case in cases}
    plain = [str(Path(one).with_name("plain")) for one in kept if kept[one]["name"] in ENGINES_OWN]
    answered = _lines(_ask_engine(place, [*kept, *plain]))
    own = {one["place"]: one for one in answered if one["place"] in plain}
    answered = [one for one in answered if one["place"] in kept]
    quantized = {(one["name"], one["label"]): one["packed"] for one in _lines(made)}
    questions = [
        {
            **one,
            "place": str(Path(one["place"]).with_name("plain")),
            "prompts": PROMPTS,
            "rounded": ROUNDED.get(kept[one["place"]]["label"]),
            "modules": quantized[kept[one["place"]]["name"], kept[one["place"]]["label"]],
        }
        for one in answered
        if "answers" in one
    ]
    (place / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    said = _run(quantizing_python, "plain_answers.py", str(place / "questions.jsonl"))
    read = {Path(one["place"]).parent: one for one in _lines(said)}
    return {
        (kept[one["place"]]["name"], kept[one["place"]]["label"]): {
            **one,
            **read.get(Path(one["place"]).parent, {}),
            "own": own.get(str(Path(one["place"]).with_name("plain")), {}).get("answers"),
        }
        for one in answered
    }


def _case(place: Path, model: str, method: str) -> dict[str, Any]:
    files = LocalSource().facts(parse_model_reference(str(place / "models" / model)))
    facts = facts_of(files, "ml.p5.48xlarge", quantize=method)
    facts = replace(facts, samples=TEXTS, tools={"llmcompressor": TOOL})
    quantizer = LlmCompressorQuantizer()
    step = quantizer.step(facts, make_plan(facts, VllmFamily(), quantizer=quantizer))
    keep = str(place / "kept" / f"{model}-{method.partition(',')[0]}")
    parameters = {**step.parameters, "memory_bytes": 1}
    return {"name": model, "label": method, "parameters": parameters, "keep": keep}


def _ask_engine(place: Path, checkpoints: list[str]) -> str:
    home = place / "home"
    home.mkdir()
    done = subprocess.run(
        [python_3_11(), "-S", str(Path(__file__).parent / "engine_answers.py"), *checkpoints],
        input=json.dumps(PROMPTS),
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(unpacked_base())},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _run(python: Path, program: str, *arguments: str) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [str(python), str(ROOT / "tests/live" / program), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(("model", "method"), CASES)
def test_the_engine_answers_as_the_dequantized_weights_would(
    told: Mapping[tuple[str, str], Told], model: str, method: str
) -> None:
    found = told[model, method]

    assert "refused" not in found, found["refused"]
    if model in ENGINES_OWN:
        assert found["answers"] == found["own"]
        return
    off = list(zip(found["gaps"], found["spreads"], strict=True))
    assert len(off) == len(PROMPTS) * 8
    assert [(gap, spread) for gap, spread in off if gap > max(TIE, SPREADS * spread)] == []
    assert sum(spread > SAYS_NOTHING for _, spread in off) <= FEW_OF_THEM
    assert sum(gap == 0 for gap, _ in off) >= len(off) / 2
