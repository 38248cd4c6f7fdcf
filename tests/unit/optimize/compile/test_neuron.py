"""Compiling for NeuronCores: who may, what runs, and which imported trees are hits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.key import key_of, plain
from packager.addons.contrib.foreign_caches.readers import NeoReader, OptimumNeuronReader
from packager.core.artifact import Artifacts
from packager.core.errors import NotCached, PlanRejected, UsageError
from packager.core.facts import Facts
from packager.core.findings import errors_in
from packager.core.image import BaseImage, Inline
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.recipe import CacheStatus, Step
from packager.core.references import DirectoryReference
from packager.core.tool import ToolFacts
from packager.core.trees import Stated
from packager.engines.neuron.family import NeuronFamily
from packager.optimize.cache.operations import CachePlace
from packager.optimize.cache.trees import import_tree
from packager.optimize.compile.neuron import NeuronCompiler
from packager.optimize.keys.documents import NeuronKey
from packager.pipeline.cache_policy import apply_miss_policy
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.stages import Planned
from tests.support.cache_opening import open_local
from tests.support.cases import as_type, cases, read_tables
from tests.support.doubles.containers import with_traits
from tests.support.foreign_trees import CONFIG, NEURON, VERSION, add_module, neo_tree, register
from tests.support.headers import TINY, facts_of, model_of

COMPILER = NeuronCompiler()
SERVICES = PlannerServices(family=NeuronFamily(), compilers={"neuron": COMPILER})
TOOL = ToolFacts(name="neuron", worker="ab" * 32, requirements="cd" * 32, packages={})
BASE = as_type(read_tables(__file__)["base"], BaseImage)
MODEL = {**TINY, **CONFIG, "intermediate_size": 128, "max_position_embeddings": 2048}
ENGINES = {"hf-vllm-neuronx": "0.11.0", "vllm-nxdi": "0.13.0", "lmi-neuronx": "sdk2.20.1"}
ASKED = {"max_batch": 4, "max_total_tokens": 1024, "max_input_tokens": 512, "tp_degree": 2}


def compile_facts(
    variant: str = "hf-vllm-neuronx",
    instance: str = "ml.inf2.xlarge",
    config: dict[str, Any] | None = None,
    dtype: str = "BF16",
    **asked: Any,
) -> Facts:
    model = model_of({**MODEL, **(config or {})}, dtype=dtype)
    asked = {"compile": "neuron", **ASKED, **asked}
    facts = facts_of(model, instance, family="neuron", **asked)
    container = replace(
        facts.container,
        variant=variant,
        engine_version=ENGINES.get(variant, "1"),
        release="",
        targets=(),
    )
    container = with_traits(container)
    return replace(facts, container=container, base=BASE, tools={"neuron": TOOL})


def plan_for(facts: Facts) -> Plan:
    return make_plan(facts, SERVICES)


def step_for(facts: Facts) -> Step:
    [step] = make_recipe(plan_for(facts), facts, SERVICES).steps
    return step


def key_for(facts: Facts) -> NeuronKey:
    key = step_for(facts).key
    assert isinstance(key, NeuronKey)
    return key


def found(facts: Facts, compiler: str = "neuron") -> dict[str, str]:
    plan = replace(
        plan_for(compile_facts()),
        container=facts.container,
        instance=facts.instance,
        compiler=compiler,
    )
    return {one.code: one.severity for one in COMPILER.check(facts, plan)}


def test_optimum_neuron_is_told_the_static_shape_and_the_target() -> None:
    step = step_for(compile_facts())

    assert step.parameters["command"] == read_tables(__file__)["command"]
    assert step.env == read_tables(__file__)["env"]
    assert (step.image, step.gpus) == (BASE, 0)
    assert step.places["output"] == "/opt/packager/compiled"


def test_nxd_inference_is_told_the_same_and_only_compiles() -> None:
    command = step_for(compile_facts("vllm-nxdi", "ml.trn1.2xlarge")).parameters["command"]

    assert command[:6] == [
        "inference_demo", "--model-type", "llama", "--task-type", "causal-lm", "run",
    ]  # fmt: skip
    told = dict(zip(command[6::2], command[7::2], strict=False))
    assert told["--compiled-model-path"] == "{traced}"
    assert (told["--tp-degree"], told["--batch-size"], told["--seq-len"]) == ("2", "4", "1024")
    assert "--is-continuous-batching" in command
    assert command[-1] == "--compile-only"


def test_two_physical_cores_of_trn2_are_one() -> None:
    step = step_for(compile_facts("vllm-nxdi", "ml.trn2.48xlarge"))

    assert step.env["NEURON_LOGICAL_NC_CONFIG"] == "2"
    assert isinstance(step.key, NeuronKey)
    assert (step.key.target.arch, step.key.target.logical_core_size) == ("trn2", 2)


def test_inf2_and_trn1_share_what_was_compiled_and_so_do_fine_tunes() -> None:
    key = key_of(key_for(compile_facts()))

    assert key_of(key_for(compile_facts(instance="ml.trn1.2xlarge"))) == key
    assert key_of(key_for(compile_facts(config={"eos_token_id": 7, "use_cache": False}))) == key


@pytest.fixture
def place(tmp_path: Path) -> CachePlace:
    root = tmp_path / "cache/artifacts"
    return CachePlace(root, open_local(root))


def tree_for(root: Path, **neuron: Any) -> Path:
    """What optimum-neuron leaves of this model: the registry has no defaults of its class."""
    cache = root / f"neuronxcc-{VERSION}"
    add_module(cache, 1)
    add_module(cache, 2)
    register(cache, config=CONFIG, neuron={**NEURON, **neuron})
    return root


def stated_for(facts: Facts, tmp_path: Path) -> Stated:
    """The key document that a plan asks for, and the model's config."""
    document, config = tmp_path / "key.json", tmp_path / "config.json"
    document.write_text(json.dumps(plain(key_for(facts))))
    config.write_text(json.dumps(dict(facts.model.config)))
    return Stated(document=document, config=config)


