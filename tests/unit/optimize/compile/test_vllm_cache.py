"""Baking vLLM's compile caches: who may, what runs, and what makes a cache another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.key import key_of
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.image import BaseImage
from packager.core.plan import Plan
from packager.core.ports import Quantizer
from packager.core.recipe import Step
from packager.core.techniques import Quantization, Scheme
from packager.core.tool import ToolFacts
from packager.engines.vllm.family import VllmFamily
from packager.optimize.compile.vllm_cache import VllmCacheCompiler
from packager.optimize.keys.documents import VllmCompileKey
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe
from packager.pipeline.planning.services import PlannerServices
from tests.support.cache_opening import open_local
from tests.support.cases import as_type, cases, read_tables
from tests.support.headers import LOCAL_CPU, TINY, awq_model_of, facts_of, model_of

TABLES = read_tables(__file__)

COMPILER = VllmCacheCompiler()
COMPILERS = {"vllm_cache": COMPILER}
SERVICES = PlannerServices(family=VllmFamily(), compilers=COMPILERS)
CPU = replace(LOCAL_CPU, machine="x86_64", isa=("avx2", "avx512f", "fma"))
TOOL = ToolFacts(name="vllm-cache", worker="ab" * 32, requirements="cd" * 32, packages={})
BASE = as_type(TABLES["base"], BaseImage)


def compile_facts(
    config: dict[str, Any] | None = None, *, name: str = "model", dtype: str = "BF16", **asked: Any
) -> Facts:
    model = model_of({**TINY, **(config or {})}, name=name, dtype=dtype)
    facts = facts_of(model, CPU, **{"compile": "vllm_cache", **asked})
    return replace(facts, base=BASE, tools={"vllm-cache": TOOL})


def plan_for(facts: Facts) -> Plan:
    return make_plan(facts, SERVICES)


def step_for(facts: Facts) -> Step:
    recipe = make_recipe(plan_for(facts), facts, SERVICES)
    return next(step for step in recipe.steps if step.gives == "compiled")


def key_for(facts: Facts) -> VllmCompileKey:
    key = step_for(facts).key
    assert isinstance(key, VllmCompileKey)
    return key


@pytest.fixture
def filled(tmp_path: Path) -> ArtifactCache:
    """A cache with what was compiled for `compile_facts()`."""
    cache = open_local(tmp_path / "cache")

    def build(place: Path) -> None:
        (place / "manifest.json").write_text("{}")

    cache.get_or_build(key_for(compile_facts()), build, tmp_path / "into")
    return cache


def other_container(facts: Facts, **changes: Any) -> Facts:
    return replace(facts, container=replace(facts.container, **changes))


def other_machine(facts: Facts, **changes: Any) -> Facts:
    return replace(facts, instance=replace(facts.instance, **changes))


@cases("a_cache_for_other_inputs", asked={}, config={}, dtype="BF16", machine={}, isa=CPU.isa)
def test_a_cache_for_other_inputs_misses_by_its_field(
    filled: ArtifactCache,
    asked: dict[str, Any],
    config: dict[str, Any],
    dtype: str,
    machine: dict[str, Any],
    isa: tuple[str, ...],
    pointer: str,
) -> None:
    assert_missed(
        filled,
        other_machine(compile_facts(config, dtype=dtype, **asked), isa=isa, **machine),
        pointer,
    )


def test_a_cache_of_another_toolchain_misses_by_its_field(filled: ArtifactCache) -> None:
    newer = other_container(compile_facts(), engine_version="0.33.0")
    rebased = replace(compile_facts(), base=replace(BASE, digest="sha256:" + "2" * 64))
    tool = {"vllm-cache": replace(TOOL, worker="ef" * 32)}

    assert_missed(filled, newer, "/toolchain/packages")
    assert_missed(filled, rebased, "/toolchain/image")
    assert_missed(filled, replace(compile_facts(), tools=tool), "/toolchain/worker")


def assert_missed(filled: ArtifactCache, facts: Facts, pointer: str) -> None:
    wanted = key_for(facts)

    assert filled.find(wanted) is None
    nearest = filled.explain(wanted).nearest[0]
    assert any(one.pointer.startswith(pointer) for one in nearest.differences)


def test_equal_inputs_are_a_hit(filled: ArtifactCache) -> None:
    assert filled.find(key_for(compile_facts())) is not None


def test_fine_tunes_under_other_names_share_a_cache(filled: ArtifactCache) -> None:
    tuned = compile_facts(name="tuned", served_name="another")
    files = tuple(replace(file, sha256="9" * 64) for file in tuned.model.files)
    tuned = replace(tuned, model=replace(tuned.model, files=files))

    assert filled.find(key_for(tuned)) is not None


def test_a_quantized_model_does_not_share_it() -> None:
    packed = replace(compile_facts(), model=awq_model_of(TINY))
    plain = replace(packed, model=model_of({**TINY, "torch_dtype": "float16"}, dtype="F16"))

    assert key_for(packed).graph.architecture != key_for(plain).graph.architecture


def test_the_step_runs_the_finished_configuration_where_the_image_has_it() -> None:
    step = step_for(compile_facts())

    assert step.image == BASE
    assert step.parameters["command"] == ["python3", "/opt/packager/serving/launch.py"]
    assert step.parameters["directory"] == "/home"
    assert step.places == TABLES["places"]
    assert {file.path for file in step.inputs["serving"].files} == set(TABLES["rendered"])
    env = step.parameters["env"]
    assert env["PATH"] == "/opt/vllm/bin"
    assert env["TORCHINDUCTOR_CACHE_DIR"] == "/tmp/packager-compiled/inductor"
    assert step.parameters["target"] == TABLES["target"]


def test_names_ports_and_hosts_are_not_in_the_key() -> None:
    options = key_for(compile_facts(served_name="another")).invocation.engine_args

    assert not {"host", "port", "served-model-name", "model"} & {*options}
    assert options["max-model-len"] == "512"


def test_what_is_compiled_is_what_the_steps_before_it_leave() -> None:
    facts = compile_facts()
    quantizing = Step(name="quantize", tool="t", gives="model")

    class Quantizing(Quantizer):
        name = tool = "t"
        methods: Mapping[str, tuple[Scheme, ...]] = MappingProxyType({})

        def check(self, *_: Any) -> tuple[()]:
            return ()

        def step(self, *_: Any) -> Step:
            return quantizing

    awq = Quantization(method="awq", scheme="W4A16", bits=4, group_size=128)
    plan = replace(plan_for(facts), quantization=awq)
    steps = make_recipe(plan, facts, replace(SERVICES, quantizer=Quantizing())).steps

    assert [step.name for step in steps] == ["quantize", "compile"]
    assert steps[1].inputs["model"].result_of == "quantize"


def test_there_is_no_key_while_the_base_is_not_known() -> None:
    assert step_for(replace(compile_facts(), base=None)).key is None


def test_the_compiled_image_compiles_and_the_other_does_not() -> None:
    facts = compile_facts()
    compiled = _rendered(facts)
    eager = _rendered(replace(facts, request=facts.request.model_copy(update={"compile": "off"})))

    assert "--enforce-eager" not in compiled["argv"]
    assert [word for word in eager["argv"] if word != "--enforce-eager"] == compiled["argv"]
    assert compiled["env"]["PACKAGER_COMPILED"] == "/opt/packager/compiled"
    assert compiled["env"]["VLLM_USE_AOT_COMPILE"] == "0"
    assert "TORCH_COMPILE_DISABLE" not in compiled["env"]
    assert "PACKAGER_COMPILED" not in eager["env"]


def _rendered(facts: Facts) -> Any:
    files = VllmFamily().render(plan_for(facts), Artifacts(model=())).files
    return json.loads(next(file.data for file in files if file.path.endswith("command.json")))


def rejection(facts: Facts) -> list[str]:
    with pytest.raises(PlanRejected) as error:
        plan_for(facts)
    return [finding.code for finding in error.value.findings]


def test_code_for_a_processor_elsewhere_is_refused_and_passed_over_by_auto() -> None:
    elsewhere = other_machine(compile_facts(), isa=())
    assert "compile-elsewhere" in rejection(elsewhere)

    asked = elsewhere.request.model_copy(update={"compile": "auto"})
    plan = plan_for(replace(elsewhere, request=asked))
    assert plan.compiler == ""
    assert "compile-none" in [finding.code for finding in plan.findings]


def test_auto_compiles_where_it_can() -> None:
    assert plan_for(compile_facts(compile="auto")).compiler == "vllm_cache"
    assert plan_for(compile_facts(compile="off")).compiler == ""


def test_containers_whose_caches_nobody_knows_are_refused() -> None:
    assert "compile-unsupported" in rejection(
        other_container(compile_facts(), engine_version="0.20.1")
    )
    assert "compile-unsupported" in rejection(
        replace(compile_facts(), base=replace(BASE, digest=""))
    )


def test_an_engine_that_is_told_to_compile_nothing_is_refused() -> None:
    assert "compile-eager" in rejection(compile_facts(engine_options={"enforce_eager": "true"}))


def test_a_server_on_several_machines_is_not_compiled_on_one() -> None:
    facts = compile_facts()
    alone = plan_for(facts)
    assert list(COMPILER.check(facts, alone)) == []
    (found,) = COMPILER.check(facts, replace(alone, nodes=2))
    assert (found.severity, found.code) == ("error", "compile-several-nodes")


def test_another_name_is_no_compiler() -> None:
    assert "compile-unknown" in rejection(compile_facts(compile="nobody"))


def test_keys_of_equal_facts_are_equal() -> None:
    assert key_of(key_for(compile_facts())) == key_of(key_for(compile_facts()))


def test_two_starts_on_this_processor_are_timed_and_offered_nowhere_else() -> None:
    needs = step_for(compile_facts()).needs

    assert [(work.stage, work.seconds) for work in needs.work] == [
        ("compiling", 54.0),
        ("verifying", 25.0),
    ]
    assert needs.only_here


def test_copies_that_share_experts_are_compiled_together_and_named_in_the_key() -> None:
    facts = compile_facts()
    shared = replace(
        plan_for(facts), tp_degree=2, dp_degree=4, dp_attention=True, expert_parallel=True
    )
    serving = VllmFamily().render(shared, Artifacts(model=()))

    key = COMPILER.step(facts, shared, serving, {}).key
    assert isinstance(key, VllmCompileKey)
    cut = key.parallelism
    assert (cut.tp, cut.ep, cut.attention_dp, cut.world) == (2, 8, 4, 8)
    assert key.invocation.engine_args["data-parallel-size"] == "4"


def test_a_server_with_copies_compiles_on_as_many_gpus_as_it_serves_with() -> None:
    facts = compile_facts()
    gpus = replace(facts.instance, kind="nvidia", devices=8, device_name="H100")
    copies = replace(plan_for(facts), tp_degree=2, dp_degree=4)
    serving = VllmFamily().render(copies, Artifacts(model=()))

    on_gpus = replace(copies, instance=gpus)
    assert COMPILER.step(facts, on_gpus, serving, {}).gpus == 8
