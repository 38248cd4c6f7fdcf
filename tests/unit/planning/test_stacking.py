"""Conflicts between techniques, asked of the shipped rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.compatibility import rules
from packager.core.catalog import SITUATION_KEYS, Rule
from packager.core.plan import Plan
from packager.core.techniques import Draft, DraftKind, Quantization
from packager.findings import Finding
from packager.planning.stacking import check_situation, check_stack, situation_of
from tests.support.case_tables import cases_of
from tests.support.headers import LLAMA_3_8B, awq_model_of, model_of, plan_of

cases = cases_of(__file__)

GPUS = ("p4d", "p4de", "p5", "g5", "g6")
NEURON = ("inf2", "trn1", "trn1n")


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


def test_a_plain_plan_goes_together() -> None:
    assert errors(check_stack(plan_for("ml.g5.12xlarge"), rules())) == set()


@pytest.mark.parametrize("instance", ["ml.p5.48xlarge", "ml.g6.12xlarge"])
def test_fp8_computes_in_fp8_where_the_device_can(instance: str) -> None:
    plan = plan_for(instance, quantization=quantized("fp8", "W8A8-FP8"))

    assert errors(check_stack(plan, rules())) == set()


@pytest.mark.parametrize("instance", ["ml.p4d.24xlarge", "ml.g5.12xlarge"])
def test_fp8_is_weights_only_before_ada(instance: str) -> None:
    computed = plan_for(instance, quantization=quantized("fp8", "W8A8-FP8"))
    stored = plan_for(instance, quantization=quantized("fp8", "W8A16-FP8"))

    assert "fp8-w8a8-no-kernel" in errors(check_stack(computed, rules()))
    assert errors(check_stack(stored, rules())) == set()


@cases("an_fp8_cache_on_a_p4d_depends_on_what_the_models_layers_keep")
def test_an_fp8_cache_on_a_p4d_depends_on_what_the_models_layers_keep(
    of_model: dict[str, Any], found: set[str]
) -> None:
    plan = plan_for("ml.p4d.24xlarge", kv_dtype="fp8")
    plan = replace(plan, profile=replace(plan.profile, **of_model))

    assert errors(check_stack(plan, rules())) == found


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

    assert {
        "fp8-no-kernel",
        "sglang-no-medusa",
        "sglang-no-compile",
        "neuron-compiler-elsewhere",
    } <= errors(found)
    assert all(finding.hint for finding in found if finding.severity == "error")
    assert [finding.severity for finding in found] == sorted(
        (finding.severity for finding in found), key=("error", "warning", "note").index
    )


def test_smoothquant_needs_kernels_for_int8() -> None:
    plan = plan_for("ml.p6-b200.48xlarge", quantization=quantized("smoothquant", "W8A8-INT8"))
    older = replace(plan, instance=plan_for("ml.g5.12xlarge").instance)

    assert "int8-not-on-blackwell" in errors(check_stack(plan, rules()))
    assert errors(check_stack(older, rules())) == set()


def test_a_quantized_checkpoint_cannot_be_quantized_again() -> None:
    plan = plan_of(awq_model_of(LLAMA_3_8B), "ml.g5.12xlarge")
    again = replace(plan, quantization=quantized("fp8", "W8A16-FP8"))

    assert "already-quantized" not in errors(check_stack(plan, rules()))
    assert "already-quantized" in errors(check_stack(again, rules()))


@cases("only_first_version_medusa_heads_stand_on_packed_weights_in_tgi")
def test_only_first_version_medusa_heads_stand_on_packed_weights_in_tgi(
    method: str, version: str, codes: set[str]
) -> None:
    plan = plan_for("ml.g5.12xlarge", dtype="fp16", draft=drafted("medusa", version))
    if method:
        plan = replace(plan, quantization=quantized(method, "W4A16"))
    plan = with_container(plan, family="tgi", engine="tgi", engine_version="3.3.6")

    assert errors(check_stack(plan, rules())) == codes


@pytest.mark.parametrize(("version", "refused"), [("0.32.0", False), ("0.33.0", True)])
def test_medusa_ends_with_a_version_of_the_engine(version: str, refused: bool) -> None:
    plan = plan_for("ml.g5.12xlarge", draft=drafted("medusa", "v1"))
    plan = with_container(plan, engine_version=version)

    assert ("medusa-gone-from-vllm" in errors(check_stack(plan, rules()))) == refused


def test_a_situation_speaks_only_words_that_rules_know() -> None:
    plan = plan_for("ml.g5.12xlarge", draft=drafted("eagle3"))

    assert set(situation_of(plan)) <= set(SITUATION_KEYS)


def test_a_compiler_that_was_not_chosen_is_none() -> None:
    plan = plan_for("ml.g5.12xlarge")

    assert situation_of(plan, compiler="auto")["compile"] == ""
    assert situation_of(plan, compiler="vllm_cache")["compile"] == "vllm_cache"


def test_a_rule_tells_its_link() -> None:
    rule = Rule(
        id="some-rule",
        severity="warning",
        when={"instance_family": "g5", "draft": ""},
        reason="{instance} is slow",
        instead="use 'ml.p5.48xlarge'",
        link="https://example.org/why",
        source="a test",
        date="2026-11-20",
    )

    assert check_stack(plan_for("ml.g5.12xlarge"), (rule,)) == (
        Finding(
            "warning",
            "some-rule",
            "ml.g5.12xlarge is slow",
            "use 'ml.p5.48xlarge'; see https://example.org/why",
        ),
    )


def job(instance_family: str, **techniques: str) -> set[str]:
    """What AWS's own optimization jobs say to a combination."""
    situation: dict[str, object] = {
        "target": "sagemaker-job",
        "model": "mistralai/Mistral-7B-v0.1",
        "instance_family": instance_family,
        **dict.fromkeys(("quantize", "compile", "draft", "load_format"), ""),
        **techniques,
    }
    return errors(check_situation(situation, rules()))


