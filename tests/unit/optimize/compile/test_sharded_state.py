"""Weights that are split into ranks before they are loaded: who may, what runs, what is a miss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from artifact_cache.key import key_of
from packager.catalog.containers import find_container
from packager.cli.wiring.techniques import find_sharder
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import errors_in
from packager.core.image import BaseImage, Inline
from packager.core.instance import with_ranks
from packager.core.model import ModelFile, ModelFiles
from packager.core.plan import Plan
from packager.core.recipe import Step, StepOutcome
from packager.core.samples import Sample, Samples
from packager.core.tool import ToolFacts
from packager.optimize.compile.sharded_state import StateSharder
from packager.optimize.compile.vllm_cache import VllmCacheCompiler
from packager.optimize.keys.documents import ShardedCheckpointKey
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe, needed_tools
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.running import run_recipe
from tests.support import shapes
from tests.support.cases import as_type, cases, read_tables
from tests.support.doubles.containers import FAMILIES, with_traits
from tests.support.headers import LLAMA_3_8B, LOCAL_CPU, TINY, facts_of, model_of

SHARDER = StateSharder()
TOOL = ToolFacts(name="vllm-shards", worker="ab" * 32, requirements="cd" * 32, packages={})
BASE = as_type(read_tables(__file__)["base"], BaseImage)
CPU = replace(LOCAL_CPU, machine="x86_64", isa=("avx2", "avx512f"))


def file_of(path: str, role: str, digit: str) -> ModelFile:
    return ModelFile(path=path, role=role, content=Inline(b"x" * 16), sha256=digit * 64)  # type: ignore[arg-type]


FILES = (
    file_of("config.json", "config", "5"),
    file_of("model-00001-of-00002.safetensors", "weights", "6"),
    file_of("model-00002-of-00002.safetensors", "weights", "7"),
    file_of("model.safetensors.index.json", "config", "8"),
    file_of("tokenizer.json", "tokenizer", "9"),
)
RANKS = tuple(file_of(f"model-rank-{rank}-part-0.safetensors", "other", "a") for rank in range(2))


def sharded_facts(
    model: ModelFiles | None = None,
    instance: Any = "ml.g5.12xlarge",
    family: str = "vllm",
    **asked: Any,
) -> Facts:
    given = {"tp_degree": 2, "load_format": "sharded_state", **asked}
    model = replace(model or model_of(LLAMA_3_8B), files=FILES)
    facts = facts_of(model, instance, family=family, **given)
    facts = replace(facts, instance=with_ranks(facts.instance, given["tp_degree"]))
    samples = Samples(samples=(Sample(text="hello"),), source="some texts")
    return replace(
        facts,
        base=BASE,
        samples=samples if asked.get("quantize") else None,
        tools={
            "vllm-shards": TOOL,
            "vllm-cache": replace(TOOL, name="vllm-cache"),
            "llmcompressor": replace(TOOL, name="llmcompressor"),
        },
    )


def in_version(facts: Facts, version: str) -> Facts:
    found = find_container(facts.container.family, facts.instance.kind, version=version)
    return replace(facts, container=with_traits(found))


def services_for(facts: Facts) -> PlannerServices:
    return PlannerServices(
        family=FAMILIES[facts.container.family],
        quantizer=LlmCompressorQuantizer() if facts.request.quantize else None,
        compilers={"vllm_cache": VllmCacheCompiler()} if facts.request.compile else {},
        find_sharder=find_sharder,
    )


def plan_for(facts: Facts) -> Plan:
    return make_plan(facts, services_for(facts))


def steps_for(facts: Facts) -> tuple[Step, ...]:
    return make_recipe(plan_for(facts), facts, services_for(facts)).steps


def step_for(facts: Facts) -> Step:
    return next(step for step in steps_for(facts) if step.gives == "ranks")


def key_for(facts: Facts) -> ShardedCheckpointKey:
    key = step_for(facts).key
    assert isinstance(key, ShardedCheckpointKey)
    return key


def refusals(facts: Facts) -> list[str]:
    with pytest.raises(PlanRejected) as raised:
        plan_for(facts)
    return [error.message for error in errors_in(raised.value.findings)]


def words_after(step: Step, name: str) -> str:
    told = step.parameters["arguments"]
    return str(told[told.index(name) + 1])


def test_the_step_is_told_what_decides_parameters_and_not_how_much_is_served() -> None:
    step = step_for(sharded_facts(max_batch=77, max_total_tokens=8000))

    assert (step.tool, step.gives, step.gpus, step.gpu) == ("vllm-shards", "ranks", 2, "A10G")
    assert step.parameters["ranks"] == 2
    assert words_after(step, "--dtype") == "bfloat16"
    assert words_after(step, "--tensor-parallel-size") == "2"
    assert (words_after(step, "--max-num-seqs"), words_after(step, "--max-model-len")) == (
        "1",
        "256",
    )
    assert "--enforce-eager" in step.parameters["arguments"]
    assert "--load-format" not in step.parameters["arguments"]
    assert key_of(key_for(sharded_facts(max_batch=77))) == key_of(key_for(sharded_facts()))


@cases("models_of_every_kind_are_split")
def test_models_of_every_kind_are_split(name: str, degree: int) -> None:
    facts = sharded_facts(shapes.plain(name), "ml.p4d.24xlarge", tp_degree=degree)

    step = step_for(facts)

    assert step.parameters["ranks"] == degree
    assert step.needs.disk_bytes == 2 * facts.model.weight_bytes
    assert plan_for(facts).is_presharded


@pytest.mark.parametrize(("family", "version"), [("vllm", "0.19.0"), ("lmi", "18")])
def test_the_server_is_told_the_format_in_its_own_words(family: str, version: str) -> None:
    plan = plan_for(in_version(sharded_facts(family=family), version))

    serving = FAMILIES[family].render(plan, Artifacts(model=FILES, draft=()))

    variable = {"vllm": "SM_VLLM_LOAD_FORMAT", "lmi": "OPTION_LOAD_FORMAT"}[family]
    assert serving.env[variable] == "sharded_state"
    if family == "lmi":
        [properties] = [one for one in serving.files if one.path.endswith("serving.properties")]
        assert b"option.load_format=sharded_state\n" in properties.data


@cases("refused")
def test_what_could_not_be_loaded_is_refused_when_planning(
    asked: dict[str, Any], said: str
) -> None:
    assert any(said in message for message in refusals(sharded_facts(**asked)))


def test_experts_that_are_not_split_by_rank_are_refused() -> None:
    mixtral = shapes.plain("mistralai/Mixtral-8x7B-v0.1")
    facts = sharded_facts(mixtral, "ml.p4d.24xlarge", tp_degree=8, ep=True)

    assert any("which experts a device holds" in message for message in refusals(facts))


def test_drafts_with_weights_are_refused_and_others_are_not() -> None:
    plan = plan_for(sharded_facts(draft="ngram"))

    assert plan.is_presharded
    assert plan.draft is not None
    drafted = replace(plan, draft=replace(plan.draft, kind="eagle3"))
    [error] = errors_in(SHARDER.check(sharded_facts(), drafted))
    assert "split weights of the eagle3 draft" in error.message


def test_versions_before_load_formats_of_plug_ins_are_refused() -> None:
    plan = plan_for(sharded_facts())
    old = with_traits(replace(plan.container, engine_version="0.8.4"))
    plan = replace(plan, container=old)

    [error] = errors_in(SHARDER.check(sharded_facts(), plan))
    assert "from 0.10.2 on, not for vllm 0.8.4" in error.message


@cases("another_key", config={}, asked={})
def test_whatever_changes_the_files_makes_another_key(
    config: dict[str, Any], asked: dict[str, Any], group: str
) -> None:
    assert differing(sharded_facts(model_of(LLAMA_3_8B | config), **asked)) == [group]


def test_another_toolchain_or_other_weights_make_another_key() -> None:
    facts = sharded_facts()
    files = [replace(one, sha256="0" * 64) if one.role == "weights" else one for one in FILES]
    weights = replace(facts, model=replace(facts.model, files=tuple(files)))
    base = replace(facts, base=replace(BASE, digest="sha256:" + "2" * 64))

    assert differing(weights) == ["weights"]
    assert differing(in_version(facts, "0.19.0")) == differing(base) == ["toolchain"]


def differing(facts: Facts) -> list[str]:
    """Return the parts of the key that another's differs in."""
    mine, other = key_for(sharded_facts()), key_for(facts)
    return [name for name in type(mine).model_fields if getattr(mine, name) != getattr(other, name)]


