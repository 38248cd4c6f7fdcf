"""Which method quantizes which architecture, asked before anything is downloaded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from packager.addons.contrib.tensorrt_llm.compiler import TensorRtLlmCompiler
from packager.catalog.containers import find_container
from packager.catalog.model_types import TABLE as TYPES
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.core.model import ModelFiles
from packager.core.samples import Sample, Samples
from packager.engines.vllm.family import VllmFamily
from packager.estimate.sizing.quantizable import (
    experts_in_one,
    find_loader,
    find_support,
    read_table,
    support_of,
)
from packager.models.architectures.profile import make_profile
from packager.models.architectures.spellings import TABLE as ARCHITECTURES
from packager.models.architectures.spellings import find_architecture
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, TINY, facts_of, model_of, tensor
from tests.support.places import ROOT
from tests.support.reference_pages import read_page

cases = cases_of(__file__)


def of(architecture: str) -> ModelFiles:
    """A Llama's headers under another architecture's name."""
    return model_of(LLAMA_3_8B | {"architectures": [architecture]})


def refusal(model: ModelFiles, method: str) -> tuple[str, str, str]:
    facts = facts_of(model, "ml.g6.12xlarge", quantize=method)
    with pytest.raises(PlanRejected) as rejected:
        make_plan(facts, PlannerServices(family=VllmFamily(), quantizer=LlmCompressorQuantizer()))
    (error,) = [e for e in errors_in(rejected.value.findings) if e.code.startswith("quantize")]
    return error.code, error.message, error.hint


def methods_for(architecture: str) -> tuple[str, ...]:
    methods = read_table().methods
    return tuple(one for one in methods if not find_support(architecture, {}, one).refused)


@cases("each_architecture_has_its_methods")
def test_each_architecture_has_its_methods(architecture: str, works: tuple[str, ...]) -> None:
    assert methods_for(architecture) == works


def test_every_architecture_that_is_planned_has_a_row() -> None:
    planned = {
        line[len("[architectures.") : -1]
        for line in ARCHITECTURES.read_text(encoding="utf-8").splitlines()
        if line.startswith("[architectures.")
    }

    # All experts of a layer are one tensor in these, which the headers tell.
    fused = {"GptOssForCausalLM", "GraniteMoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"}
    rows = read_table().rows
    assert planned - fused == {name for name in rows if rows[name].tried is None}
    assert all(find_architecture(name).source for name in planned)


@cases("what_scales_move_out_of")
def test_a_method_names_what_scales_move_out_of(
    architecture: str, method: str, folds: str, left: tuple[str, ...]
) -> None:
    support = find_support(architecture, {}, method, untested=True)

    assert (support.folds, support.unfolded, support.refused) == (folds, left, "")


@cases("supported", method="fp8", config={}, options=(), is_refused=False)
def test_a_method_is_refused_or_has_its_loader(
    architecture: str,
    method: str,
    config: dict[str, Any],
    options: tuple[str, ...],
    is_refused: bool,
    loader: str | None,
) -> None:
    found = find_support(architecture, config, method, options)

    assert bool(found.refused) == is_refused
    assert loader in (None, found.loader)


@cases("experts_in_one_tensor_are_not_quantized", ignore=None)
def test_experts_in_one_tensor_are_not_quantized(
    tensors: dict[str, tuple[int, ...]], ignore: tuple[str, ...] | None, found: bool
) -> None:
    """Engines are not known to read them one by one: the headers decide, not the class's name."""
    model = model_of(TINY | {"num_local_experts": 8, "num_experts_per_tok": 2})
    more = tuple(tensor(f"model.layers.0.{name}", "BF16", size) for name, size in tensors.items())
    model = replace(model, tensors=(*model.tensors, *more))
    profile = make_profile(model)[0]

    support = support_of(model, profile, "fp8", ignore=ignore)

    assert ("one tensor in the checkpoint" in support.refused) is found
    assert experts_in_one(model, profile, ignore) in {"", *(one.name for one in more)}
    assert not support_of(model, profile, "theirs").refused


@cases("experts_in_one_tensor_are_quantized_for_engines_that_read_them_apart", family="vllm")
def test_experts_in_one_tensor_are_quantized_for_engines_that_read_them_apart(
    architecture: str, family: str, engine_version: str, refused: str
) -> None:
    model = model_of(TINY | {"num_local_experts": 8, "num_experts_per_tok": 2})
    fused = tensor("model.layers.0.block_sparse_moe.input_linear.weight", "BF16", (8, 512, 256))
    model = replace(model, tensors=(*model.tensors, fused))
    profile = replace(make_profile(model)[0], architecture=architecture)
    container = replace(find_container(family, "nvidia"), engine_version=engine_version)

    support = support_of(model, profile, "fp8", container=container)

    assert support.refused.endswith(refused) if refused else not support.refused


