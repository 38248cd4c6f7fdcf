"""Conflicts between techniques, asked of the shipped rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.compatibility import rules
from packager.catalog.instances import find_instance
from packager.core.catalog import SITUATION_KEYS, Rule
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.techniques import Draft, DraftKind, Quantization
from packager.estimate.sizing.precision import check_kv_dtype
from packager.pipeline.planning.stacking import check_stack, situation_of
from tests.support.cases import as_type, cases_of, read_tables
from tests.support.headers import LLAMA_3_8B, awq_model_of, model_of, plan_of

cases = cases_of(__file__)
TABLES = read_tables(__file__)


def plan_for(instance: str, **changes: Any) -> Plan:
    return replace(plan_of(model_of(LLAMA_3_8B), instance), **changes)


def with_container(plan: Plan, **changes: str) -> Plan:
    return replace(plan, container=replace(plan.container, **changes))


def quantized(method: str, scheme: str) -> Quantization:
    return Quantization(
        method=method, scheme=scheme, bits=4, checkpoint_format="compressed-tensors"
    )


def drafted(kind: DraftKind, version: str = "") -> Draft:
    return Draft(kind=kind, reference="some/draft", speculative_tokens=3, version=version)


def errors(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.code for finding in findings if finding.severity == "error"}


@cases("an_fp8_cache_on_a_p4d_depends_on_what_the_models_layers_keep")
def test_an_fp8_cache_on_a_p4d_depends_on_what_the_models_layers_keep(
    of_model: dict[str, Any], found: set[str]
) -> None:
    plan = plan_for("ml.p4d.24xlarge", kv_dtype="fp8")
    plan = replace(plan, profile=replace(plan.profile, **of_model))

    assert errors(check_stack(plan, rules())) == found


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        (None, "leave kv_dtype out, or"),
        (quantized("fp8", "W8A8-FP8"), "leave kv_dtype out, or"),
        (
            replace(quantized("fp8", "W8A8-FP8"), options=(("kv", ""),)),
            "leave `kv` of --quantize and kv_dtype out, or",
        ),
        (quantized("kv", ""), "leave `kv` of --quantize and kv_dtype out, or"),
    ],
)
def test_a_hint_names_what_made_the_cache_fp8(
    quantization: Quantization | None, words: str
) -> None:
    plan = plan_for("ml.p4d.24xlarge", kv_dtype="fp8", quantization=quantization)
    plan = replace(plan, profile=replace(plan.profile, head_dim=96))
    (rule,) = [one for one in check_stack(plan, rules()) if one.code == "fp8-kv-head-size"]
    (device,) = check_kv_dtype("fp8", find_instance("ml.g4dn.12xlarge"), quantization)

    assert rule.hint.startswith(words)
    assert device.hint.startswith(words)


def test_every_conflict_is_reported_at_once_with_a_way_out() -> None:
    plan = with_container(
        plan_for(
            "ml.g4dn.12xlarge",
            quantization=quantized("fp8", "W8A8-FP8"),
            draft=drafted("medusa", "v2"),
        ),
        family="sglang",
        engine="sglang",
        engine_version="0.5.4",
    )

    found = check_stack(plan, rules(), compiler="neuron")

    assert set(TABLES["problems"]) <= errors(found)
    assert all(finding.hint for finding in found if finding.severity == "error")
    assert [finding.severity for finding in found] == sorted(
        (finding.severity for finding in found), key=("error", "warning", "note").index
    )


def test_a_quantized_checkpoint_cannot_be_quantized_again() -> None:
    plan = plan_of(awq_model_of(LLAMA_3_8B), "ml.g5.12xlarge")
    again = replace(plan, quantization=quantized("fp8", "W8A16-FP8"))

    assert "already-quantized" not in errors(check_stack(plan, rules()))
    assert "already-quantized" in errors(check_stack(again, rules()))


def test_a_situation_speaks_only_words_that_rules_know() -> None:
    plan = plan_for("ml.g5.12xlarge", draft=drafted("eagle3"))

    assert set(situation_of(plan)) <= set(SITUATION_KEYS)


def test_a_compiler_that_was_not_chosen_is_none() -> None:
    plan = plan_for("ml.g5.12xlarge")

    assert situation_of(plan, compiler="auto")["compile"] == ""
    assert situation_of(plan, compiler="vllm_cache")["compile"] == "vllm_cache"


def test_a_rule_tells_its_link() -> None:
    rule = as_type(TABLES["some_rule"], Rule)

    found = check_stack(plan_for("ml.g5.12xlarge"), (rule,))
    assert found == as_type(TABLES["finding"], tuple[Finding, ...])
