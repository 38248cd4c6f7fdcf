"""Quantized models of many architectures, answered by vLLM on a processor as their weights would.

Random models of two layers, quantized by the worker's own code.  vLLM of the serving base answers
greedily; the same weights, dequantized with NumPy and loaded as a plain checkpoint in 32 bits, say
of each token how far it is from the one that they would have chosen (`plain_answers.py`).  What
the engine rounds before its products is rounded there too.

Logits of random weights lie close together, and bfloat16 may change the choice.  How much it moves
a token's distance is measured, for each: one that is further off than that explains is an error.

Experts stay as they are: they have no quantized kernels on processors without AMX
(`test_engine_weights.py` loads them).  Models that see are shown a picture.  vLLM's classes of them
want torchvision, which the serving base lacks: its published build is laid beside, without kernels.

Where this run's processor has no kernel for 4-bit weights (`tests/live/processors.py`), plans of
them are refused, which is held instead.

`PACKAGER_SERVE=all` starts every architecture by every method.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from packager.catalog.compatibility import find_rule, rules
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.engines.vllm.family import VllmFamily
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.live.planned_cases import planned_facts, planned_parameters
from tests.live.processors import caps, has_kernel
from tests.live.tool_programs import documents_in, run_program
from tests.support.cases import read_tables
from tests.support.hidden_flags import VARIABLE, answers, this_machine
from tests.support.vllm_packages import laid_beside, python_3_11, unpacked_base

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
CORPUS = read_tables(__file__)
DENSE, EXPERTS, SEEING = (CORPUS[kind] for kind in ("dense", "experts", "seeing"))
WHOLE_EXPERTS = r"re:.*\.experts\..*"
PICTURE = 3  # its token, which no prompt has that tells of none
TORCHVISION = "torchvision==0.28.0"  # of the same time as the base's torch
METHODS = ("awq,group=32", "fp8", "smoothquant")
ROUNDED = {"fp8": "float", "smoothquant": "int"}  # activations, a token at a time, while serving
# A token may be as many times its own spread away from the best, and all by a little: 8 readings
# say little of a spread.  Those that bfloat16 moves by half a deviation say nothing.
SPREADS, TIE = 4, 0.05
# Unquantized weights are as far off: what latent attention computes there is rounded more often.
TIE_OF_LATENT, LATENT = 0.2, ("deepseek-v2", "deepseek-v3")
SAYS_NOTHING, FEW_OF_THEM = 0.5, 2
PROMPTS: list[list[int]] = CORPUS["prompts"]
TOKENS = 8
# vLLM 0.32.0 answers GPT-NeoX otherwise than transformers, also unquantized: what it answers to the
# quantized weights is held against what it answers to the plain ones.
ENGINES_OWN = ("gpt-neox",)
CASES = [
    (model, method)
    for model in (*DENSE, *EXPERTS, *SEEING)
    for method in METHODS
    if (LONG or [model, method] in CORPUS["few"])
    and [model, method] not in CORPUS["refused"]
    and (model not in ENGINES_OWN or method == "awq,group=32")  # others round activations too
]

Told = Mapping[str, Any]


def _is_served(method: str) -> bool:
    return has_kernel(CORPUS["needs"][method])


@pytest.fixture(scope="module")
def told(
    quantizing_python: Path, serving_base: str, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[tuple[str, str], Told]:
    """Quantize every case, ask the engine, and ask the plain weights of its answers."""
    del serving_base
    place = tmp_path_factory.mktemp("served")
    served = [(model, method) for model, method in CASES if _is_served(method)]
    names = sorted({model for model, _ in CASES})
    run_program(quantizing_python, "tiny_architectures.py", str(place / "models"), "--wide", *names)
    cases = [_case(place, model, method) for model, method in served]
    (place / "cases.json").write_text(json.dumps(cases))
    arguments = (str(place / "cases.json"), str(place / "models"), str(place / "work"))
    made = documents_in(run_program(quantizing_python, "quantize_matrix.py", *arguments))
    assert not [line for line in made if "failed" in line]
    quantized = {
        (line["name"], line["label"]): {
            "case": (line["name"], line["label"]),
            "place": f"{case['keep']}/quantized",
            "plain": f"{case['keep']}/plain",
            "rounded": ROUNDED.get(line["label"]),
            "modules": line["packed"],
            **_prompts(place, line["name"]),
        }
        for line, case in zip(made, cases, strict=True)
    }
    unquantized = [
        {**one, "place": one["plain"]}
        for (model, _), one in quantized.items()
        if model in ENGINES_OWN
    ]
    answered = documents_in(_ask_engine(place, [*quantized.values(), *unquantized]))
    own = {tuple(one["case"]): one["answers"] for one in answered if one["place"] == one["plain"]}
    found = {tuple(one["case"]): one for one in answered if one["place"] != one["plain"]}
    questions = [{**one, "place": one["plain"]} for one in found.values() if "answers" in one]
    (place / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    said = documents_in(
        run_program(quantizing_python, "plain_answers.py", str(place / "questions.jsonl"))
    )
    read = {tuple(one["case"]): one for one in said}
    models = {case: {"model": str(place / "models" / case[0])} for case in CASES}
    return models | {
        case: {**one, **read.get(case, {}), "own": own.get(case)} for case, one in found.items()
    }


def _left_out(model: str) -> tuple[str, ...] | None:
    return (WHOLE_EXPERTS,) if model in EXPERTS else None


def _case(place: Path, model: str, method: str) -> dict[str, Any]:
    parameters = planned_parameters(place / "models" / model, method, _left_out(model))
    keep = str(place / "kept" / f"{model}-{method.partition(',')[0]}")
    return {"name": model, "label": method, "parameters": parameters, "keep": keep}


def _prompts(place: Path, model: str) -> dict[str, Any]:
    """Return the prompts of a model; one that sees gets a picture with the last."""
    if model not in SEEING:
        return {"prompts": PROMPTS}
    prompt, edge = SEEING[model]
    picture = place / f"{edge}.ppm"
    colours = bytes((7 * at * at + 13 * at) % 256 for at in range(3 * edge * edge))
    picture.write_bytes(b"P6 %d %d 255\n" % (edge, edge) + colours)
    texts = [prompt for prompt in PROMPTS if PICTURE not in prompt]
    return {"prompts": texts, "seeing": prompt, "picture": str(picture)}


def _ask_engine(place: Path, questions: list[dict[str, Any]]) -> str:
    home = place / "home"
    home.mkdir()
    hidden = {"PACKAGER_TEST_TORCH_CPU": answers(os.environ.get(VARIABLE, ""))}
    sites = [str(unpacked_base())]
    if any("picture" in question for question in questions):
        sites.append(str(laid_beside("torchvision-0.28.0", [TORCHVISION])))
    done = subprocess.run(
        [python_3_11(), "-S", str(Path(__file__).parent / "engine_answers.py")],
        input="\n".join(map(json.dumps, questions)),
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": os.pathsep.join(sites),
            **caps(),
            **hidden,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(("model", "method"), CASES)
def test_the_engine_answers_as_the_dequantized_weights_would(
    told: Mapping[tuple[str, str], Told], model: str, method: str
) -> None:
    found = told[model, method]

    if not _is_served(method):
        assert "processor-lacks-kernel" in _refusals(found["model"], model, method)
        return
    if cause := CORPUS["not_loaded"].get(model, {}).get(method):
        assert found["refused"] == cause
        return
    assert "refused" not in found, found["refused"]
    if model in ENGINES_OWN:
        assert found["answers"] == found["own"]
        return
    off = list(zip(found["gaps"], found["spreads"], strict=True))
    assert len(off) == len(PROMPTS) * TOKENS
    tie = TIE_OF_LATENT if model in LATENT else TIE
    assert [(gap, spread) for gap, spread in off if gap > max(tie, SPREADS * spread)] == []
    assert sum(spread > SAYS_NOTHING for _, spread in off) <= FEW_OF_THEM
    assert sum(gap == 0 for gap, _ in off) >= len(off) / 2


def _refusals(place: str, model: str, method: str) -> list[str]:
    """Plan a model for this machine; return the codes of what refuses it."""
    here = this_machine(os.environ)
    facts = planned_facts(Path(place), method, here, left_out=_left_out(model))
    with pytest.raises(PlanRejected) as refused:
        make_plan(
            facts,
            PlannerServices(family=VllmFamily(), rules=rules(), quantizer=LlmCompressorQuantizer()),
        )
    return [finding.code for finding in errors_in(refused.value.findings)]


def test_plans_refuse_the_models_that_the_base_has_no_packages_for(serving_base: str) -> None:
    """When the base is built, every model of vLLM's registry is asked; these cannot be imported."""
    del serving_base
    registry = (unpacked_base() / "vllm/model_executor/models/registry.py").read_text()
    named = re.findall(r'"(\w+)":\s*\(\s*"(\w+)",\s*"(\w+)",?\s*\)', registry)
    asked = unpacked_base().parents[2] / "share/vllm/modelinfos"
    answered = {answer.stem for answer in asked.iterdir()}

    rule = find_rule("base-lacks-packages")

    assert rule is not None
    assert {*rule.when["architecture"], "MLPSpeculatorPreTrainedModel"} == {  # a draft's own
        architecture
        for architecture, module, kind in named
        if f"vllm-model_executor-models-{module}-{kind}" not in answered
    }
