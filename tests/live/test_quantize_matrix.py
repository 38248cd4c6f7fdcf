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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.samples import Sample, Samples
from packager.core.tool import ToolFacts
from packager.engines.vllm.family import VllmFamily
from packager.errors import PlanRejected
from packager.findings import errors_in
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.planning.planner import make_plan
from packager.quantize.llmcompressor import LlmCompressorQuantizer
from packager.sizing.quantizable import find_support
from tests.live.tool_programs import documents_in, run_program
from tests.support.headers import facts_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

LONG = os.environ.get("PACKAGER_SERVE") == "all"
TOOL = ToolFacts(name="llmcompressor", worker="a" * 64, requirements="b" * 64, packages={})
TEXTS = Samples(source="texts", samples=tuple(Sample(text=f"text {n}") for n in range(8)))
INSTANCE = "ml.p5.48xlarge"

MODELS = (
    "llama", "llama-mha", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "phi", "phi3",
    "mixtral", "qwen2-moe", "qwen3-moe", "qwen3-next", "gpt-oss", "deepseek-v3", "deepseek-v2",
    "glm4-moe", "olmoe", "olmo2", "glm4", "granite", "granite-moe", "starcoder2", "gpt-neox",
    "opt", "bloom", "falcon-7b", "falcon-40b", "cohere", "cohere2", "gpt2", "qwen2-vl",
    "qwen2.5-vl", "qwen3.5", "llava", "mistral3", "gemma3-vl",
)  # fmt: skip
SEEING = ("qwen2-vl", "qwen2.5-vl", "qwen3.5", "llava", "mistral3", "gemma3-vl")

# `--quantize` → how far the logits of the dequantized weights may be from the source's.
# Random weights have no slack: 4 bits in groups of 32 cost up to a quarter of them, and
# twice that where the norms behind attention magnify it (OLMo-2).
BOUNDS = {
    "awq,group=32": 0.4,
    "gptq,group=32": 0.4,
    "fp8": 0.15,
    "smoothquant": 0.1,
    "rtn,group=32": 0.6,
    "nvfp4": 0.5,
    "mxfp4": 0.5,
    "mxfp8": 0.2,
    "w4afp8": 0.6,
}
# Its one group size is more than these models have inputs: planned as another, and swapped.
PLANNED_AS = {"w4afp8": "rtn,group=32"}
OPTIONS = {
    "autoround,group=32,iters=2": 0.5,
    "awq,group=32,symmetric": 0.6,
    "gptq,group=32,asymmetric": 0.4,
    "fp8,static": 0.3,
    "fp8,static,kv": 0.3,
    "fp8,block": 0.3,
    "smoothquant,gptq": 0.1,
}
# Every model by what moves scales and by what is asked for most; the rest by some of them.
SHORT = ("awq,group=32", "smoothquant", "fp8")
FEW = ("llama", "gemma2", "mixtral", "deepseek-v3", "qwen3-next", "falcon-7b", "opt", "llava")
CASES = [
    (model, asked)
    for model in MODELS
    for asked in (*BOUNDS, *(OPTIONS if LONG else ()))
    if LONG or asked in SHORT or model in FEW
]
TUNED = "autoround,group=32,iters=2"
CASES += [] if LONG else [("mixtral", TUNED), ("phi3", TUNED)]
NO_MULTIPLE = "not multiples of 32"
REFUSED = {
    **{("gpt2", asked): "Conv1D" for asked in (*BOUNDS, *OPTIONS)},
    **{("gpt-oss", asked): "one tensor" for asked in (*BOUNDS, *OPTIONS)},
    **{("granite-moe", asked): "one tensor" for asked in (*BOUNDS, *OPTIONS)},
    ("bloom", "autoround,group=32,iters=2"): "puts texts together",
    **{
        (model, "autoround,group=32,iters=2"): NO_MULTIPLE
        for model in ("deepseek-v2", "deepseek-v3", "qwen3-next", "qwen3.5")
    },
    **{("olmo2", asked): "none feeds a matrix" for asked in ("smoothquant", "smoothquant,gptq")},
}
SOME_EVALUATED = [
    ("gemma2", "smoothquant"),
    ("opt", "gptq,group=32"),
    # Falcon's base once computed what is no number, in one of many runs, and nobody knows why:
    # its comparison is in the long form until that is found.
    ("llama", "awq,group=32"),
    ("mixtral", "fp8"),
    ("deepseek-v3", "awq,group=32"),
    ("llava", "awq,group=32"),
    ("qwen2-vl", "fp8"),
    ("gemma3-vl", "smoothquant"),
]
EVALUATED = CASES if LONG else SOME_EVALUATED

