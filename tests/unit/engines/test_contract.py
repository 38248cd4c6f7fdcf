"""What every family of containers promises, held against every image that the catalog ships."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.containers import containers
from packager.cli.plugins.rows import departures
from packager.cli.plugins.tables import FAMILIES
from packager.core import ports
from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding, errors_in
from packager.core.plan import Plan
from packager.core.shape import Shape
from tests.support.doubles.containers import with_traits
from tests.support.engine_plans import plan_for
from tests.support.engine_rows import family_of

# LMI with TensorRT-LLM 0.12 is not written for: every plan for it is refused with one finding.
IMAGES = tuple(
    with_traits(image)
    for image in containers()
    if image.version != "0.32.0-tensorrtllm0.12.0-cu125"
)
BASES = {"nvidia": "vllm", "amd": "vllm", "cpu": "vllm-cpu", "neuron": "neuron-hf"}
STATIC = {"tp_degree": 24, "shape": Shape(max_batch=4, max_input_tokens=64, max_total_tokens=128)}
of_every_image = pytest.mark.parametrize(
    "image", IMAGES, ids=lambda image: f"{image.family}-{image.version or image.engine_version}"
)


def plan_on(image: ContainerFacts, *options: tuple[str, str]) -> Plan:
    given: dict[str, Any] = STATIC if image.kind == "neuron" else {}
    plan = plan_for(BASES[image.kind], engine_options=options, **given)
    machine = replace(plan.instance, kind=image.kind)
    return replace(plan, container=image, instance=machine)


def found_on(image: ContainerFacts, *options: tuple[str, str]) -> list[Finding]:
    plan = plan_on(image, *options)
    return list(errors_in(tuple(family_of(plan).check(plan))))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_what_its_port_asks_for(name: str) -> None:
    family = FAMILIES.find(name).make()

    assert departures(family, ports.ContainerFamily) == ()
    assert family.name == name


@of_every_image
def test_traits_describe_the_image_and_are_values(image: ContainerFacts) -> None:
    assert image.traits.who
    assert hash(image.traits) == hash(with_traits(image).traits)


@of_every_image
def test_a_plain_plan_is_not_refused(image: ContainerFacts) -> None:
    assert found_on(image) == []


@of_every_image
def test_equal_plans_are_checked_and_rendered_alike(image: ContainerFacts) -> None:
    first, second = plan_on(image), plan_on(image)
    configs = [family_of(plan).render(plan, Artifacts(model=())) for plan in (first, second)]

    assert list(family_of(first).check(first)) == list(family_of(second).check(second))
    assert configs[0] == configs[1]
    paths = [file.path for file in configs[0].files]
    assert len(set(paths)) == len(paths)
    assert all(path.startswith("/opt/packager/") for path in paths)


@of_every_image
@pytest.mark.parametrize("name", ["api-key", "API_KEY", "hf_token", "db-password"])
def test_a_credential_is_refused_without_being_repeated(image: ContainerFacts, name: str) -> None:
    """It would be in the image, its labels and the build record."""
    [found] = [one for one in found_on(image, (name, "hidden-value")) if "credential" in one.code]

    assert found.code == "credential-in-image"
    assert "hidden-value" not in found.message + found.hint
    assert "when the container starts" in found.hint


@of_every_image
@pytest.mark.parametrize("name", ["trust_remote_code", "trust-remote-code", "TRUST_REMOTE_CODE"])
def test_code_of_the_model_is_refused(image: ContainerFacts, name: str) -> None:
    assert "remote-code" in [one.code for one in found_on(image, (name, "true"))]


@pytest.mark.parametrize("container", ["vllm", "sglang"])
def test_a_log_level_is_no_credential(container: str) -> None:
    plan = plan_for(container, engine_options=(("uvicorn-log-level", "info"),))

    assert "credential-in-image" not in [one.code for one in family_of(plan).check(plan)]
