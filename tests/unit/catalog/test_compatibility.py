"""The rules as users meet them, and the matrix of AWS's SDK reproduced from them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from packager.catalog.compatibility import find_rule, finding_of, matching, rules
from packager.catalog.containers import containers, find_container, version_names
from packager.catalog.instances import find_instance
from packager.core.catalog import Rule
from packager.core.findings import errors_in
from tests.support.cases import cases, read_tables

NOTHING = read_tables(__file__)["nothing"]


def situation(
    instance: str, family: str | None = None, version: str | None = None, **asked: Any
) -> dict[str, Any]:
    """Describe what is asked on an instance, with the container that the catalog picks."""
    found = find_instance(instance)
    container = find_container(family, found.kind, version, instance_name=found.name)
    device = {
        "instance": found.name,
        "instance_family": found.family,
        "device": found.kind,
        "device_name": found.device_name,
        "compute_capability": found.compute_capability,
        "formats": found.formats,
        "family": container.family,
        "variant": container.variant,
        "release": container.release,
        "engine": container.engine,
        "engine_version": container.engine_version,
        "target": "image",
    }
    return {**NOTHING, **device, **asked}


def errors(asked: dict[str, Any]) -> list[str]:
    """The codes of the errors in a situation, in the table's order."""
    findings = (finding_of(rule, asked) for rule in matching(rules(), asked))
    return [finding.code for finding in errors_in(findings)]


def codes(asked: dict[str, Any]) -> set[str]:
    """Every code that a situation gives."""
    return {rule.id for rule in matching(rules(), asked)}


@cases("situation", family=None, version=None, refused=None, also=(), never=())
def test_a_situation_is_refused_or_remarked_on(
    on: str,
    family: str | None,
    version: str | None,
    asked: dict[str, Any],
    refused: list[str] | None,
    also: set[str],
    never: set[str],
) -> None:
    whole = situation(on, family, version) | asked

    assert refused is None or errors(whole) == refused
    assert also <= codes(whole)
    assert not never & codes(whole)


def test_the_refusal_of_fp8_names_the_device_and_the_way_out() -> None:
    asked = situation("ml.g5.12xlarge", quantize="fp8", scheme="W8A8-FP8")
    (rule,) = (rule for rule in matching(rules(), asked) if rule.severity == "error")
    finding = finding_of(rule, asked)

    assert finding.message == (
        "A10G (compute capability 8.6) cannot multiply in FP8; "
        "that begins with 8.9 (L4, L40S, H100)"
    )
    assert finding.hint.startswith("use scheme W8A16-FP8")


@cases("fp8_on_turing")
@pytest.mark.parametrize("existing", [True, False], ids=["arrived", "quantized"])
def test_fp8_weights_on_turing_are_refused_by_versions_without_the_kernel_alone(
    engine: str,
    version: str,
    checkpoint_format: str,
    device: dict[str, Any],
    found: list[str],
    *,
    existing: bool,
) -> None:
    asked = situation(
        "ml.g4dn.xlarge",
        engine=engine,
        engine_version=version,
        family=engine,
        scheme="W8A16-FP8",
        checkpoint_format=checkpoint_format,
        existing=existing,
        quantize="fp8",
        dtype="fp16",
    )

    assert errors({**asked, **device}) == found


@cases("fp8_caches")
def test_an_fp8_cache_before_ada_is_refused_only_where_flashinfer_does_not_read_it(
    instance: str, engine: str, version: str, model: dict[str, Any], found: list[str]
) -> None:
    asked = situation(instance, engine=engine, engine_version=version, kv_dtype="fp8", **model)

    assert errors(asked) == found
    assert ("fp8-kv-before-ada" in codes(asked)) == (
        instance not in ("ml.g6.xlarge", "ml.p5.48xlarge")
    )
    assert errors({**asked, "kv_dtype": "auto"}) == []


@cases("of_4_bit_floats_turing_unpacks_nvfp4_alone")
def test_turing_unpacks_nvfp4_alone(scheme: str, version: str, found: list[str]) -> None:
    asked = situation(
        "ml.g4dn.xlarge",
        engine_version=version,
        scheme=scheme,
        checkpoint_format="compressed-tensors",
        existing=True,
        dtype="fp16",
    )

    assert errors(asked) == found


@cases("packed_weights_of_bloom_are_mixed_up_by_newer_versions")
def test_packed_weights_of_bloom_are_mixed_up_by_newer_versions(
    version: str, scheme: str, expected: list[str]
) -> None:
    asked = situation("ml.p4d.24xlarge", "vllm", architecture="BloomForCausalLM", scheme=scheme)

    found = errors({**asked, "engine_version": version, "formats": {"w4a16", "int8_w8a8"}})

    assert [code for code in found if "bloom" in code] == expected