def test_an_imported_optimum_tree_is_a_hit_for_its_plan(tmp_path: Path, place: CachePlace) -> None:
    facts = compile_facts()
    tree = tree_for(tmp_path / "tree")

    import_tree(OptimumNeuronReader(), tree, place, stated_for(facts, tmp_path))

    assert place.cache.get_or_build(key_for(facts), lambda _: pytest.fail(), tmp_path / "into").hit
    assert len(list((tmp_path / "into").glob("neuronxcc-*/MODULE_*/model.neff"))) == 2


@cases("another_plan", variant="hf-vllm-neuronx", asked={}, config={}, dtype="BF16")
def test_an_imported_tree_is_a_miss_for_another_plan_and_the_miss_says_why(
    tmp_path: Path,
    place: CachePlace,
    variant: str,
    asked: dict[str, Any],
    config: dict[str, Any],
    dtype: str,
    pointer: str,
) -> None:
    import_plain(tmp_path, place)

    assert_missed(place, compile_facts(variant, config=config, dtype=dtype, **asked), pointer)


def test_an_imported_tree_is_a_miss_for_another_toolchain(
    tmp_path: Path, place: CachePlace
) -> None:
    import_plain(tmp_path, place)
    rebased = replace(compile_facts(), base=replace(BASE, digest="sha256:" + "2" * 64))
    tool = {"neuron": replace(TOOL, worker="ef" * 32)}

    assert_missed(place, rebased, "/toolchain/image")
    assert_missed(place, replace(compile_facts(), tools=tool), "/toolchain/worker")


def import_plain(tmp_path: Path, place: CachePlace) -> None:
    """Import a tree that was compiled for `compile_facts()`."""
    tree, stated = tree_for(tmp_path / "tree"), stated_for(compile_facts(), tmp_path)
    import_tree(OptimumNeuronReader(), tree, place, stated)


def assert_missed(place: CachePlace, facts: Facts, pointer: str) -> None:
    said = place.cache.explain(key_for(facts))

    assert not said.hit
    assert any(one.pointer.startswith(pointer) for one in said.nearest[0].differences)


@pytest.mark.parametrize("other", [{"batch_size": 8}, {"tp_degree": 4}, {"target": "trn2"}])
def test_a_tree_for_something_else_is_not_imported_under_the_plans_key(
    tmp_path: Path, place: CachePlace, other: dict[str, Any]
) -> None:
    tree = tree_for(tmp_path / "tree", **other)

    with pytest.raises(Exception, match=r"said to be|is for it"):
        import_tree(OptimumNeuronReader(), tree, place, stated_for(compile_facts(), tmp_path))


def test_a_config_of_another_model_is_refused(tmp_path: Path, place: CachePlace) -> None:
    facts = compile_facts(config={"num_hidden_layers": 3})

    with pytest.raises(UsageError, match="num_hidden_layers is 2 in the tree, and 3 in"):
        import_tree(
            OptimumNeuronReader(), tree_for(tmp_path / "tree"), place, stated_for(facts, tmp_path)
        )


def test_an_imported_neo_tree_is_a_hit_for_lmi(tmp_path: Path, place: CachePlace) -> None:
    facts = compile_facts("lmi-neuronx", config={"torch_dtype": "float16"}, dtype="F16")
    neo_tree(tmp_path / "tree")

    import_tree(NeoReader(), tmp_path / "tree", place, stated_for(facts, tmp_path))

    assert place.cache.get_or_build(key_for(facts), lambda _: pytest.fail(), tmp_path / "into").hit
    smaller = compile_facts(
        "lmi-neuronx", config={"torch_dtype": "float16"}, dtype="F16", max_batch=2
    )
    said = place.cache.explain(key_for(smaller))
    assert not said.hit
    assert {one.pointer for one in said.nearest[0].differences} == {
        "/shape/max_batch",
        "/shape/token_batch",
    }


