"""Default plans of released models on whole machines: no device idles without a reason."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.core.artifact import Artifacts
from packager.core.findings import errors_in
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.errors import PlanRejected
from packager.planning.planner import make_plan
from packager.plugins import FAMILIES, load
from tests.planning import zoo
from tests.planning.headers import LLAMA_3_8B, LLAMA_3_70B, facts_of, model_of

MODELS = {
    "8b": lambda: model_of(LLAMA_3_8B),
    "70b": lambda: model_of(LLAMA_3_70B),
    "405b": lambda: model_of(zoo.LLAMA_3_1_405B),
    "mixtral": zoo.mixtral,
    "gpt-oss": zoo.gpt_oss,
    "deepseek": zoo.deepseek_v3,
}
GPUS = ("ml.p5.48xlarge", "ml.g5.12xlarge", "ml.g6e.48xlarge")
# What no family holds there on one machine, nor on four with a fast network.
TOO_LARGE = {
    ("405b", "ml.g5.12xlarge"),
    ("405b", "ml.inf2.48xlarge"),
    ("deepseek", "ml.g5.12xlarge"),
    ("70b", "ml.g5.12xlarge"),
    ("mixtral", "ml.g5.12xlarge"),
}


@cache
def model(name: str) -> ModelFiles:
    return MODELS[name]()


@cache
def default_plan(name: str, instance: str, family: str) -> Plan | PlanRejected:
    facts = facts_of(model(name), instance, family=family)
    found = facts.instance
    container = find_container(family, found.kind, instance_name=found.name)
    try:
        return make_plan(
            replace(facts, container=container),
            load(FAMILIES, family)(),
            accelerator_of=accelerator_of,
        )
    except PlanRejected as refused:
        return refused


CASES = [
    *((name, instance, "vllm") for name in MODELS for instance in GPUS),
    *(
        (name, "ml.p5.48xlarge", family)
        for name in ("8b", "mixtral")
        for family in ("sglang", "lmi", "tgi")
    ),
    ("8b", "ml.inf2.48xlarge", "neuron"),
    ("70b", "ml.inf2.48xlarge", "neuron"),
]


@pytest.mark.parametrize(("name", "instance", "family"), CASES)
def test_no_device_idles_without_a_reason(name: str, instance: str, family: str) -> None:
    plan = default_plan(name, instance, family)
    if isinstance(plan, PlanRejected):
        assert [one.code for one in errors_in(plan.findings)] == ["does-not-fit"]
        assert (name, instance) in TOO_LARGE
        return

    assert (name, instance) not in TOO_LARGE
    idle = find_instance(instance).devices * plan.nodes - plan.split.devices
    said = [one.message for one in plan.findings if one.code == "devices-idle"]
    assert bool(said) == (idle > 0)
    assert all(f"{idle} stay idle: " in message for message in said)


@pytest.mark.parametrize(("name", "instance", "family"), CASES)
def test_every_layout_is_rendered_in_options_that_the_engine_has(
    name: str, instance: str, family: str
) -> None:
    plan = default_plan(name, instance, family)
    if isinstance(plan, PlanRejected):
        return
    describes = load(FAMILIES, family)()

    assert errors_in(tuple(describes.check(plan))) == ()
    assert describes.render(plan, Artifacts(model=())).env