SHARD = {"load_format": "sagemaker_fast_model_loader"}
COMPILE = {"compile": "tensorrt_llm"}
DRAFT = {"draft": "draft_model"}

# The validation of the SageMaker SDK, run as a matrix.
ACCEPTED = (
    *((family, techniques) for family in GPUS for techniques in (
        DRAFT, COMPILE, SHARD, {"quantize": "awq"}, {"quantize": "fp8"},
        {"quantize": "awq"} | DRAFT, {"quantize": "fp8"} | DRAFT,
        {"quantize": "awq"} | COMPILE, {"quantize": "fp8"} | COMPILE,
        {"quantize": "smoothquant"} | COMPILE,
    )),
    *((family, {"compile": "neuron"}) for family in NEURON),
)  # fmt: skip
REFUSED = (
    *((family, techniques) for family in GPUS for techniques in (
        {}, {"quantize": "smoothquant"}, {"quantize": "gptq"}, COMPILE | DRAFT,
        SHARD | {"quantize": "awq"}, SHARD | COMPILE, SHARD | DRAFT,
    )),
    *((family, techniques) for family in NEURON for techniques in (
        {"quantize": "awq"}, {"quantize": "awq", "compile": "neuron"}, SHARD, DRAFT,
    )),
    *((family, DRAFT) for family in ("g4dn", "g6e", "p5e", "p5en")),
)  # fmt: skip


@pytest.mark.parametrize(("family", "techniques"), ACCEPTED)
def test_what_the_sdk_accepts_is_accepted(family: str, techniques: dict[str, str]) -> None:
    assert job(family, **techniques) == set()


@pytest.mark.parametrize(("family", "techniques"), REFUSED)
def test_what_the_sdk_refuses_is_refused(family: str, techniques: dict[str, str]) -> None:
    assert job(family, **techniques)


def test_the_sdk_refuses_to_compile_llama_3() -> None:
    assert "sagemaker-job-compile-llama-3" in job("g5", model="meta-llama/Llama-3.1-8B", **COMPILE)