def test_what_cannot_be_compiled_is_refused_and_lmi_is_warned_of() -> None:
    assert found(compile_facts()) == {}
    assert found(compile_facts("lmi-neuronx")) == {"neuron-import-only": "warning"}
    by_itself = found(compile_facts("lmi-neuronx"), compiler="")  # as `auto` looks for one
    assert by_itself == {"neuron-import-only": "error"}  # passed over: it would fail on a miss
    for variant in ("tgi-neuronx", "vllm-neuron"):
        assert found(compile_facts(variant)) == {"compile-unsupported": "error"}
    facts = compile_facts()
    elsewhere = replace(facts, instance=replace(facts.instance, name="ml.trn3.48xlarge"))
    assert found(elsewhere) == {"neuron-target": "error"}


def uncompiled(variant: str = "hf-vllm-neuronx", **asked: Any) -> Facts:
    return compile_facts(variant, **{"compile": "off", **asked})


def test_a_server_of_exported_models_gets_no_other_model() -> None:
    with pytest.raises(PlanRejected) as refused:
        plan_for(uncompiled())

    [finding] = errors_in(refused.value.findings)
    assert finding.code == "neuron-not-exported"
    assert finding.message == (
        "hf-vllm-neuronx serves nothing but a model exported by optimum-neuron, "
        "and would not start with model"
    )
    assert "`--compile neuron`" in finding.hint
    plan_for(uncompiled("vllm-nxdi"))  # which compiles when it starts


def test_what_is_mounted_where_only_exported_models_are_served_is_warned_of() -> None:
    findings = plan_for(uncompiled(weights="mounted")).findings

    assert [one.severity for one in findings if one.code == "neuron-not-exported"] == ["warning"]


def test_an_exported_model_is_served_as_it_is() -> None:
    facts = uncompiled()
    settings = ModelFile(path="neuron_config.json", role="config", content=Inline(b"{}"))
    model = replace(facts.model, files=(*facts.model.files, settings))

    findings = plan_for(replace(facts, model=model)).findings

    assert "neuron-not-exported" not in {one.code for one in findings}


def test_a_server_of_exported_models_is_not_built_without_what_the_cache_lacks() -> None:
    facts = compile_facts()
    recipe = make_recipe(plan_for(facts), facts, SERVICES)
    forecast = CacheStatus(step="compile", tool="neuron", state="miss")
    planned = Planned(
        reference=DirectoryReference.at("m"),
        facts=facts,
        plan=plan_for(facts),
        planning=SERVICES,
        recipe=recipe,
        forecasts=(forecast,),
    )

    with pytest.raises(NotCached, match="hf-vllm-neuronx serves nothing but its result"):
        apply_miss_policy(planned, "skip-compile")


def rendered(variant: str) -> tuple[dict[str, str], list[str], dict[str, Any]]:
    config = NeuronFamily().render(plan_for(compile_facts(variant)), Artifacts(model=()))
    files = {file.path.rpartition("/")[2]: file.data for file in config.files}
    command = json.loads(files.get("command.json", b'{"env": {}, "argv": []}'))
    env = {**config.env, **command["env"]}
    return env, command["argv"], json.loads(files.get("neuron.json", b"{}"))


def test_the_hugging_face_image_serves_the_exported_model_of_the_compiled_shape() -> None:
    env, argv, told = rendered("hf-vllm-neuronx")

    assert argv[:5] == ["optimum-cli", "neuron", "serve", "--port", "8080"]
    words = dict(zip(argv[3::2], argv[4::2], strict=True))
    assert words["--model"] == "/tmp/packager-compiled/model"
    assert words["--served-model-name"] == "model"  # as without compiled files
    assert (words["--batch-size"], words["--sequence-length"]) == ("4", "1024")
    assert words["--tensor-parallel-size"] == "2"
    assert env["PACKAGER_COMPILED"] == "/opt/packager/compiled"
    assert env["NEURON_COMPILE_CACHE_URL"] == "/tmp/packager-compiled/cache"
    assert [*told["export"], "{traced}"] == step_for(compile_facts()).parameters["command"]


def test_nxdi_loads_the_traced_model_and_finds_the_graphs() -> None:
    env, argv, told = rendered("vllm-nxdi")

    assert "vllm.entrypoints.openai.api_server" in argv
    assert env["NEURON_COMPILED_ARTIFACTS"] == "/tmp/packager-compiled/model"
    assert env["NEURON_COMPILE_CACHE_URL"] == "/tmp/packager-compiled/cache"
    assert told["export"] == []


def test_lmi_copies_a_cache_that_it_cannot_write_to_itself() -> None:
    env, argv, _ = rendered("lmi-neuronx")

    assert env["NEURON_COMPILE_CACHE_URL"] == "/opt/packager/compiled"
    assert argv == []
