"""Machines named by their devices, as `--instance 8xH100-80` does."""

from __future__ import annotations

import pytest

from packager.catalog.accelerators import accelerator_of, accelerator_rows
from packager.catalog.bare import AmbiguousDevice, UnknownDevice
from packager.catalog.instances import find_instance
from packager.core.units import MIB
from tests.support.cases import cases
from tests.support.refusals import raises_code


@cases("one_machine_has_one_name_however_it_is_spelled")
def test_one_machine_has_one_name_however_it_is_spelled(name: str, canonical: str) -> None:
    assert find_instance(name).name == canonical
    assert find_instance(canonical).name == canonical


@pytest.mark.parametrize(
    ("name", "link"),
    [(row.spelled, row.link) for row in accelerator_rows().values() if row.spelled],
)
def test_every_device_of_the_catalog_makes_a_machine(name: str, link: str) -> None:
    one, eight = find_instance(f"1x{name}"), find_instance(f"8x{name}")

    assert (one.name, eight.name) == (f"1x{name}", f"8x{name}")
    assert one.device_bytes == eight.device_bytes > 0
    assert (one.link, one.cloud, one.price_usd_hour) == ("", "bare", None)
    assert (accelerator_of(eight).link_bytes_s > 0) is bool(link)
    assert accelerator_of(eight).bandwidth_bytes_s > 0


@pytest.mark.parametrize(
    "spelled", [row.spelled for row in accelerator_rows().values() if row.spelled]
)
def test_a_device_is_found_without_dashes_blanks_and_capitals(spelled: str) -> None:
    plain = spelled.replace("-", "")

    for name in (plain, plain.lower(), plain.upper(), f"NVIDIA{plain}"):
        assert find_instance(f"8x{name}").name == f"8x{spelled}", name


@pytest.mark.parametrize("name", ["rtx40900", "h1000", "a100800", "4090rtxfoo"])
def test_parts_of_a_longer_word_are_no_device(name: str) -> None:
    with pytest.raises(UnknownDevice):
        find_instance(f"8x{name}")


def test_devices_bring_memory_formats_capability_and_link() -> None:
    found = find_instance("8xH100-80")
    rented = find_instance("ml.p5.48xlarge")

    assert found.device_bytes == 81920 * MIB
    assert (found.kind, found.device_name, found.devices) == ("nvidia", "H100", 8)
    assert (found.compute_capability, found.link) == (9.0, "NVSwitch")
    assert found.formats == rented.formats
    assert accelerator_of(found).tflops == accelerator_of(rented).tflops
    assert accelerator_of(found).usable_bytes == 81559 * MIB
    assert (found.host_bytes, found.vcpus) == (None, None)
    assert found.price_basis == "none: say it with --usd-per-hour"


@cases("cards_talk_over_pcie_and_boards_over_their_own_links")
def test_cards_talk_over_pcie_and_boards_over_their_own_links(name: str, link: str) -> None:
    assert find_instance(name).link == link


def test_a100_alone_is_one_of_several_devices() -> None:
    with pytest.raises(AmbiguousDevice) as error:
        find_instance("8xA100")

    assert str(error.value) == "'A100' of '8xA100' is one of several devices"
    assert error.value.hint == "say which: A100-40 or A100-80 or A100-80-PCIe"


@cases("a_misspelled_device_gets_the_nearest_one")
def test_a_misspelled_device_gets_the_nearest_one(name: str, guess: str) -> None:
    with pytest.raises(UnknownDevice) as error:
        find_instance(name)

    assert f"did you mean {guess}" in error.value.hint


@pytest.mark.parametrize("name", ["8xNeuronCore-v2", "16xTrainium2", "2xlarge", "3x-", "3x80"])
def test_what_is_no_device_gets_the_list(name: str) -> None:
    with pytest.raises((UnknownDevice, AmbiguousDevice)) as error:
        find_instance(name)

    assert "H100-80" in error.value.hint


@pytest.mark.parametrize("name", ["0xH100", "65xH100", "100000xL4"])
def test_a_machine_has_1_to_64_devices(name: str) -> None:
    with raises_code("DeviceCount") as error:
        find_instance(name)

    assert str(error.value) == f"{name!r} is not a machine: a machine has 1 to 64 devices"


@pytest.mark.parametrize("name", ["xH100", "-1xH100", "8x", "H100", "8.5xH100"])
def test_other_forms_are_names_of_instance_types(name: str) -> None:
    with raises_code("UnknownInstance"):
        find_instance(name)
