from __future__ import annotations

from dataclasses import replace

import pytest

from packager.catalog.accelerators import accelerator_name, accelerator_of
from packager.catalog.instances import find_instance, instances
from packager.core.catalog import Accelerator
from packager.core.instance import Instance
from packager.core.units import GIB, MIB
from tests.support.case_tables import cases_of

cases = cases_of(__file__)


def test_a_gpu_has_its_figures_and_what_joins_it_to_the_others() -> None:
    device = accelerator_of(find_instance("ml.p5.48xlarge"))

    assert (device.name, device.kind, device.compute_capability) == ("H100", "nvidia", 9.0)
    assert device.bandwidth_bytes_s == 3350e9
    assert device.tflops == {"bf16": 989, "int8": 1978, "fp8": 1978}
    assert (device.link, device.link_bytes_s) == ("nvlink", 450e9)
    assert "fp8_w8a8" in device.formats


@pytest.mark.parametrize(
    ("instance", "visible_mib"),
    [("ml.g5.12xlarge", 22888), ("ml.p5.48xlarge", 81559), ("ml.p5en.48xlarge", 143771)],
)
def test_usable_memory_is_what_software_sees(instance: str, visible_mib: int) -> None:
    assert accelerator_of(find_instance(instance)).usable_bytes == visible_mib * MIB


def test_gpus_of_g_instances_talk_over_pcie() -> None:
    device = accelerator_of(find_instance("ml.g5.12xlarge"))

    assert (device.link, device.link_bytes_s) == ("pcie", 32e9)


def test_one_gpu_has_nobody_to_talk_to() -> None:
    device = accelerator_of(find_instance("ml.g5.xlarge"))

    assert (device.link, device.link_bytes_s) == ("", 0.0)


def test_a_neuron_core_has_its_share_of_the_chip() -> None:
    device = accelerator_of(find_instance("ml.inf2.48xlarge"))

    assert (device.name, device.neuron_core, device.link) == ("NeuronCore-v2", "v2", "neuronlink")
    assert device.usable_bytes == 16 * GIB
    assert device.bandwidth_bytes_s == 410e9
    assert device.tflops["bf16"] == 95


def test_trainium2_counts_two_physical_cores_as_one() -> None:
    instance = find_instance("ml.trn2.48xlarge")
    device = accelerator_of(instance)

    assert (instance.devices, instance.cores_per_device) == (64, 2)
    assert device.usable_bytes == 24 * GIB
    assert device.bandwidth_bytes_s == 725e9


def test_the_server_edition_of_rtx_pro_6000_has_its_own_bandwidth() -> None:
    # The workstation card has 1,792 GB/s: 12 % more speed was promised than there is.
    assert accelerator_of(find_instance("ml.g7e.48xlarge")).bandwidth_bytes_s == 1597e9


def test_figures_nobody_published_are_left_out() -> None:
    device = accelerator_of(find_instance("ml.g7.2xlarge"))

    assert (device.bandwidth_bytes_s, device.tflops) == (800e9, {})
    assert accelerator_of(find_instance("ml.c7i.xlarge")).bandwidth_bytes_s == 0.0


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
    own = Accelerator(
        name="H100",
        kind="nvidia",
        usable_bytes=1,
        bandwidth_bytes_s=2000e9,
        tflops={"bf16": 750},
        link="pcie",
        link_bytes_s=60e9,
        source="asset list",
        date="2026-11-20",
    )
    device = accelerator_of(find_instance("ml.p5.48xlarge"), (own,))

    assert (device.bandwidth_bytes_s, device.tflops) == (2000e9, {"bf16": 750})
    assert device.usable_bytes == 81920 * MIB
    assert (device.link, device.link_bytes_s) == ("nvlink", 0.0)


def test_every_device_of_the_catalog_has_a_link_where_there_are_several() -> None:
    for instance in instances():
        if instance.kind == "nvidia" and instance.devices > 1:
            assert accelerator_of(instance).link_bytes_s > 0, instance.name
