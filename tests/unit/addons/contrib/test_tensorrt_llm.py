"""TensorRT-LLM engines: who may, what the builder is told, and what makes another engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.addons.contrib.tensorrt_llm.compiler import TensorRtLlmCompiler
from packager.catalog.containers import find_container
from packager.core.errors import NotCached
from packager.core.facts import Facts
from packager.core.findings import errors_in
from packager.core.image import BaseImage
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.recipe import CacheStatus, Recipe, Step, StepOutcome
from packager.core.references import DirectoryReference
from packager.core.samples import Sample, Samples
from packager.core.tool import ToolFacts
from packager.engines.lmi.family import LmiFamily
from packager.optimize.keys.documents import TensorRtLlmEngineKey
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.cache_policy import apply_miss_policy
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.running import run_recipe
from packager.pipeline.stages import Planned
from tests.support.cases import as_type, cases, read_tables
from tests.support.headers import LLAMA_3_8B, facts_of, model_of

TABLES = read_tables(__file__)


TOLD = read_tables(__file__)["told"]
COMPILER = TensorRtLlmCompiler()
TAG = "0.33.0-tensorrtllm0.21.0-cu128"
TOOL = ToolFacts(name="tensorrt-llm", worker="ab" * 32, requirements="cd" * 32, packages={})
QUANTIZER_TOOL = replace(TOOL, name="llmcompressor")
BASE = as_type(TABLES["base"], BaseImage)
FILES = as_type(TABLES["files"], tuple[ModelFile, ...])
SAMPLES = Samples(samples=(Sample(text="hello"),), source="some texts")


def engine_facts(instance: str = "ml.g5.12xlarge", **asked: Any) -> Facts:
    given = {"max_batch": 16, "max_input_tokens": 4096, "max_total_tokens": 8192, "tp_degree": 4}
    model = replace(model_of(LLAMA_3_8B), files=FILES)
    facts = facts_of(model, instance, family="lmi", **{"compile": "tensorrt_llm", **given, **asked})
    return replace(
        facts,
        base=BASE,
        container=find_container("lmi", "nvidia", version=TAG),
        samples=SAMPLES if asked.get("quantize") else None,
        tools={"tensorrt-llm": TOOL, "llmcompressor": QUANTIZER_TOOL},
    )


def services_for(facts: Facts) -> PlannerServices:
    quantizer = LlmCompressorQuantizer() if facts.request.quantize else None
    return PlannerServices(
        family=LmiFamily(), quantizer=quantizer, compilers={"tensorrt_llm": COMPILER}
    )


def plan_for(facts: Facts) -> Plan:
    return make_plan(facts, services_for(facts))


def recipe_for(facts: Facts) -> Recipe:
    return make_recipe(plan_for(facts), facts, services_for(facts))


def step_for(facts: Facts) -> Step:
    return recipe_for(facts).steps[-1]


def key_for(facts: Facts) -> TensorRtLlmEngineKey:
    key = step_for(facts).key
    assert isinstance(key, TensorRtLlmEngineKey)
    return key


def refused(plan: Plan, facts: Facts | None = None) -> list[str]:
    return [one.code for one in errors_in(tuple(COMPILER.check(facts or engine_facts(), plan)))]


def test_the_builder_is_told_the_plans_limits() -> None:
    assert step_for(engine_facts()).parameters["build"] == TOLD["build"]


def test_plugin_flags_asked_for_by_name_reach_the_builder() -> None:
    facts = engine_facts(engine_options={"gemm-plugin": "bfloat16", "reduce_fusion": "enable"})
    words = step_for(facts).parameters["build"]

    assert words[words.index("--gemm_plugin") + 1] == "bfloat16"
    assert words[-2:] == ["--reduce_fusion", "enable"]


def test_the_engine_must_say_what_the_plan_says() -> None:
    assert step_for(engine_facts()).parameters["expected"] == {
        **TOLD["expected"],
        "pretrained_config.quantization.quant_algo": None,
        "pretrained_config.quantization.kv_cache_quant_algo": None,
    }


def test_it_is_built_in_the_serving_image_on_the_gpus_that_serve() -> None:
    step = step_for(engine_facts())

    assert (step.image, step.gpus, step.gpu, step.env) == (BASE, 4, "A10G", {})
    assert step.parameters["target"] == {"gpu": "A10G", "compute_capability": "8.6"}
    assert step.parameters["env"] == {"PATH": "/usr/local/bin:/usr/bin", "LD_LIBRARY_PATH": "/cuda"}
    assert step.places == {"model": "/opt/packager/model", "output": "/opt/packager/compiled"}


def test_quantizing_is_part_of_the_build() -> None:
    recipe = recipe_for(engine_facts(quantize="awq"))

    assert [step.name for step in recipe.steps] == ["compile"]
    told = recipe.steps[0].parameters
    assert told["quantize"] == {
        "qformat": "int4_awq",
        "kv_cache_dtype": None,
        "awq_block_size": 128,
        "calib_size": 1,
        "calib_max_seq_length": 2048,
        "seed": 0,
    }
    assert told["expected"]["pretrained_config.quantization.quant_algo"] == "W4A16_AWQ"
    assert recipe.steps[0].inputs["samples"].files[0].path == "samples.jsonl"


def test_fp8_takes_tensorrts_own_products_and_may_take_the_cache_along() -> None:
    told = step_for(engine_facts("ml.p5.48xlarge", quantize="fp8,kv", tp_degree=8)).parameters
    words = told["build"]

    assert words[words.index("--gemm_plugin") + 1] == "disable"
    assert words[words.index("--use_fp8_context_fmha") + 1] == "enable"
    assert told["expected"]["pretrained_config.quantization.kv_cache_quant_algo"] == "FP8"


@cases("others")
def test_other_inputs_are_another_engine(asked: dict[str, Any], part: str, field: str) -> None:
    ours, other = key_for(engine_facts()), key_for(engine_facts(**asked))

    assert getattr(getattr(ours, part), field) != getattr(getattr(other, part), field)


def test_the_weights_are_in_the_key_because_they_are_in_the_engine() -> None:
    tuned = engine_facts()
    files = tuple(replace(file, sha256="9" * 64) for file in tuned.model.files)
    tuned = replace(tuned, model=replace(tuned.model, files=files))

    assert key_for(tuned).weights != key_for(engine_facts()).weights
    assert (key_for(tuned).target.arch, key_for(tuned).target.device) == ("sm_86", "A10G")


def test_limits_stand_in_the_key_once_so_that_a_larger_engine_can_be_found() -> None:
    words = key_for(engine_facts()).invocation.compiler_args

    assert "--gemm_plugin" in words
    assert not [word for word in words if word.startswith("--max_")]


def test_there_is_no_key_while_base_or_weights_are_not_known() -> None:
    facts = engine_facts()
    files = tuple(replace(file, sha256="") for file in facts.model.files)

    assert step_for(replace(facts, base=None)).key is None
    assert step_for(replace(facts, model=replace(facts.model, files=files))).key is None


def test_the_plan_says_that_engines_end_and_what_to_use() -> None:
    found = next(one for one in plan_for(engine_facts()).findings if one.code == "tensorrt-legacy")

    assert found.severity == "warning"
    assert "dropped the engine backend after 1.2" in found.message
    assert "PyTorch backend" in found.hint
    assert "vLLM" in found.hint


@cases("unsupported", container={}, plan={}, codes=["compile-unsupported"])
def test_what_no_engine_is_built_for_is_refused(
    container: dict[str, Any], plan: dict[str, Any], codes: list[str]
) -> None:
    planned = plan_for(engine_facts())
    changed = replace(planned, container=replace(planned.container, **container), **plan)
    assert refused(changed) == codes


def test_methods_and_options_that_no_engine_has_are_refused() -> None:
    facts = engine_facts(quantize="awq")
    plan = plan_for(facts)
    assert plan.quantization is not None
    gptq = replace(plan, quantization=replace(plan.quantization, method="gptq"))
    zeros = replace(plan.quantization, options=(("asymmetric", ""),))

    assert refused(gptq, facts) == ["compile-unsupported"]
    assert refused(replace(plan, quantization=zeros), facts) == ["quantize-option"]
    assert refused(plan, replace(facts, samples=None)) == ["calibration-missing"]


def test_the_checkpoints_weights_stay_out_of_the_image() -> None:
    facts = engine_facts()
    engine = replace(FILES[1], path="rank0.engine", role="other")
    artifacts = run_recipe(recipe_for(facts), facts, lambda _: StepOutcome(files=(engine,)))

    assert [file.path for file in artifacts.compiled] == ["rank0.engine"]
    assert [file.path for file in artifacts.model] == ["config.json"]


def test_a_quantized_engine_that_is_not_cached_is_not_served_unquantized() -> None:
    facts = engine_facts(quantize="awq")
    forecast = CacheStatus(step="compile", tool="tensorrt-llm", state="miss")
    planned = Planned(
        reference=DirectoryReference.at("m"),
        facts=facts,
        plan=plan_for(facts),
        planning=services_for(facts),
        recipe=recipe_for(facts),
        forecasts=(forecast,),
    )

    with pytest.raises(NotCached, match="quantized nowhere else"):
        apply_miss_policy(planned, "skip-compile")