ACCEPTED_ON_GPUS = {tuple(row) for row in read_tables(__file__)["accepted_on_gpus"]}
ACCEPTED_ON_NEURON = {("", "on", "", "")}


@pytest.mark.parametrize("load_format", ["", "sagemaker_fast_model_loader"])
@pytest.mark.parametrize("draft", ["", "auto"])
@pytest.mark.parametrize("compiled", ["", "on"])
@pytest.mark.parametrize("quantize", ["", "awq", "fp8", "smoothquant", "gptq"])
@pytest.mark.parametrize("family", ["p4d", "p5", "g5", "g6", "inf2", "trn1", "g4dn", "g6e", "p5en"])
def test_the_matrix_of_the_sagemaker_sdk(
    family: str, quantize: str, compiled: str, draft: str, load_format: str
) -> None:
    asked = {
        "target": "sagemaker-job",
        "model": "meta-llama/Llama-2-70b-hf",
        "instance_family": family,
        "quantize": quantize,
        "compile": compiled,
        "draft": draft,
        "load_format": load_format,
    }
    if family in ("inf2", "trn1"):
        accepted = (quantize, compiled, draft, load_format) in ACCEPTED_ON_NEURON
    elif family in ("g4dn", "g6e", "p5en"):
        accepted = False
    else:
        accepted = (quantize, compiled, draft, load_format) in ACCEPTED_ON_GPUS

    assert (errors(asked) == []) is accepted


@cases("the_sdk_does_not_compile_llama_3_for_gpus")
def test_the_sdk_does_not_compile_llama_3_for_gpus(model: str) -> None:
    asked = {
        "target": "sagemaker-job",
        "model": model,
        "instance_family": "p4d",
        "quantize": "",
        "compile": "on",
        "draft": "",
        "load_format": "",
    }

    assert errors(asked) == ["sagemaker-job-compile-llama-3"]


def test_aws_jobs_do_not_limit_what_packager_builds() -> None:
    asked = situation("ml.g6e.12xlarge", "vllm", quantize="gptq", scheme="W4A16")

    assert not [code for code in codes(asked) if code.startswith("sagemaker-job")]


def test_every_rule_is_sourced_dated_and_has_a_way_out() -> None:
    for rule in rules():
        assert rule.source and rule.reason and rule.instead and rule.when, rule.id
        assert rule.date.startswith("20"), rule.id
        assert rule.id == rule.id.lower() and " " not in rule.id
        assert not rule.reason.endswith("."), rule.id


def test_every_way_out_that_names_a_version_names_one_that_exists() -> None:
    known = {name for image in containers() for name in version_names(image)}
    named = {
        version
        for rule in rules()
        for version in re.findall(r"--container-version (\S+?)`", rule.instead)
    }

    assert named and named <= known


def test_a_rule_is_found_by_its_code() -> None:
    found = find_rule("tgi-medusa-v2-quantized")

    assert found is not None and found.severity == "error"
    assert find_rule("no-such-code") is None


def rule(**when: Any) -> Rule:
    return Rule(
        id="r",
        severity="error",
        when=when,
        reason="because",
        instead="do else",
        source="a test",
        date="2026-11-20",
    )


@cases("conditions")
def test_conditions(wanted: Any, actual: Any, holds: bool) -> None:
    asked = tuple(wanted) if isinstance(wanted, list) else wanted
    assert (matching([rule(quantize=asked)], {"quantize": actual}) != ()) is holds


@cases("versions_are_compared_as_versions")
def test_versions_are_compared_as_versions(wanted: str, actual: str, holds: bool) -> None:
    assert (matching([rule(engine_version=wanted)], {"engine_version": actual}) != ()) is holds


def test_what_is_not_known_fulfils_nothing() -> None:
    assert matching([rule(compute_capability="<8.0")], {}) == ()
    assert matching([rule(compute_capability="<8.0")], {"compute_capability": None}) == ()
    assert matching([rule(speculative_tokens=">$draft_heads")], {"speculative_tokens": 5}) == ()


def test_a_misspelled_key_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule knows of quantise"):
        matching(rules(), {"quantise": "awq"})


def test_no_way_out_names_a_compiler_that_does_not_exist() -> None:
    named = {name for rule in rules() for name in re.findall(r"--compile ([a-z_]+)", rule.instead)}

    assert named <= {"off", "auto"}


@cases("an_architecture_newer_than_the_engine_is_refused")
def test_a_newer_architecture_is_refused(architecture: str, release: str, code: str) -> None:
    old = situation("ml.g5.12xlarge", "lmi", release) | {"architecture": architecture}
    new = situation("ml.g5.12xlarge", "lmi", "16") | {"architecture": architecture}

    assert code in [rule.id for rule in matching(rules(), old)]
    assert code not in [rule.id for rule in matching(rules(), new)]
