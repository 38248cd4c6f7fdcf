"""Drivers that images need, by the CUDA that their tags name."""

from __future__ import annotations

import re
from dataclasses import replace

import botocore.session

from packager.catalog.containers import containers
from packager.catalog.drivers import amis, cuda_drivers, cuda_in, cuda_of, runs_on, with_host_needs
from packager.catalog.listing import Filter, list_containers
from packager.core.user_catalog import UserCatalog
from tests.support.cases import cases
from tests.support.engine_plans import plan_for


@cases("the_tag_of_an_image_names_its_cuda")
def test_the_tag_of_an_image_names_its_cuda(tag: str, cuda: str) -> None:
    assert cuda_in(tag) == cuda


def test_every_gpu_image_has_its_cuda_driver_and_ami() -> None:
    """An image on the AMI of another CUDA crashes, or hangs, before it writes a line of log."""
    drivers = {ami.name: ami for ami in amis()}

    for image in containers():
        if image.kind != "nvidia":
            assert (image.cuda, image.least_driver, image.inference_ami) == ("", "", "")
            continue
        assert image.cuda, image.version
        assert image.least_driver
        ami = drivers[image.inference_ami]
        assert ami.cuda.partition(".")[0] == image.cuda.partition(".")[0]
        assert float(ami.driver) >= float(image.least_driver)


def test_the_amis_are_those_of_sagemakers_api() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    known = model.shape_for("ProductionVariant").members["InferenceAmiVersion"].enum

    assert {ami.name for ami in amis()} < set(known)
    for ami in amis():
        assert ami.source
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", ami.date)


def test_what_an_image_says_of_itself_wins() -> None:
    stated = {"version": "mine-cu130", "cuda": "12.6", "least_driver": "", "inference_ami": ""}
    found = with_host_needs(replace(plan_for("vllm").container, **stated))

    assert (found.cuda, found.least_driver) == ("12.6", "525")
    assert found.inference_ami == "al2-ami-sagemaker-inference-gpu-3-1"


def test_an_image_whose_cuda_nobody_knows_needs_nothing_in_particular() -> None:
    image = replace(plan_for("vllm").container, version="mine", cuda="")

    assert with_host_needs(image) == image
    assert cuda_of(image) is None


def test_every_cuda_of_the_catalog_has_its_least_driver() -> None:
    known = {row.major for row in cuda_drivers()}

    assert {cuda_of(image) for image in containers()} - {None} == known == {12, 13}
    for row in cuda_drivers():
        assert row.source
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.date)
    assert [row.major for row in cuda_drivers()] == [13, 12]


@cases("the_list_of_containers_tells_the_driver_that_each_needs")
def test_the_list_tells_the_driver_that_each_needs(version: str, cuda: str, driver: str) -> None:
    rows = list_containers(UserCatalog(), Filter(device="nvidia"))
    (row,) = (one for one in rows if one["version"] == version)

    assert (row["cuda"], row["least_driver"]) == (cuda, driver)


@cases("drivers")
def test_a_driver_runs_the_cuda_that_is_no_newer(driver: str, expected: list[str]) -> None:
    words = {True: "yes", False: "no", None: "unknown"}
    assert [words[runs_on(row, driver)] for row in cuda_drivers()] == expected