# Folds that change what a model computes: model, method, a fold in place of all, what is named.
QKV = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
GATED = ["mlp.gate_proj", "mlp.up_proj"]
EXPERTS = ["mlp.experts.*.gate_proj", "mlp.experts.*.up_proj"]
BEHIND = "post_attention_layernorm"
WRONG: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "gemma2's norm behind attention": (
        "gemma2", "smoothquant", {"from": BEHIND, "into": GATED}, "mlp.gate_proj"
    ),
    "gemma3's norm behind attention": (
        "gemma3", "awq,group=32", {"from": BEHIND, "into": GATED}, "mlp."
    ),
    "olmo2's norm behind attention": (
        "olmo2", "awq,group=32", {"from": BEHIND, "into": GATED}, "mlp."
    ),
    "mixtral's router left out": (
        "mixtral", "awq,group=32", {"from": BEHIND, "into": EXPERTS}, "mlp.gate"
    ),
    "cohere's MLP left out": (
        "cohere", "smoothquant", {"from": "input_layernorm", "into": QKV}, "mlp."
    ),
    "phi3's MLP folded into its attention": (
        "phi3", "awq,group=32", {"from": "mlp.down_proj", "into": ["self_attn.qkv_proj"]},
        "self_attn."
    ),
}  # fmt: skip

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
        files = LocalSource().facts(parse_model_reference(str(models / model)))
        facts = facts_of(files, INSTANCE, quantize=PLANNED_AS.get(asked, asked))
        facts = replace(facts, samples=TEXTS, tools={"llmcompressor": TOOL})
        quantizer = LlmCompressorQuantizer()
        try:
            step = quantizer.step(facts, make_plan(facts, VllmFamily(), quantizer=quantizer))
        except PlanRejected as rejected:
            return {"refused": [(e.code, e.message) for e in errors_in(rejected.findings)]}
        parameters = {**step.parameters, "memory_bytes": 1}
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
    for name, (model, asked, move, _) in WRONG.items():
        case = planned(model, asked)
        folds = {**case["parameters"]["folds"], "moves": [move]}
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
        odd = REFUSED[model, asked] == NO_MULTIPLE
        assert code == ("quantize-group" if odd else "quantize-architecture")
        assert REFUSED[model, asked] in message
        return
    assert "refused" not in planned(model, asked), planned(model, asked)

    found = told[model, asked]

    assert "failed" not in found, found["failed"]
    assert (found["lost"], found["added"]) == ([], [])
    assert found["packed"]
    assert found["difference"] <= {**BOUNDS, **OPTIONS}[asked]


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
    model, _, _, named = WRONG[name]

    found = told[model, name]

    assert found["failed"].startswith("NotEquivalent: ")
    assert "after scales moved, model.layers." in found["failed"]
    assert named in found["failed"]
    assert found["written"] == []


@pytest.mark.parametrize("asked", [a for a in SHORT if a != "awq,group=32"])
@pytest.mark.parametrize("model", SEEING)
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
    from packager.sizing.quantizable import read_table

    seen = {
        json.loads((models / name / "config.json").read_text())["architectures"][0]
        for name in MODELS
    }

    # Refused for every method: Falcon before it was in transformers, experts in one tensor.
    unseen = {"RWForCausalLM", "Qwen3_5MoeForConditionalGeneration"}
    assert seen == set(read_table().rows) - unseen
    assert all(find_support(name, {}, "fp8").refused for name in unseen)