def test_token_ids_and_the_tokenizer_are_in_no_key() -> None:
    facts = sharded_facts(model_of(LLAMA_3_8B | {"eos_token_id": 7}))
    others = tuple(one for one in FILES if one.role != "tokenizer")
    facts = replace(facts, model=replace(facts.model, files=others))

    assert key_of(key_for(facts)) == key_of(key_for(sharded_facts()))


def test_without_digests_or_a_base_there_is_no_key() -> None:
    unread = tuple(replace(one, sha256="") for one in FILES)
    facts = sharded_facts()

    assert step_for(replace(facts, model=replace(facts.model, files=unread))).key is None
    assert step_for(replace(facts, base=None)).key is None


def test_what_a_step_quantized_is_named_by_that_step_s_key() -> None:
    quantize, shard = steps_for(sharded_facts(quantize="awq", calibration="default"))

    assert shard.inputs["model"].result_of == quantize.name
    assert isinstance(shard.key, ShardedCheckpointKey)
    assert quantize.key is not None
    assert shard.key.weights.files == {"(quantize)": key_of(quantize.key)}


def test_what_is_compiled_starts_with_the_split_weights() -> None:
    facts = sharded_facts(model_of(TINY), CPU, compile="vllm_cache")

    shard, compiling = steps_for(facts)

    assert (shard.gives, compiling.gives) == ("ranks", "compiled")
    assert compiling.inputs["model"].result_of == "shard"
    tools = needed_tools(plan_for(facts), facts, services_for(facts))
    assert tools == ("vllm-shards", "vllm-cache")


