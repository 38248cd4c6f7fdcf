"""Default plans of released models on whole machines: no device idles without a reason."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.cli.plugins.tables import FAMILIES
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support import zoo
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, facts_of, model_of

MODELS = {
    "8b": lambda: model_of(LLAMA_3_8B),
    "70b": lambda: model_of(LLAMA_3_70B),
    "405b": lambda: model_of(zoo.LLAMA_3_1_405B),
    "mixtral": zoo.mixtral,
    "gpt-oss": zoo.gpt_oss,
    "deepseek": zoo.deepseek_v3,
}
GPUS = ("ml.p5.48xlarge", "ml.g5.12xlarge", "ml.g6e.48xlarge")


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
            PlannerServices(family=FAMILIES.find(family).make(), accelerator_of=accelerator_of),
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
def test_every_layout_is_rendered_as_the_engine_has_it(
    name: str, instance: str, family: str
) -> None:
    plan = default_plan(name, instance, family)
    if isinstance(plan, PlanRejected):
        return
    describes = FAMILIES.find(family).make()

    assert errors_in(tuple(describes.check(plan))) == ()
    assert describes.render(plan, Artifacts(model=())).env