@cases("a_model_is_loaded_whole_or_refused", parts=())
def test_a_model_is_loaded_whole_or_refused(
    model_type: str, architecture: str, loader: str, parts: tuple[str, ...]
) -> None:
    config = TINY | {"model_type": model_type, "architectures": [architecture]}
    config |= {part: {"hidden_size": 8} for part in parts}
    model = replace(model_of(TINY), config=config)
    profile = replace(make_profile(model_of(TINY))[0], architecture=architecture)
    support = support_of(model, profile, "fp8")

    assert find_loader(config) == loader
    assert (f"models of type {model_type!r} whole" in support.refused) is (
        not loader and architecture != "LlamaForCausalLM"
    )


def test_the_tables_of_loaders_are_those_of_the_worker() -> None:
    pins = (ROOT / "containers/tools/llmcompressor/requirements/direct.txt").read_text()

    assert f"transformers=={json.loads(TYPES.read_bytes())['source'].rpartition(' ')[2]}" in pins


@cases("what_would_fail_after_loading_is_refused_when_planning_with_what_works_instead")
def test_what_would_fail_after_loading_is_refused_when_planning_with_what_works_instead(
    architecture: str, method: str, code: str, why: str, instead: str
) -> None:
    found, message, hint = refusal(of(architecture), method)

    assert found == code
    assert architecture in message and why in message
    assert instead in hint


def test_a_compiler_that_quantizes_by_itself_is_not_asked_for_a_row() -> None:
    facts = facts_of(of("RWForCausalLM"), "ml.g6.12xlarge", quantize="fp8", compile="tensorrt_llm")

    with pytest.raises(PlanRejected) as rejected:  # vLLM's image holds no TensorRT-LLM
        make_plan(
            facts,
            PlannerServices(
                family=VllmFamily(),
                quantizer=LlmCompressorQuantizer(),
                compilers={"tensorrt_llm": TensorRtLlmCompiler()},
            ),
        )

    assert "quantize-architecture" not in {finding.code for finding in rejected.value.findings}


@pytest.mark.parametrize(
    "asked", [{"quantize": "fp8"}, {"quantize": "awq", "try_untested": True}], ids=str
)
def test_quantizing_an_unknown_architecture_warns(asked: dict[str, Any]) -> None:
    texts = Samples(source="texts", samples=(Sample(text="a text"),))
    facts = replace(
        facts_of(of("NobodyKnowsForCausalLM"), "ml.g6.12xlarge", **asked), samples=texts
    )

    plan = make_plan(
        facts, PlannerServices(family=VllmFamily(), quantizer=LlmCompressorQuantizer())
    )

    assert "quantize-untried" in {finding.code for finding in plan.findings}


def test_a_plan_does_not_recommend_methods_that_do_not_work_for_the_architecture() -> None:
    plan = make_plan(
        facts_of(of("RWForCausalLM"), "ml.g6.12xlarge"), PlannerServices(family=VllmFamily())
    )

    reasons = {one.what: one.code for one in plan.rejected if one.what.startswith("quantize")}
    assert reasons == dict.fromkeys(
        ("quantize awq", "quantize gptq", "quantize fp8", "quantize smoothquant"),
        "quantize-architecture",
    )


@cases("a_model_that_would_fit_in_4_bits_is_told_a_method_that_works_for_it")
def test_a_model_that_would_fit_in_4_bits_is_told_a_method_that_works_for_it(
    architecture: str, method: str | None
) -> None:
    model = model_of(LLAMA_3_70B | {"architectures": [architecture]})

    with pytest.raises(PlanRejected) as rejected:
        make_plan(facts_of(model, "ml.g5.12xlarge"), PlannerServices(family=VllmFamily()))

    (error,) = [e for e in errors_in(rejected.value.findings) if e.code == "does-not-fit"]
    assert "use a 4-bit checkpoint" in error.hint
    told = [name for name in ("awq", "gptq", "rtn") if f"--quantize {name}" in error.hint]
    assert told == ([method] if method else [])


def test_the_reference_has_every_row() -> None:
    page = read_page(ROOT / "docs/reference/architectures.md")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))

    assert set(rows) == set(read_table().rows)
    assert rows["LlamaForCausalLM"] == "yes | yes | yes | yes"
    assert rows["ApertusForCausalLM"] == "yes | `gptq` | yes | yes"
    assert rows["Olmo2ForCausalLM"] == "yes | yes | yes | no"
    assert rows["GPT2LMHeadModel"] == "no | no | no | no"
