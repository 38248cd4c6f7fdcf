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

    assert error.value.hint == "did you mean 'vllm'? known: vllm, lmi"


def test_a_family_without_an_image_for_the_device_names_one_that_has() -> None:
    with pytest.raises(FamilyNotForDevice) as error:
        find_container("lmi", "cpu")

    assert str(error.value) == "serving family 'lmi' has no image for cpu devices"
    assert error.value.hint == "use 'vllm', or leave the family out"


def test_no_family_serves_neuron_yet() -> None:
    with pytest.raises(FamilyNotForDevice) as error:
        find_container(None, "neuron")

    assert str(error.value) == "no serving family has an image for neuron devices"
