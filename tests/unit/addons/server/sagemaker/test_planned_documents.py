"""Requests that documents become, planned for released models of many architectures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from packager.addons.server.sagemaker.optimization import make_job
from packager.addons.server.sagemaker.settings import JobSettings
from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.core.model import ModelFiles
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support import zoo
from tests.support.cases import cases, read_tables
from tests.support.doubles.containers import FAMILIES, with_traits
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, facts_of, model_of
from tests.support.places import ROOT
from tests.support.sagemaker_bodies import AWQ, MODELS

RELEASED: dict[str, Callable[[], ModelFiles]] = {
    "llama-8b": lambda: model_of(LLAMA_3_8B),
    "llama-70b": lambda: model_of(LLAMA_3_70B),
    "mixtral": zoo.mixtral,
    "qwen3-moe": zoo.qwen3_moe,
    "gpt-oss": zoo.gpt_oss,
    "command-r": lambda: zoo.config_only(zoo.COMMAND_R),
}


def _asked(body: dict[str, Any]) -> dict[str, Any]:
    job = make_job(body, JobSettings(), find_model=MODELS.get)
    read: dict[str, Any] = json.loads(job.files["request.json"])
    return {name: value for name, value in read.items() if name not in ("model", "region")}


@cases("planned")
def test_a_document_is_planned(
    model: str, changes: dict[str, Any], family: str, degree: int | None, method: str | None
) -> None:
    asked = _asked({**AWQ, **changes})
    name, version = asked.pop("instance"), asked.get("container_version")
    asked.pop("compile", None)  # tests of compilers have its plans
    facts = facts_of(RELEASED[model](), name, **asked)
    container = find_container(asked.get("family"), facts.instance.kind, version, None, name)
    facts = replace(facts, container=with_traits(container))
    plan = make_plan(
        facts, PlannerServices(family=FAMILIES[container.family], accelerator_of=accelerator_of)
    )

    assert plan.container.family == family
    assert degree in (None, plan.tp_degree)
    assert (plan.quantization.method if plan.quantization else None) == method


def test_mixtral_with_medusa_heads_and_awq_is_asked_for_as_it_was_described() -> None:
    body = json.loads((ROOT / "examples/optimize/medusa-awq.json").read_text(encoding="utf-8"))

    assert _asked(body) == read_tables(__file__)["medusa"]
