"""The contract of AWS's optimization containers: variables and serving.properties as requests."""

from __future__ import annotations

from typing import Any

import pytest

from packager.addons.server.sagemaker.neo import (
    NeoContext,
    error_document,
    input_configuration,
    output_properties,
    read_context,
    read_wish,
    request_of,
)
from packager.core.errors import PackagerError, PlanRejected, UsageError
from tests.support.cases import as_type, cases, read_tables
from tests.support.refusals import raises_code

VARIABLES: dict[str, str] = read_tables(__file__)["context"]
CONTEXT = read_context(VARIABLES)


def request(text: str, **variables: str) -> dict[str, Any]:
    fields = request_of(read_wish(text, {**VARIABLES, **variables}), CONTEXT, "ml.g5.12xlarge", 4)
    assert fields.pop("model") == "/opt/ml/model/input"
    assert fields.pop("instance") == "ml.g5.12xlarge"
    assert fields.pop("family") == "lmi"
    return fields


def result(text: str, **variables: str) -> dict[str, str]:
    wish = read_wish(text, {**VARIABLES, **variables})
    given_tp = "option.tensor_parallel_degree" in wish.properties
    written = output_properties(wish, {"engine": "Python"}, given_tp=given_tp)
    return dict(line.split("=", 1) for line in written.splitlines())


def test_the_directories_are_those_of_the_variables() -> None:
    assert read_context(VARIABLES) == as_type(read_tables(__file__)["whole_context"], NeoContext)


@pytest.mark.parametrize("name", list(VARIABLES)[:4])
@pytest.mark.parametrize("value", [None, ""], ids=["missing", "empty"])
def test_a_variable_that_is_needed_is_named(name: str, value: str | None) -> None:
    variables = {**VARIABLES, name: value or ""}
    if value is None:
        del variables[name]

    with raises_code("InputConfiguration", match=name):
        read_context(variables)


@cases("options_of_the_compiler_are_not_ignored")
def test_options_of_the_compiler_are_not_ignored(text: str, said: str) -> None:
    with raises_code("InputConfiguration", match=said):
        read_context({**VARIABLES, "COMPILER_OPTIONS": text})


@cases("quantizations")
def test_a_quantization_is_asked_for_by(
    text: str, variables: dict[str, str], expected: dict[str, Any]
) -> None:
    assert request(text, **variables) == expected


def test_a_compilation_is_for_the_image_that_has_its_engine() -> None:
    found = request("option.rolling_batch=trtllm\n", OPTION_QUANTIZE="fp8")

    assert (found["compile"], found["quantize"]) == ("tensorrt_llm", "fp8")
    assert "tensorrtllm" in found["container_version"]


@cases("results")
def test_the_result_keeps_the_models_settings_and_loses_the_jobs(
    text: str, variables: dict[str, str] | None, kept: dict[str, str]
) -> None:
    assert result(text, **(variables or {})) == {"engine": "Python", **kept}


@pytest.mark.parametrize("feature", ["trtllm", "vllm,trtllm"])
def test_a_container_of_tensorrt_compiles(feature: str) -> None:
    assert read_wish("", {"SERVING_FEATURES": feature}).technique == "compile"


@cases("refused")
def test_what_cannot_be_followed_is_refused(
    text: str, variables: dict[str, str], said: str
) -> None:
    with raises_code("InputConfiguration", match=said):
        request(text, **variables)
        result(text, **variables)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (input_configuration("wrong", hint="do that"), "InputConfiguration('wrong; do that')"),
        (UsageError("no such instance", hint=""), "InputConfiguration('no such instance')"),
        (PackagerError("broke", hint="try"), "OptimizationFatalError('broke; try')"),
        (ValueError("bug"), "OptimizationFatalError('bug')"),
        (KeyboardInterrupt(), "OptimizationFatalError('KeyboardInterrupt')"),
        (PlanRejected(()), "OptimizationFatalError('the plan is rejected: no reason given')"),
    ],
    ids=["input", "usage", "ours", "a bug", "interrupted", "a plan"],
)
def test_the_error_file_names_what_clients_know(error: BaseException, told: str) -> None:
    assert error_document(error) == {"error": told}
