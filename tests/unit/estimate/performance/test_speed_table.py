"""The table of coefficients, and the all-reduces that were measured."""

from __future__ import annotations

import copy
import math
import tomllib
from dataclasses import replace

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance
from packager.core.catalog import Accelerator
from packager.estimate.performance.exchange import exchange_s, is_measured
from packager.estimate.performance.speed_table import TABLE, parse_table, speed_table
from tests.support.cases import cases_of

cases = cases_of(__file__)
CELLS = [cell for cell in speed_table().cells.values() if cell.device]
IDS = [f"{cell.engine} {cell.device} {cell.kind}" for cell in CELLS]


def device(instance: str) -> Accelerator:
    return accelerator_of(find_instance(instance))


@pytest.mark.parametrize("cell", CELLS, ids=IDS)
def test_every_coefficient_is_positive_so_that_more_work_never_takes_less_time(cell) -> None:
    assert all(value > 0 for value in cell.step + cell.prompt)
    assert (len(cell.step), len(cell.prompt)) == (12, 4)


@pytest.mark.parametrize("cell", CELLS, ids=IDS)
def test_a_cell_says_what_it_rests_on(cell) -> None:
    assert cell.points >= 40
    assert 8 <= cell.curves <= cell.points
    assert 0 < cell.median < cell.errors.tpot
    assert cell.forms


def test_models_that_were_left_out_are_missed_by_more_than_curves_that_were() -> None:
    table = speed_table()

    assert (
        table.of_engine("", "dense").errors.tpot > table.cells["vllm", "H100", "dense"].errors.tpot
    )


def test_a_table_fitted_to_other_terms_is_refused() -> None:
    document = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    other = copy.deepcopy(document)
    other["terms"]["step"] = ["dense_weights"]

    assert parse_table(document).cells
    with pytest.raises(ValueError, match="refit it"):
        parse_table(other)


@cases("all_reduces")
def test_all_reduces_of_l40s_take_what_was_seen(degree: int, elements: int, us: float) -> None:
    """Figures of vLLM 0.14 between those that the table keeps: it bends between 11 sizes."""
    found = exchange_s(device("ml.g6e.12xlarge"), degree, elements)

    assert found * 1e6 == pytest.approx(us, rel=0.2)


def test_small_all_reduces_over_nvlink_take_microseconds_and_over_pcie_tens() -> None:
    over_nvlink = exchange_s(device("ml.p5.48xlarge"), 8, 8192)
    over_pcie = exchange_s(device("ml.g6e.48xlarge"), 8, 8192)

    assert over_nvlink == pytest.approx(5.2e-6, rel=0.05)
    assert over_pcie == pytest.approx(27.4e-6, rel=0.05)


def test_one_device_exchanges_nothing() -> None:
    assert exchange_s(device("ml.p5.4xlarge"), 1, 1e6) == 0.0


@cases("devices")
def test_whether_all_reduces_of_a_device_were_measured(instance: str, measured: bool) -> None:
    assert is_measured(device(instance)) == measured


def test_cards_on_a_slower_bus_take_longer_than_those_that_were_measured() -> None:
    """A T4 sits in PCIe 3.0: half of what an L40S has."""
    t4, l40s = device("ml.g4dn.12xlarge"), device("ml.g6e.12xlarge")

    assert exchange_s(t4, 4, 1e6) == pytest.approx(2 * exchange_s(l40s, 4, 1e6))


def test_an_h100_over_pcie_is_not_taken_for_one_over_nvlink() -> None:
    h100 = device("ml.p5.48xlarge")
    card = replace(h100, link="pcie", link_bytes_s=32e9)

    assert exchange_s(card, 4, 1e6) == pytest.approx(exchange_s(device("ml.g6e.12xlarge"), 4, 1e6))
    assert exchange_s(card, 4, 1e6) > 10 * exchange_s(h100, 4, 1e6)


def test_a_degree_between_two_that_were_measured_costs_what_the_larger_does() -> None:
    h100 = device("ml.p5.48xlarge")

    assert exchange_s(h100, 6, 1e6) == exchange_s(h100, 8, 1e6)
    assert exchange_s(h100, 16, 1e6) == exchange_s(h100, 8, 1e6)


def test_links_that_nobody_measured_are_a_ring() -> None:
    inf2 = replace(device("ml.inf2.48xlarge"), link="neuronlink", link_bytes_s=64e9)

    assert exchange_s(inf2, 2, 1e9) == pytest.approx(12e-6 + 4 / 2 * 1e9 / 64e9)


def test_times_grow_with_messages() -> None:
    h100 = device("ml.p5.48xlarge")
    times = [exchange_s(h100, 8, 2.0**power) for power in range(32)]

    assert times == sorted(times)
    assert all(math.isfinite(time) and time > 0 for time in times)
