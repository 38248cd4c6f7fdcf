from __future__ import annotations

import pytest

from packager.catalog.containers import (
    FamilyNotForDevice,
    UnknownFamily,
    containers,
    find_container,
)


def test_vllm_is_the_default_family_on_cpu_and_gpu() -> None:
    assert find_container(None, "cpu").family == "vllm"
    assert find_container(None, "nvidia").family == "vllm"


def test_the_cpu_image_is_built_from_a_base_that_is_shipped() -> None:
    container = find_container("vllm", "cpu")

    assert container.default_base == "embedded:vllm-cpu"
    assert (container.engine, container.engine_version) == ("vllm", "0.32.0")


def test_lmi_is_the_newest_container_with_its_engine() -> None:
    container = find_container("lmi", "nvidia")

    assert container.default_base.endswith("/djl-inference:0.36.0-lmi28.0.0-cu130")
    assert container.engine_version == "0.26.0"


def test_every_image_says_where_its_facts_are_from() -> None:
    assert all("(2026-" in container.source for container in containers())


def test_an_unknown_family_gets_the_known_ones() -> None:
    with pytest.raises(UnknownFamily) as error:
        find_container("vlm", "cpu")

    assert error.value.hint == "did you mean 'vllm'? known: vllm, lmi, tgi, sglang, neuron"


def test_a_family_without_an_image_for_the_device_names_one_that_has() -> None:
    with pytest.raises(FamilyNotForDevice) as error:
        find_container("lmi", "cpu")

    assert str(error.value) == "serving family 'lmi' has no image for cpu devices"
    assert error.value.hint == "use 'vllm', or leave the family out"


def test_inferentia_gets_the_last_sdk_that_its_release_notes_name() -> None:
    found = find_container(None, "neuron", instance_name="ml.inf2.48xlarge")

    assert (found.family, found.variant, found.release) == ("neuron", "vllm-nxdi", "2.28.0")
    assert found.version == "0.13.0-neuronx-py312-sdk2.28.0-ubuntu24.04"


def test_trainium2_gets_the_newest_image() -> None:
    found = find_container("neuron", "neuron", instance_name="ml.trn2.48xlarge")

    assert (found.variant, found.release) == ("vllm-neuron", "2.32.0")
