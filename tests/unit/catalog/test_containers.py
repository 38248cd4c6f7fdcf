from __future__ import annotations

import pytest

from packager.catalog.containers import (
    FamilyNotForDevice,
    UnknownContainerVersion,
    UnknownFamily,
    UnknownRegion,
    containers,
    find_container,
)
from packager.core.facts import ContainerFacts
from tests.support.case_tables import cases_of

cases = cases_of(__file__)


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

    assert error.value.hint == (
        "did you mean 'vllm'? known: vllm, lmi, tgi, sglang, neuron; rows of --catalog add more"
    )


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


@pytest.mark.parametrize("version", ["23", "lmi23", "0.36.0-lmi23.0.0-cu129", "0.18.0"])
def test_a_version_is_asked_for_by_any_of_its_names(version: str) -> None:
    found = find_container("lmi", "nvidia", version)

    assert (found.version, found.engine_version) == ("0.36.0-lmi23.0.0-cu129", "0.18.0")


def test_lmi_13_to_28_have_the_engines_that_their_notes_say() -> None:
    found = [
        (image.release, image.engine_version)
        for image in containers()
        if image.family == "lmi" and image.engine == "vllm"
    ]

    assert found == [
        ("28", "0.26.0"),
        ("27", "0.23.1"),
        ("26", "0.22.1"),
        ("25", "0.20.1"),
        ("24", "0.19.0"),
        ("23", "0.18.0"),
        ("22", "0.17.0"),
        ("21", "0.16.0"),
        ("20", "0.15.1"),
        ("19", "0.14.0"),
        ("18", "0.12.0"),
        ("17", "0.11.1"),
        ("16", "0.10.2"),
        ("15", "0.8.4"),
        ("14", "0.7.3"),
        ("13", "0.6.3.post1"),
    ]


def test_an_unknown_version_gets_the_known_ones() -> None:
    with pytest.raises(UnknownContainerVersion) as error:
        find_container("lmi", "nvidia", "lmi99")

    assert str(error.value) == "no lmi image has version 'lmi99'"
    assert "28, 27, 26" in error.value.hint


@cases("each_region_has_its_account")
def test_each_region_has_its_account(region: str, registry: str) -> None:
    found = find_container("tgi", "nvidia", region=region)

    assert found.default_base == (
        f"{registry}/huggingface-pytorch-tgi-inference:2.7.0-tgi3.3.6-gpu-py311-cu124-ubuntu22.04"
    )


def test_without_a_region_the_public_registry_is_used_where_there_is_one() -> None:
    found = find_container("sglang", "nvidia")

    assert found.default_base == (
        "public.ecr.aws/deep-learning-containers/sglang:"
        "0.5.17-gpu-py312-cu130-ubuntu24.04-sagemaker"
    )


def test_an_image_that_aws_does_not_keep_is_the_same_everywhere() -> None:
    assert find_container("vllm", "cpu", region="eu-west-1").default_base == "embedded:vllm-cpu"


def test_a_misspelled_region_gets_the_nearest_one() -> None:
    with pytest.raises(UnknownRegion) as error:
        find_container("lmi", "nvidia", region="eu-cental-1")

    assert "did you mean 'eu-central-1'" in error.value.hint


def test_neuron_images_say_which_chips_they_serve() -> None:
    serving = {image.version: image.targets for image in containers() if image.family == "neuron"}

    assert serving["0.16.0-neuronx-py312-sdk2.31.1-ubuntu24.04"] == (
        "inf2",
        "trn1",
        "trn1n",
        "trn2",
        "trn3",
    )
    assert serving["0.24.0.1.1.0-neuronx-py313-sdk2.32.0-ubuntu24.04"] == ("trn2", "trn3")


def test_cuda_13_images_need_a_newer_gpu_and_their_own_ami() -> None:
    newest, older = find_container("lmi", "nvidia"), find_container("lmi", "nvidia", "24")

    assert (newest.least_compute_capability, older.least_compute_capability) == (7.5, 7.0)
    assert newest.inference_ami == "al2023-ami-sagemaker-inference-gpu-4-1"
    assert older.inference_ami == "al2-ami-sagemaker-inference-gpu-3-1"


def test_own_images_come_first() -> None:
    own = ContainerFacts(
        family="vllm",
        kind="nvidia",
        engine="vllm",
        engine_version="0.33.0",
        version="ours",
        default_base="registry.example.com/vllm:ours",
    )

    assert find_container("vllm", "nvidia", extra=(own,)) == own
    assert find_container("vllm", "nvidia", "0.27.1", extra=(own,)).engine_version == "0.27.1"


def test_an_image_of_ones_own_gets_the_driver_and_ami_of_its_cuda() -> None:
    own = ContainerFacts(
        family="vllm",
        kind="nvidia",
        engine="vllm",
        engine_version="0.33.0",
        version="ours",
        cuda="12.9",
        default_base="registry.example.com/vllm:ours",
    )

    found = find_container("vllm", "nvidia", extra=(own,))

    assert found.least_driver == "525"
    assert found.inference_ami == "al2-ami-sagemaker-inference-gpu-3-1"


def test_no_image_is_listed_twice() -> None:
    bases = [image.default_base for image in containers()]

    assert len(set(bases)) == len(bases)
