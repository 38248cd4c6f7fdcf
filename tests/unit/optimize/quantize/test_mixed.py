"""Models whose parts get schemes of their own: refused, counted, told to the worker, keyed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.addons.bench.tune.space import variations
from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.cli.plugins.tables import FAMILIES
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import errors_in
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.ports import Quantizer
from packager.core.request import BuildRequest, split_layer
from packager.core.samples import Sample, Samples
from packager.core.tool import ToolFacts
from packager.core.traits import UNKNOWN_ENGINE
from packager.estimate.performance.measured import _quantizations
from packager.estimate.performance.presets import candidates
from packager.estimate.sizing.precision import check_format
from packager.estimate.sizing.schemes import choose_quantization, quantized_weight_bytes
from packager.models.architectures.profile import make_profile
from packager.optimize.keys.documents import QuantizedCheckpointKey
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support import zoo
from tests.support.cases import cases_of, read_tables
from tests.support.headers import LLAMA_3_8B, LOCAL_CPU, TINY, awq_model_of, facts_of, model_of

cases = cases_of(__file__)
TABLES = read_tables(__file__)

QUANTIZER = LlmCompressorQuantizer()
TOOL = ToolFacts(name="llmcompressor", worker="a" * 64, requirements="b" * 64, packages={})
TEXTS = Samples(source="texts", samples=tuple(Sample(text=f"text {n}") for n in range(8)))


def _renamed(model: ModelFiles, name: str, other: str) -> ModelFiles:
    tensors = (one._replace(name=one.name.replace(name, other)) for one in model.tensors)
    return replace(model, tensors=tuple(tensors))


MODELS = {
    "tiny": model_of(TINY),
    "llama": model_of(LLAMA_3_8B),
    "mixtral": zoo.mixtral(),
    "latent": _renamed(model_of(TINY), "o_proj", "kv_b_proj"),
    "tied": model_of(TINY | {"tie_word_embeddings": True}),
    "quantized": awq_model_of(TINY),
}
BLACKWELL = "ml.p6-b200.48xlarge"


def facts(
    model: ModelFiles, on: str = BLACKWELL, family: str = "vllm", version: str = "", **asked: Any
) -> Facts:
    instance = LOCAL_CPU if on == "local" else on
    found = facts_of(model, instance, family=family, **asked)
    found = replace(found, samples=TEXTS, tools={"llmcompressor": TOOL})
    if not version:
        return found
    return replace(found, container=find_container(family, found.instance.kind, version))


def planned(given: Facts, **more: Any) -> Plan:
    family = FAMILIES.find(given.container.family).make()
    return make_plan(
        given, PlannerServices(family=family, rules=rules(), **{"quantizer": QUANTIZER, **more})
    )


@cases("a_mix_is_planned_or_refused", family="vllm", version="", quantize="fp8")
def test_a_mix_is_planned_or_refused(
    model: str, on: str, family: str, version: str, quantize: str, layers: list[str], expected: str
) -> None:
    """`expected` is the code of each error; "" where it is planned."""
    asked = {"quantize": quantize, "quantize_layer": tuple(layers) or None, "tp_degree": 1}
    try:
        found = planned(facts(MODELS[model], on, family, version, **asked)).findings
    except PlanRejected as rejected:
        found = rejected.findings

    assert " ".join(error.code for error in errors_in(found)) == expected
    assert all(error.hint for error in errors_in(found))


@cases("what_is_refused_says_which_part_and_what_else_to_ask")
def test_what_is_refused_says_which_part_and_what_else_to_ask(
    model: str, layers: list[str], message: str, hint: str
) -> None:
    with pytest.raises(PlanRejected) as rejected:
        planned(facts(MODELS[model], quantize="fp8", quantize_layer=tuple(layers)))

    (error,) = errors_in(rejected.value.findings)
    assert (error.message, error.hint) == (message, hint)


@cases("whole_layers", quantize="fp8", errors=1)
def test_methods_of_whole_layers_are_refused_with_the_reason(
    quantize: str, parts: list[str], said: str, errors: int
) -> None:
    with pytest.raises(PlanRejected) as rejected:
        planned(facts(MODELS["tiny"], quantize=quantize, quantize_layer=tuple(parts)))

    found = [one for one in errors_in(rejected.value.findings) if one.code == "quantize-layer"]
    assert len(found) == errors
    assert all(said in one.message for one in found)
    assert all("use one of fp8, " in one.hint for one in found)


@cases("every_part_is_counted_by_its_own_scheme")
def test_every_part_is_counted_by_its_own_scheme(
    quantize: str | None, layers: list[str], size: int, precision: str
) -> None:
    """Llama-3-8B: 16.06 GB, of which 1.34 are attention's, 5.64 billion weights the MLPs'."""
    plan = planned(facts(MODELS["llama"], quantize=quantize, quantize_layer=tuple(layers) or None))

    assert quantized_weight_bytes(plan.profile, plan.quantization) == size
    assert plan.precision == precision


@cases("the_worker_is_told_of_each_part")
def test_the_worker_is_told_of_each_part(
    quantize: str | None, layers: list[str], told: dict[str, Any]
) -> None:
    given = facts(MODELS["tiny"], quantize=quantize, quantize_layer=tuple(layers) or None)
    step = QUANTIZER.step(given, planned(given))

    common = ("ignore", "max_tokens", "seed", "checkpoint_format", "shard_bytes", "loader")
    beside = (*common, "memory_bytes")
    assert {key: one for key, one in step.parameters.items() if key not in beside} == told
    assert isinstance(step.key, QuantizedCheckpointKey)
    args = step.key.invocation.engine_args
    assert json.loads(args.get("layers", "[]")) == told.get("layers", [])


def test_another_order_of_parts_is_another_result() -> None:
    layers = ("re:.*layers\\.0\\..*=none", "re:.*mlp.*=nvfp4")

    def key(layers: tuple[str, ...]) -> Any:
        given = facts(MODELS["tiny"], quantize="fp8", quantize_layer=layers)
        return QUANTIZER.step(given, planned(given)).key

    assert key(layers) == key(layers)
    assert key(layers) != key(layers[::-1])


@cases("a_checkpoint_that_arrives_with_several_formats_needs_kernels_for_each")
def test_a_checkpoint_that_arrives_with_several_formats_needs_kernels_for_each(
    on: str, codes: list[str]
) -> None:
    profile, _ = make_profile(model_of(TINY | {"quantization_config": TABLES["arrives"]}))
    instance = find_instance(on)
    choice = choose_quantization(None, profile, instance, facts_of(MODELS["tiny"], on).container)

    assert [one.code for one in check_format(profile, instance, UNKNOWN_ENGINE)] == codes
    assert choice.quantization is not None
    assert [part.scheme for part in choice.quantization.parts][1:] == ["NVFP4"]
    assert profile.group_size == 16


def test_goals_and_tuning_leave_the_schemes_of_parts_as_they_are() -> None:
    asked = BuildRequest(model="m", instance=BLACKWELL, quantize_layer=("re:.*mlp.*=nvfp4",))
    instance = find_instance(BLACKWELL)

    ranked = candidates(asked, instance, "throughput", quantized=False)
    tuned = variations(asked, instance, "throughput", quantized=False, brings_draft=False)

    assert not any("quantize" in one.changes for one in (*ranked, *tuned))


def test_figures_of_one_scheme_are_not_taken_for_a_mix() -> None:
    asked = facts(MODELS["llama"], quantize="fp8", quantize_layer=("re:.*mlp.*=nvfp4",))

    assert _quantizations(planned(asked)) == ("nvfp4a16+fp8",)


def test_a_quantizer_that_cannot_mix_schemes_refuses_them() -> None:
    class Plain(Quantizer):
        name, tool, methods = "plain", "", QUANTIZER.methods
        check, step = QUANTIZER.check, QUANTIZER.step

    with pytest.raises(PlanRejected) as rejected:
        planned(
            facts(MODELS["tiny"], quantize="fp8", quantize_layer=("lm_head=fp8",)),
            quantizer=Plain(),
        )

    assert {one.code for one in errors_in(rejected.value.findings)} == {"quantize-layer"}


@pytest.mark.parametrize(("text", "parts"), TABLES["an_entry_is_split_where_a_method_begins"])
def test_an_entry_is_split_where_a_method_begins(text: str, parts: list[str]) -> None:
    assert list(split_layer(text)) == parts
