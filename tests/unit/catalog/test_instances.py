from __future__ import annotations

import pytest

from packager.catalog.instances import find_instance, instances
from packager.core.instance import gpu_formats
from packager.core.units import GIB, MIB
from tests.support.cases import cases
from tests.support.refusals import raises_code


@pytest.mark.parametrize("name", ["ml.g5.xlarge", "g5.xlarge"])
def test_sagemaker_and_ec2_names_find_the_same_instance(name: str) -> None:
    instance = find_instance(name)

    assert instance.name == "ml.g5.xlarge"
    assert (instance.kind, instance.device_name, instance.devices) == ("nvidia", "A10G", 1)
    assert instance.device_bytes == 22888 * MIB
    assert instance.host_bytes == 16 * GIB
    assert instance.compute_capability == 8.6
    assert instance.price_usd_hour == 1.4084


def test_neuron_devices_are_cores_with_a_share_of_the_chip_each() -> None:
    instance = find_instance("inf2.48xlarge")

    assert (instance.kind, instance.devices) == ("neuron", 24)
    assert instance.device_bytes == 16 * GIB


def test_a_cpu_instance_is_one_device_with_the_hosts_memory() -> None:
    instance = find_instance("ml.c7i.4xlarge")

    assert (instance.kind, instance.devices, instance.device_bytes) == ("cpu", 1, 32 * GIB)


@cases("large_jobs_find_a_machine_without_accelerators")
def test_large_jobs_find_a_machine_without_accelerators(
    name: str, vcpus: int, gib: int, usd_hour: float
) -> None:
    found = find_instance(name)

    assert (found.kind, found.vcpus, found.host_bytes) == ("cpu", vcpus, gib * GIB)
    assert (found.price_usd_hour, found.price_basis) == (usd_hour, "derived ec2x1.2")


@cases("unknown")
def test_an_unknown_name_gets_the_nearest_one_or_the_list(name: str, hint: str) -> None:
    with raises_code("UnknownInstance") as error:
        find_instance(name)

    assert str(error.value) == f"instance type {name!r} is not in the catalog"
    assert error.value.hint.startswith(hint)


def test_every_row_is_complete_and_named_once() -> None:
    rows = instances()

    assert len({row.name for row in rows}) == len(rows) == 167
    assert all(row.devices > 0 and row.device_bytes > 0 and row.source for row in rows)


def test_the_same_gpu_has_the_same_formats_in_the_catalog_and_on_this_machine() -> None:
    for row in instances():
        if row.compute_capability is not None:
            assert gpu_formats(row.compute_capability) == row.formats, row.name
