"""Drivers that images need, by the CUDA that their tags name."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from packager.catalog.containers import containers
from packager.catalog.drivers import cuda_drivers, cuda_of, runs_on
from packager.catalog.listing import Filter, list_containers
from packager.core.own import OwnRows
from tests.families.plans import plan_for


@pytest.mark.parametrize(
    ("tag", "major"),
    [
        ("0.27.1-gpu-py312-cu130-ubuntu22.04-sagemaker", 13),
        ("0.36.0-lmi28.0.0-cu130", 13),
        ("0.34.0-lmi16.0.0-cu128", 12),
        ("2.7.0-tgi3.3.6-gpu-py311-cu124-ubuntu22.04", 12),
        ("v0.33.0", None),
        ("server-sagemaker-cuda-v2.3", None),
        ("0.1.0-cu1", None),
        ("0.1.0-cu1300", None),
        ("0.1.0-rescu130", None),
        ("", None),
    ],
)
def test_the_tag_of_an_image_names_its_cuda(tag: str, major: int | None) -> None:
    assert cuda_of(replace(plan_for("vllm").container, version=tag)) == major


def test_every_cuda_of_the_catalog_has_its_least_driver() -> None:
    known = {row.major for row in cuda_drivers()}

    assert {cuda_of(image) for image in containers()} - {None} == known == {12, 13}
    for row in cuda_drivers():
        assert row.source
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.date)
    assert [row.major for row in cuda_drivers()] == [13, 12]


@pytest.mark.parametrize(
    ("version", "cuda", "driver"),
    [
        ("0.27.1-gpu-py312-cu130-ubuntu22.04-sagemaker", 13, "580"),
        ("0.34.0-lmi16.0.0-cu128", 12, "525"),
        ("v0.33.0", None, ""),
    ],
)
def test_the_list_of_containers_tells_the_driver_that_each_needs(
    version: str, cuda: int | None, driver: str
) -> None:
    rows = list_containers(OwnRows(), Filter(device="nvidia"))
    (row,) = (one for one in rows if one["version"] == version)

    assert (row["cuda"], row["least_driver"]) == (cuda, driver)


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("580", [True, True]),
        ("580.65.06", [True, True]),
        ("579.99", [False, True]),
        ("525.60.13", [False, True]),
        ("524.99", [False, False]),
        ("[N/A]", [None, None]),
    ],
)
def test_a_driver_runs_the_cuda_that_is_no_newer(driver: str, expected: list[bool | None]) -> None:
    assert [runs_on(row, driver) for row in cuda_drivers()] == expected
