from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.containers import containers, find_container
from packager.core.errors import UsageError
from packager.core.facts import ContainerFacts
from packager.core.instance import DeviceKind
from tests.support.cases import as_type, cases, fields_of, read_tables


@cases("found", family=None, version=None, region=None, instance="")
def test_a_container_is_found(
    family: str | None,
    kind: DeviceKind,
    version: str | None,
    region: str | None,
    instance: str,
    expect: dict[str, Any],
) -> None:
    found = find_container(family, kind, version, region=region, instance_name=instance)

    assert fields_of(found, expect) == expect


@cases("not_found", version=None, region=None)
def test_what_is_not_there_is_refused_with_what_is(
    family: str, kind: DeviceKind, version: str | None, region: str | None, said: str, hint: str
) -> None:
    with pytest.raises(UsageError) as error:
        find_container(family, kind, version, region=region)

    assert said in str(error.value)
    assert hint in error.value.hint


OWN = as_type(read_tables(__file__)["own"], ContainerFacts)


def test_own_images_come_first_and_get_the_driver_and_ami_of_their_cuda() -> None:
    cuda = replace(OWN, cuda="12.9")

    assert find_container("vllm", "nvidia", extra=(OWN,)) == OWN
    assert find_container("vllm", "nvidia", "0.27.1", extra=(OWN,)).engine_version == "0.27.1"
    found = find_container("vllm", "nvidia", extra=(cuda,))
    assert found.least_driver == "525"
    assert found.inference_ami == "al2-ami-sagemaker-inference-gpu-3-1"


def test_neuron_images_say_which_chips_they_serve() -> None:
    serving = {image.version: image.targets for image in containers() if image.family == "neuron"}

    older = serving["0.16.0-neuronx-py312-sdk2.31.1-ubuntu24.04"]
    assert [*older] == read_tables(__file__)["neuron_families"]
    assert serving["0.24.0.1.1.0-neuronx-py313-sdk2.32.0-ubuntu24.04"] == ("trn2", "trn3")


def test_every_image_has_a_source_and_is_listed_once() -> None:
    bases = [image.default_base for image in containers()]

    assert all("(2026-" in container.source for container in containers())
    assert len(set(bases)) == len(bases)
