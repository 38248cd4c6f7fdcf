"""Models and endpoint configurations as containers, and what is refused of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.sagemaker.hosting import (
    VariantSpec,
    check_component,
    check_endpoint_config,
    check_model,
    variants_of,
)
from tests.support.cases import cases, shows

IMAGE = "registry.example/tiny-llama@sha256:" + "0" * 64


def model(**container: Any) -> dict[str, Any]:
    return {"ModelName": "m", "PrimaryContainer": {"Image": IMAGE, **container}}


def config(*variants: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"EndpointConfigName": "c", "ProductionVariants": list(variants), **more}


def variant(name: str = "AllTraffic", **more: Any) -> dict[str, Any]:
    return {"VariantName": name, "ModelName": "m", "InstanceType": "ml.g5.xlarge", **more}


@cases("variants")
def test_a_variant_is_the_container_of_its_model(case: dict[str, Any]) -> None:
    models, here = {"m": case["model"], "small": case["model"]}, case.get("here", ())
    (found,) = variants_of(config(variant(**case["variant"])), models, lambda name: name in here)

    assert shows(found.document(), {"pools": [], **case["is"]}), found
    assert found.server is not None
    assert (found.server.memory_mb, found.server.accelerators) == (None, None)
    assert VariantSpec.read(found.document()) == found


def test_a_variant_without_a_model_survives_being_written_down() -> None:
    bare = VariantSpec(name="b", weight=1.0, count=1, instance_type="ml.x", server=None)

    assert VariantSpec.read(bare.document()) == bare


@cases("specifications")
def test_a_component_is_a_container_of_its_own_or_of_its_model(
    specification: dict[str, Any], own: dict[str, Any] | None, found: dict[str, Any]
) -> None:
    spec = check_component(specification, own)

    assert shows({**asdict(spec), "data": list(map(asdict, spec.data))}, found), spec


@cases("models")
def test_a_model_that_cannot_run_here_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationRefused, match=said):
        check_model(body)


@pytest.mark.parametrize(
    ("environment", "most"),
    [({"A": "x" * 1025}, 1024), ({f"A{n}": "x" * 1000 for n in range(40)}, 32768)],
    ids=["one", "all"],
)
def test_variables_that_are_too_long_are_refused(environment: dict[str, str], most: int) -> None:
    with pytest.raises(ValidationRefused, match=f"SageMaker takes {most}"):
        check_model(model(Environment=environment))


@cases("configurations")
def test_a_configuration_that_cannot_be_done_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationRefused, match=said):
        check_endpoint_config(body)


@cases("components")
def test_a_component_that_cannot_run_here_is_refused(
    specification: dict[str, Any], own: dict[str, Any] | None, said: str
) -> None:
    with pytest.raises(ValidationRefused, match=said):
        check_component(specification, own)
