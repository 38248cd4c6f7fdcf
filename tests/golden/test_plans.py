"""Whole plans and the files rendered from them, one text per case, reviewed as code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from packager.core.artifact import Artifacts
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.units import gib
from packager.errors import PlanRejected
from tests.planning.headers import (
    FAMILIES,
    GEMMA_2_2B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LOCAL_CPU,
    TINY,
    awq_model_of,
    model_of,
    plan_of,
)

EXPECTED = Path(__file__).parent / "expected"

LLAMA_8B = model_of(LLAMA_3_8B, name="meta-llama/Meta-Llama-3-8B-Instruct")
LLAMA_70B = model_of(LLAMA_3_70B, name="meta-llama/Meta-Llama-3-70B-Instruct")
LLAMA_70B_AWQ = awq_model_of(LLAMA_3_70B, name="casperhansen/llama-3-70b-instruct-awq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    id: str
    model: ModelFiles
    instance: str | Instance
    family: str | None = None
    asked: dict[str, int | str] = field(default_factory=dict)


CASES = (
    Case(id="tiny-local-vllm", model=model_of(TINY), instance=LOCAL_CPU),
    Case(
        id="tiny-local-vllm-asked",
        model=model_of(TINY),
        instance=LOCAL_CPU,
        asked={"served_name": "chat", "max_batch": 4, "max_total_tokens": 256},
    ),
    Case(id="tiny-g5.xlarge-lmi", model=model_of(TINY), instance="ml.g5.xlarge", family="lmi"),
    Case(id="tiny-g4dn.xlarge-vllm", model=model_of(TINY), instance="ml.g4dn.xlarge"),
    Case(id="gemma-2-2b-g4dn.xlarge-vllm", model=model_of(GEMMA_2_2B), instance="ml.g4dn.xlarge"),
    Case(id="llama-3-8b-g5.xlarge-vllm", model=LLAMA_8B, instance="ml.g5.xlarge"),
    Case(id="llama-3-8b-g5.12xlarge-lmi", model=LLAMA_8B, instance="ml.g5.12xlarge", family="lmi"),
    Case(id="llama-3-8b-p4d-lmi", model=LLAMA_8B, instance="ml.p4d.24xlarge", family="lmi"),
    Case(id="llama-3-8b-c7i.8xlarge-vllm", model=LLAMA_8B, instance="ml.c7i.8xlarge"),
    Case(
        id="llama-3-8b-g5.xlarge-contradiction",
        model=LLAMA_8B,
        instance="ml.g5.xlarge",
        asked={"max_input_tokens": 9000, "max_total_tokens": 8500, "tp_degree": 2},
    ),
    Case(
        id="llama-3-70b-g5.12xlarge-lmi", model=LLAMA_70B, instance="ml.g5.12xlarge", family="lmi"
    ),
    Case(id="llama-3-70b-p4d-vllm", model=LLAMA_70B, instance="ml.p4d.24xlarge"),
    Case(
        id="llama-3-70b-awq-g5.12xlarge-lmi",
        model=LLAMA_70B_AWQ,
        instance="ml.g5.12xlarge",
        family="lmi",
    ),
)


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


def outcome(case: Case) -> Iterator[str]:
    """Write what a reviewer wants to see of a case."""
    try:
        plan = plan_of(case.model, case.instance, family=case.family, **case.asked)
    except PlanRejected as error:
        yield f"rejected: {error.message}"
        yield from map(finding_line, error.findings)
        return
    yield from plan_lines(plan)
    yield from map(finding_line, plan.findings)
    config = FAMILIES[plan.container.family].render(plan, Artifacts(model=()))
    yield from config_lines(config)


def plan_lines(plan: Plan) -> Iterator[str]:
    profile, budget, shape = plan.profile, plan.budget, plan.shape
    yield f"model: {plan.served_name}, {profile.architecture}, {profile.parameters:,} parameters"
    yield f"instance: {plan.instance.name}, {plan.container.family} on {plan.instance.kind}"
    yield (
        f"shape: {shape.max_batch} x {shape.max_total_tokens} tokens, "
        f"{shape.max_input_tokens} of them prompt"
    )
    yield f"tp: {plan.tp_degree}, replicas: {plan.replicas}"
    yield f"precision: {plan.precision}, computed in {plan.dtype}"
    yield (
        f"memory: weights {gib(budget.weights_bytes)}, cache {gib(budget.kv_bytes)}, "
        f"activations {gib(budget.activations_bytes)}, engine {gib(budget.overhead_bytes)}; "
        f"{gib(budget.usable_bytes)} usable, {budget.kv_tokens_left:,} tokens of cache would fit"
    )


def finding_line(finding: Finding) -> str:
    hint = f" [{finding.hint}]" if finding.hint else ""
    return f"{finding.severity} {finding.code}: {finding.message}{hint}"


def config_lines(config: ServingConfig) -> Iterator[str]:
    yield f"entrypoint: {' '.join(config.entrypoint) or '(of the base)'}"
    yield from (f"env: {name}={value}" for name, value in config.env.items())
    for file in config.files:
        if file.path.endswith(".py"):
            yield f"file: {file.path} (as shipped)"
            continue
        yield f"file: {file.path}"
        yield from (f"    {line}" for line in file.data.decode("utf-8").splitlines())
