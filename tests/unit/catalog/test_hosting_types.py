"""The catalog against the instance types that AWS's own client knows for endpoints."""

from __future__ import annotations

from functools import cache

import pytest
from botocore.session import Session

from packager.catalog.instances import (
    find_instance,
    instances,
    left_out,
)
from packager.catalog.prices import price_of, shipped_prices
from tests.support.cases import cases
from tests.support.known import known
from tests.support.refusals import raises_code

ACCELERATED = ("p", "g", "inf", "trn", "dl")


@cache
def hosting_types() -> frozenset[str]:
    """Return the values of SageMaker's ProductionVariantInstanceType."""
    model = Session().get_service_model("sagemaker")
    return frozenset(model.shape_for("ProductionVariantInstanceType").enum)


def test_every_sagemaker_name_of_the_catalog_is_a_hosting_type() -> None:
    named = {one.name for one in instances() if one.name.startswith("ml.")}

    assert named - hosting_types() == set()
    assert named == {one.name for one in instances() if one.cloud == "sagemaker"}


def test_every_hosting_type_with_accelerators_is_listed_or_left_out_with_a_reason() -> None:
    known = {one.name for one in instances()}
    missing = {
        name.split(".")[1]
        for name in hosting_types() - known
        if name.split(".")[1].startswith(ACCELERATED)
    }

    assert missing == set(left_out()) == {"dl1", "inf1", "p2"}
    assert all(family.reason and family.source and family.date for family in left_out().values())
    assert all(find_instance(family.instead) for family in left_out().values())


@cases("a_machine_without_endpoints_is_refused_by_its_sagemaker_name")
def test_a_machine_without_endpoints_is_refused_by_its_sagemaker_name(name: str) -> None:
    with raises_code("NotHosted") as error:
        find_instance(name)

    ec2_name = name.removeprefix("ml.")
    assert str(error.value) == f"{name!r} is not an instance type of SageMaker endpoints"
    assert error.value.hint == f"use EC2's name, {ec2_name!r}, to plan for the machine itself"
    found = find_instance(ec2_name)
    assert (found.name, found.cloud) == (ec2_name, "ec2")


def test_a_machine_without_endpoints_has_ec2s_price() -> None:
    price = known(price_of(find_instance("gr6.4xlarge")))

    assert (price.usd_hour, price.basis, price.region) == (1.5392, "ec2 on-demand", "us-east-1")
    found = find_instance("gr6.4xlarge")
    assert (found.price_usd_hour, found.price_basis) == (1.5392, "ec2 on-demand")
    unknown = find_instance("trn2.3xlarge")
    assert (unknown.price_usd_hour, unknown.price_basis) == (
        None,
        "none: no on-demand price of EC2 was found",
    )


@cases("a_machine_that_nothing_serves_on_is_refused_with_the_reason")
def test_a_machine_that_nothing_serves_on_is_refused_with_the_reason(name: str, said: str) -> None:
    with raises_code("LeftOutInstance") as error:
        find_instance(name)

    assert str(error.value).startswith(f"instance type {name!r} cannot serve: ")
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["ml.p5e.48xlarge", "ml.trn2.48xlarge", "ml.p6e-gb200.36xlarge"])
def test_a_machine_without_a_price_says_why(name: str) -> None:
    found = find_instance(name)

    assert found.price_usd_hour is None
    assert found.price_basis == "none: EC2 has no on-demand price, it sells capacity blocks only"


@cases("other_clouds_machines_are_known")
def test_other_clouds_machines_are_known(
    name: str, cloud: str, device: str, devices: int, vcpus: int, host_gib: int
) -> None:
    found = find_instance(name)

    assert (found.cloud, found.device_name, found.devices) == (cloud, device, devices)
    assert (found.vcpus, found.host_bytes) == (vcpus, host_gib * 1024**3)
    assert found.price_usd_hour is None
    is_fast = name.lower().startswith(("standard_nd", "nd"))
    assert found.network_gbps == (3200 if is_fast else None)


def test_prices_are_of_machines_of_the_catalog() -> None:
    assert {price.instance for price in shipped_prices()} <= {one.name for one in instances()}
