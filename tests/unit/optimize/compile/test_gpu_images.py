"""Compile caches of images whose own program starts the server: SageMaker's vLLM and LMI."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.containers import find_container
from packager.cli.plugins.tables import FAMILIES
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.image import BaseImage, Platform
from packager.core.plan import Plan
from packager.core.recipe import Step
from packager.core.tool import ToolFacts
from packager.engines.compile_caches import find_caches
from packager.optimize.compile.vllm_cache import VllmCacheCompiler
from packager.optimize.keys.documents import VllmCompileKey
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe
from packager.pipeline.planning.services import PlannerServices
from tests.support.cases import read_tables
from tests.support.headers import TINY, facts_of, model_of, with_traits

TABLES = read_tables(__file__)

COMPILER = VllmCacheCompiler()
TOOL = ToolFacts(name="vllm-cache", worker="ab" * 32, requirements="cd" * 32, packages={})
SAGEMAKER = ["/usr/local/bin/sagemaker_entrypoint.sh"]
LMI = ["/usr/local/bin/dockerd-entrypoint.sh"]
OWN = {"vllm": SAGEMAKER, "lmi": LMI}
PREPARE = ["python3", "/opt/packager/serving/with_compiled.py"]
IMAGES = [("vllm", "0.27.1"), ("vllm", "0.26.0"), ("lmi", "28")]


def compile_facts(family: str, version: str, **asked: Any) -> Facts:
    facts = facts_of(
        model_of({**TINY}, name="model"),
        "ml.g5.xlarge",
        **{"family": family, "compile": "vllm_cache", **asked},
    )
    container = with_traits(find_container(family, "nvidia", version))
    base = BaseImage(
        reference="base",
        digest="sha256:" + "1" * 64,
        platform=Platform(),
        layers=(),
        config={"config": {"Entrypoint": OWN[family], "Env": ["PATH=/opt/venv/bin"]}},
    )
    return replace(facts, container=container, base=base, tools={"vllm-cache": TOOL})


def services_for(facts: Facts) -> PlannerServices:
    family = FAMILIES.find(facts.container.family).make()
    return PlannerServices(family=family, compilers={"vllm_cache": COMPILER})


def plan_for(facts: Facts) -> Plan:
    return make_plan(facts, services_for(facts))


def step_for(facts: Facts) -> Step:
    steps = make_recipe(plan_for(facts), facts, services_for(facts)).steps
    return next(step for step in steps if step.gives == "compiled")


def key_for(facts: Facts) -> VllmCompileKey:
    key = step_for(facts).key
    assert isinstance(key, VllmCompileKey)
    return key


@pytest.mark.parametrize(("family", "version"), IMAGES)
def test_the_images_own_entrypoint_follows_ours(family: str, version: str) -> None:
    plan = plan_for(compile_facts(family, version))
    config = FAMILIES.find(family).make().render(plan, Artifacts(model=()))

    assert [*config.entrypoint] == [*PREPARE, *OWN[family]]
    assert config.cmd == (("serve",) if family == "lmi" else ())
    assert {file.path.rpartition("/")[2] for file in config.files} >= set(TABLES["rendered"])
    assert TABLES["env"].items() <= config.env.items()
    assert config.env["TRITON_CACHE_DIR"] == "/tmp/packager-compiled/triton"
    assert config.env["FLASHINFER_WORKSPACE_BASE"] == "/tmp/packager-compiled/flashinfer"


@pytest.mark.parametrize(("family", "version"), IMAGES)
def test_without_compiled_files_it_starts_as_its_base_does(family: str, version: str) -> None:
    plan = plan_for(compile_facts(family, version, compile="off"))
    config = FAMILIES.find(family).make().render(plan, Artifacts(model=()))

    assert (config.entrypoint, config.cmd) == ((), ())
    assert "VLLM_CACHE_ROOT" not in config.env


def test_the_step_starts_the_finished_image_and_asks_where_each_answers() -> None:
    sagemaker = step_for(compile_facts("vllm", "0.27.1"))
    lmi = step_for(compile_facts("lmi", "28"))

    assert sagemaker.parameters["command"] == [*PREPARE, *SAGEMAKER]
    assert lmi.parameters["command"] == [*PREPARE, *LMI, "serve"]
    assert [path for path, _ in sagemaker.parameters["requests"]] == ["/v1/completions"] * 2
    assert [path for path, _ in lmi.parameters["requests"]] == ["/invocations"] * 2
    assert lmi.parameters["verify_env"] == {"VLLM_FORCE_AOT_LOAD": "1"}
    assert (lmi.gpus, lmi.gpu) == (1, "A10G")


def test_options_are_in_the_key_by_their_names_and_names_of_models_are_not() -> None:
    one = key_for(compile_facts("vllm", "0.27.1", served_name="one"))
    other = key_for(compile_facts("vllm", "0.27.1", served_name="other"))
    shorter = key_for(compile_facts("vllm", "0.27.1", max_total_tokens=256))

    assert one == other
    assert one.invocation.engine_args["max-model-len"] == "512"
    assert shorter.invocation.engine_args["max-model-len"] == "256"
    assert not any(name.startswith("SM_VLLM_") for name in one.invocation.env)
    lmi = key_for(compile_facts("lmi", "28"))
    assert not any(name.startswith("OPTION_") for name in lmi.invocation.env)
    assert lmi.invocation.engine_args["max-model-len"] == "512"


def test_the_program_that_puts_files_in_place_is_in_the_key() -> None:
    facts = compile_facts("lmi", "28")
    plan = plan_for(facts)
    serving = FAMILIES.find("lmi").make().render(plan, Artifacts(model=()))
    files = tuple(
        replace(file, data=file.data + b"#") if file.path.endswith("with_compiled.py") else file
        for file in serving.files
    )
    changed = COMPILER.step(facts, plan, replace(serving, files=files), {}).key

    assert changed != COMPILER.step(facts, plan, serving, {}).key


@pytest.mark.parametrize(("family", "version"), [("vllm", "0.25.1"), ("lmi", "27"), ("lmi", "14")])
def test_versions_whose_source_nobody_read_are_refused(family: str, version: str) -> None:
    assert find_caches(compile_facts(family, version).container) is None
    with pytest.raises(PlanRejected) as refused:
        plan_for(compile_facts(family, version))
    assert "compile-unsupported" in [one.code for one in refused.value.findings]


def test_a_base_that_starts_something_else_is_refused() -> None:
    facts = compile_facts("lmi", "28")
    assert facts.base is not None
    other = replace(facts.base, config={"config": {"Entrypoint": ["/my/start.sh"]}})

    with pytest.raises(PlanRejected) as refused:
        plan_for(replace(facts, base=other))
    [found] = [one for one in refused.value.findings if one.code == "compile-unsupported"]
    assert "the base image starts '/my/start.sh'" in found.message
