"""Documents of the API against botocore's own model, in the service's words."""

from __future__ import annotations

import sys
import time
from typing import Any

import botocore
import pytest

from packager.addons.deploy.sagemaker import shapes
from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.deploy.sagemaker.shapes import (
    answer_faults,
    check_model_of,
    compiled_pattern,
    is_operation,
    read_input,
    service_model,
    skeleton,
)
from tests.support.cases import cases, read_tables
from tests.support.refusals import raises_code
from tests.support.sagemaker_bodies import AWQ, SDK_TAGS

CREATE = "CreateOptimizationJob"


def _refusal(**changed: Any) -> str:
    with pytest.raises(ValidationRefused) as caught:
        read_input(CREATE, {**AWQ, **changed})
    return str(caught.value)


def test_a_body_of_the_sdk_is_taken_as_it_is() -> None:
    assert read_input(CREATE, {**AWQ, "Tags": SDK_TAGS}) == {**AWQ, "Tags": SDK_TAGS}


def test_nulls_mean_nothing() -> None:
    assert read_input(CREATE, {**AWQ, "VpcConfig": None}) == AWQ


def test_one_fault_is_told_in_the_words_of_the_service() -> None:
    assert _refusal(OptimizationJobName="a_b") == (
        "1 validation error detected: Value 'a_b' at 'optimizationJobName' failed to satisfy "
        "constraint: Member must satisfy regular expression pattern: "
        "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
    )


def test_all_faults_are_told_at_once() -> None:
    told = _refusal(RoleArn=None, StoppingCondition={"MaxPendingTimeInSeconds": 1})

    assert told == (
        "2 validation errors detected: Value null at 'roleArn' failed to satisfy constraint: "
        "Member must not be null; Value '1' at 'stoppingCondition.maxPendingTimeInSeconds' failed "
        "to satisfy constraint: Member must have value greater than or equal to 1800"
    )


@cases("constraints")
def test_every_constraint_is_checked(changed: dict[str, Any], told: str) -> None:
    assert told in _refusal(**changed)


def test_letters_of_every_alphabet_are_letters_in_tags() -> None:
    tags = [{"Key": "équipe-модель", "Value": "日本 1/2"}]

    assert read_input(CREATE, {**AWQ, "Tags": tags})["Tags"] == tags


@cases("types")
def test_values_of_another_type_are_another_error(changed: dict[str, Any], told: str) -> None:
    with raises_code("SerializationException") as caught:
        read_input(CREATE, {**AWQ, **changed})

    assert str(caught.value) == told
    assert caught.value.type == "SerializationException"


@pytest.mark.parametrize("body", [[], "x", 7, None])
def test_a_body_that_is_no_structure_is_refused(body: object) -> None:
    with raises_code("SerializationException"):
        read_input(CREATE, body)


def test_values_of_environments_are_never_told() -> None:
    told = _refusal(OptimizationEnvironment={"OPTION_X": "hf_secret" * 40, "": "hf_secret"})

    assert "hf_secret" not in told
    assert "'optimizationEnvironment.OPTION_X.member'" in told


def test_what_is_told_of_a_value_is_printable_and_short() -> None:
    told = _refusal(OptimizationJobName="\x1b[31m" + "a" * 10_000)

    assert "\x1b" not in told
    assert len(told) < 800


def test_many_faults_are_counted_and_some_are_told() -> None:
    told = _refusal(OptimizationEnvironment={str(n): "x" * 257 for n in range(25)})

    assert told.startswith("25 validation errors detected: ")
    assert told.count("failed to satisfy") == 20


def test_answers_are_checked_against_the_model() -> None:
    assert answer_faults(CREATE, {}) == (
        "Value null at 'optimizationJobArn' failed to satisfy constraint: Member must not be null",
    )
    assert answer_faults("StopOptimizationJob", {}) == ()
    assert answer_faults("StopOptimizationJob", {"A": 1}) == ("the operation has no answer",)


def test_operations_are_those_of_the_service() -> None:
    assert is_operation("CreateAIBenchmarkJob")
    assert not is_operation("CreateEverything")


def test_an_operation_that_botocore_lacks_says_how_to_get_it() -> None:
    with raises_code("ModelMissing") as caught:
        read_input("CreateEverything", {})

    assert caught.value.hint == "update it with `pip install 'boto3>=1.42.93'`"


def test_without_botocore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    service_model.cache_clear()
    monkeypatch.setitem(sys.modules, "botocore.loaders", None)
    try:
        with raises_code("ModelMissing") as caught:
            read_input(CREATE, AWQ)
    finally:
        service_model.cache_clear()

    assert caught.value.hint == "install it with `pip install 'boto3>=1.42.93'`"


def test_a_skeleton_has_every_member() -> None:
    made = skeleton(CREATE)

    assert sorted(made) == sorted(
        service_model()["shapes"]["CreateOptimizationJobRequest"]["members"]
    )
    assert made["StoppingCondition"]["MaxRuntimeInSeconds"] == 0


def _patterns(name: str, seen: set[str]) -> dict[str, int]:
    """Return the patterns below a shape, with the longest text that each is tried on."""
    if name in seen:
        return {}
    seen.add(name)
    shape = service_model()["shapes"][name]
    found = {}
    if "pattern" in shape:
        found[shape["pattern"]] = shape.get("max", shapes.LONGEST_MATCHED)
    below = [*shape.get("members", {}).values()]
    below += [shape[part] for part in ("member", "key", "value") if part in shape]
    for one in below:
        for pattern, longest in _patterns(one["shape"], seen).items():
            found[pattern] = max(longest, found.get(pattern, 0))
    return found


def test_no_text_of_a_stranger_keeps_a_pattern_busy() -> None:
    patterns: dict[str, int] = {}
    for operation in read_tables(__file__)["no_text"]["operations"]:
        if "input" in service_model()["operations"][operation]:
            patterns |= _patterns(service_model()["operations"][operation]["input"]["shape"], set())
    assert len(patterns) > 30

    slow = {}
    for pattern, longest in patterns.items():
        compiled = compiled_pattern(pattern)
        assert compiled is not None, pattern
        size = min(longest, shapes.LONGEST_MATCHED)
        for piece in read_tables(__file__)["no_text"]["pieces"]:
            text = (piece * size)[: size - 1] + "\x00"
            started = time.process_time()
            compiled.fullmatch(text)
            slow[pattern, piece] = time.process_time() - started
    worst = max(slow, key=lambda one: slow[one])
    assert slow[worst] < 0.5, worst


def test_a_model_without_operations_that_are_answered_is_refused_by_name_and_version() -> None:
    check_model_of(["CreateModel", "CreateAIBenchmarkJob"])

    with raises_code("ModelMissing") as caught:
        check_model_of(["CreateModel", "CreateNothing"])

    assert "'CreateNothing'" in caught.value.message
    assert botocore.__version__ in caught.value.message
    assert "boto3>=1.42.93" in str(caught.value.hint)
