"""Which plans run on this machine."""

from __future__ import annotations

from dataclasses import replace

from packager.catalog.instances import find_instance
from packager.cli.run.fits_this_machine import not_this_machine, why_not_here
from packager.core.instance import Instance
from packager.core.units import GIB
from tests.support.cases import as_type, cases, read_tables

TABLES = read_tables(__file__)

PROCESSOR = as_type(TABLES["processor"], Instance)
ONE_GPU = as_type(TABLES["one_gpu"], Instance)


def test_what_is_planned_for_this_machine_runs_here() -> None:
    assert why_not_here(PROCESSOR, PROCESSOR) == ""
    assert why_not_here(replace(PROCESSOR, device_bytes=10**15), PROCESSOR) == ""


def test_an_instance_that_this_machine_is_runs_here() -> None:
    """Also where its operating system keeps back some of the memory of the data sheet."""
    kept_back = replace(ONE_GPU, device_bytes=21 * GIB)
    assert why_not_here(find_instance("ml.g5.xlarge"), kept_back) == ""
    assert why_not_here(find_instance("ml.g5.xlarge"), ONE_GPU) == ""
    assert why_not_here(find_instance("ml.g4dn.xlarge"), ONE_GPU) == ""


@cases("reasons")
def test_what_this_machine_lacks_is_the_reason(instance: str, has_gpu: bool, reason: str) -> None:
    here = ONE_GPU if has_gpu else PROCESSOR
    assert why_not_here(find_instance(instance), here) == reason


def test_another_processor_is_a_reason() -> None:
    arm = replace(PROCESSOR, name="ml.c7g.xlarge", machine="aarch64")

    assert "of the kind aarch64, this machine x86_64" in why_not_here(arm, PROCESSOR)


def test_the_error_says_how_to_go_on() -> None:
    error = not_this_machine("8xH100-80", "that has more", "packager build --model m")

    assert error.message == "a plan for '8xH100-80' cannot run on this machine: that has more"
    assert "`packager build --model m` builds the image" in error.hint
    assert error.exit_code == 2
