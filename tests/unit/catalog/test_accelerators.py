from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.accelerators import accelerator_name, accelerator_of
from packager.catalog.instances import find_instance, instances
from packager.core.catalog import Accelerator
from packager.core.instance import Instance
from packager.core.units import GIB, MIB
from tests.support.cases import as_type, cases, fields_of, read_tables


@cases("figures")
def test_a_device_has_its_figures(instance: str, expect: dict[str, Any]) -> None:
    assert fields_of(accelerator_of(find_instance(instance)), expect) == expect


def test_a_gpu_has_the_formats_of_its_instance() -> None:
    instance = find_instance("ml.p5.48xlarge")

    assert "fp8_w8a8" in accelerator_of(instance).formats
    assert find_instance("ml.trn2.48xlarge").cores_per_device == 2


@cases("names_that_drivers_give_are_recognised")
def test_names_that_drivers_give_are_recognised(driver_name: str, name: str) -> None:
    assert accelerator_name(driver_name) == name


def local(device_name: str) -> Instance:
    return replace(
        find_instance("ml.p5.48xlarge"),
        name="local",
        device_name=device_name,
        device_bytes=79 * GIB,
        source="",
        date="",
        link="",
    )


def test_this_machine_gets_figures_by_its_drivers_names() -> None:
    device = accelerator_of(local("NVIDIA H100 80GB HBM3"))

    assert device.bandwidth_bytes_s == 3350e9
    assert device.usable_bytes == 79 * GIB
    assert device.link == ""  # nobody asked the driver
    assert device.date


def test_a_stranger_is_what_the_instance_says_and_nothing_more() -> None:
    device = accelerator_of(local("NVIDIA Something"))

    assert device.name == "NVIDIA Something"
    assert (device.bandwidth_bytes_s, device.tflops) == (0.0, {})


def test_own_figures_win_but_memory_and_link_are_the_instances() -> None:
    own = as_type(read_tables(__file__)["h100"], Accelerator)
    device = accelerator_of(find_instance("ml.p5.48xlarge"), (own,))

    assert (device.bandwidth_bytes_s, device.tflops) == (2000e9, {"bf16": 750})
    assert device.usable_bytes == 81920 * MIB
    assert (device.link, device.link_bytes_s) == ("nvlink", 0.0)


def test_every_device_of_the_catalog_has_a_link_where_there_are_several() -> None:
    for instance in instances():
        if instance.kind == "nvidia" and instance.devices > 1:
            assert accelerator_of(instance).link_bytes_s > 0, instance.name
