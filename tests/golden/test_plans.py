"""Whole plans and the files rendered from them, one text per case, reviewed as code.

A rejected plan is pinned by its errors, a plan by its decisions, its findings and every
byte that is rendered from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from packager.cli.plugins.tables import FAMILIES
from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import Finding, errors_in
from packager.core.plan import Plan
from packager.core.recipe import Recipe
from packager.core.serving import ServingConfig
from packager.core.units import gib
from packager.pipeline.planning.health import health_check
from packager.pipeline.planning.recipe import make_recipe
from packager.pipeline.planning.services import PlannerServices
from tests.golden.cases import CASES, Case, family_of
from tests.support.zoo import medusa

EXPECTED = Path(__file__).parent / "expected"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan_and_files_are_as_reviewed(case: Case, update_golden: bool) -> None:
    text = "\n".join(outcome(case)) + "\n"
    path = EXPECTED / f"{case.id}.txt"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == text, (
        "review the difference; `pytest tests/golden --update-golden` accepts it"
    )


def test_no_expectation_is_left_behind() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == {case.id for case in CASES}


def test_every_family_is_among_the_cases_baked_and_mounted() -> None:
    seen = {(case.facts.container.family, case.asked.get("weights", "baked")) for case in CASES}

    families = set(FAMILIES)
    assert {family for family, weights in seen if weights == "baked"} == families
    assert {family for family, weights in seen if weights == "mounted"} >= families - {"sglang"}


def test_the_blogs_heads_of_version_2_are_refused_beside_awq_with_the_reason() -> None:
    (case,) = (case for case in CASES if case.id.endswith("seed-004"))
    heads = medusa(3, 4096, 32000, version=2)

    with pytest.raises(PlanRejected) as caught:
        _ = replace(case, draft=heads).plan

    (refusal,) = errors_in(caught.value.findings)
    assert refusal.code == "draft-unsupported"
    assert "looks for quantized heads" in refusal.message
    assert "v1 heads" in refusal.hint


def outcome(case: Case) -> Iterator[str]:
    """Write what a reviewer wants to see of a case."""
    facts = case.facts
    yield from facts_lines(facts)
    try:
        plan = case.plan
    except PlanRejected as error:
        yield f"rejected: {error.message}"
        yield from map(finding_line, error.findings)
        return
    yield from plan_lines(plan)
    yield from map(finding_line, plan.findings)
    yield from recipe_lines(
        make_recipe(plan, facts, PlannerServices(family=family_of(plan.container.family)))
    )
    config = family_of(plan.container.family).render(plan, Artifacts(model=()))
    yield from config_lines(config)
    health = health_check(plan, config.port)
    if health is not None:
        yield f"health: {health.path}, {health.start_period_s} s to start"


def facts_lines(facts: Facts) -> Iterator[str]:
    asked = facts.request.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    container = facts.container
    yield f"request: {json.dumps(asked, sort_keys=True)}"
    yield (
        f"container: {' '.join(filter(None, (container.family, container.variant)))}, "
        f"{container.engine} {container.engine_version}, {container.version or 'no version'}"
    )


def plan_lines(plan: Plan) -> Iterator[str]:
    profile, budget, shape = plan.profile, plan.budget, plan.shape
    yield f"model: {plan.served_name}, {profile.architecture}, {profile.parameters:,} parameters"
    yield f"instance: {plan.instance.name}, {plan.container.family} on {plan.instance.kind}"
    yield (
        f"shape: {shape.max_batch} x {shape.max_total_tokens} tokens, "
        f"{shape.max_input_tokens} of them prompt"
    )
    yield f"tp: {plan.tp_degree}, pp: {plan.pp_degree}, replicas: {plan.replicas}"
    yield f"precision: {plan.precision}, computed in {plan.dtype}, cache {plan.kv_dtype}"
    if plan.quantization is not None:
        chosen = plan.quantization
        yield f"quantized: {chosen.method} {chosen.scheme}, {chosen.checkpoint_format or 'at load'}"
    if plan.draft is not None:
        yield f"draft: {plan.draft.kind}, {plan.draft.speculative_tokens} tokens"
    left = budget.tokens_left(plan.shape.max_total_tokens)
    yield (
        f"memory: weights {gib(budget.weights_bytes)}, cache {gib(budget.kv_bytes)}, "
        f"activations {gib(budget.activations_bytes)}, engine {gib(budget.overhead_bytes)}, "
        f"draft {gib(budget.draft_weights_bytes + budget.draft_kv_bytes)}; "
        f"{gib(budget.usable_bytes)} usable, {left:,} tokens of cache would fit"
    )


def finding_line(finding: Finding) -> str:
    hint = f" [{finding.hint}]" if finding.hint else ""
    return f"{finding.severity} {finding.code}: {finding.message}{hint}"


def recipe_lines(recipe: Recipe) -> Iterator[str]:
    yield from (f"step: {step.name} with {step.tool}" for step in recipe.steps)


def config_lines(config: ServingConfig) -> Iterator[str]:
    yield f"directories: model {config.model_dir}, draft {config.draft_dir}"
    yield f"entrypoint: {' '.join(config.entrypoint) or '(of the base)'}"
    yield from (f"env: {name}={value}" for name, value in config.env.items())
    for file in config.files:
        if file.path.endswith(".py"):
            yield f"file: {file.path} (as shipped)"
            continue
        yield f"file: {file.path}"
        yield from (f"    {line}" for line in file.data.decode("utf-8").splitlines())
