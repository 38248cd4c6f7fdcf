"""Platforms of images: what follows from the instance, what is refused, what plans say."""

from __future__ import annotations

import pytest

from packager.core.errors import PlanRejected
from packager.core.image import Platform
from packager.core.processors import known_flags
from packager.pipeline.report_plan import plan_document
from tests.support.cases import read_tables
from tests.support.headers import LLAMA_3_8B, model_of, plan_of

TABLES = read_tables(__file__)


@pytest.mark.parametrize(("instance", "platform"), TABLES["platform_of_instance"].items())
def test_the_instance_decides_the_platform(instance: str, platform: str) -> None:
    plan = plan_of(model_of(LLAMA_3_8B), instance)

    assert str(plan.platform) == platform
    assert plan_document(plan)["platform"] == platform


@pytest.mark.parametrize("case", TABLES["refused"], ids=lambda case: str(case["why"]))
def test_what_cannot_run_there_is_refused(case: dict[str, str]) -> None:
    asked = {name: case[name] for name in ("platform", "base", "quantize") if name in case}
    with pytest.raises(PlanRejected) as error:
        plan_of(model_of(LLAMA_3_8B), case["instance"], **asked)

    errors = [one for one in error.value.findings if one.severity == "error"]
    assert errors[0].code == case["code"]
    assert case["message"] in errors[0].message


def test_a_named_base_may_be_for_any_platform() -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "4xGB200", base="r.example/vllm:arm64")

    assert plan.platform == Platform("linux", "arm64")


def test_plans_say_what_the_processor_has() -> None:
    plan = plan_of(model_of(LLAMA_3_8B), "c8g.16xlarge")

    assert {"bf16", "i8mm", "sve2"} <= known_flags(plan.instance)
    document = plan_document(plan)["instance"]
    assert document["machine"] == "aarch64"
    assert document["processor"] == sorted(plan.instance.flags)