def test_the_image_has_the_ranks_in_place_of_the_weights() -> None:
    facts = sharded_facts(model_of(TINY), CPU)
    recipe = make_recipe(
        plan_for(facts),
        facts,
        PlannerServices(family=FAMILIES["vllm"], find_sharder=lambda _: SHARDER),
    )
    given: list[Step] = []

    def run_step(step: Step) -> StepOutcome:
        given.append(step)
        return StepOutcome(files=RANKS)

    artifacts = run_recipe(recipe, facts, run_step)

    assert [one.path for one in given[0].inputs["model"].files] == [one.path for one in FILES]
    found = [[one.path, one.role] for one in artifacts.model]
    assert found == read_tables(__file__)["files_and_roles"]
    assert "split-weights" not in recipe.finishes


def test_a_processor_is_as_many_ranks_as_are_asked_for_and_no_more_than_threads() -> None:
    plan = plan_for(sharded_facts(model_of(TINY), CPU))

    assert (plan.tp_degree, plan.instance.devices) == (2, 2)
    assert plan.budget.device_bytes == CPU.device_bytes // 2
    rendered = FAMILIES["vllm"].render(plan, Artifacts(model=FILES, draft=()))
    [command] = [one for one in rendered.files if one.path.endswith("command.json")]
    assert b'"OMP_NUM_THREADS":"1"' in command.data
    assert with_ranks(CPU, 3) is CPU
    assert with_ranks(CPU, 1) is CPU
