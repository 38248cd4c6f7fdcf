"""Which instance a step could run on, and why."""

from __future__ import annotations

from dataclasses import replace

from packager.core.recipe import Estimate, Step
from packager.planning.job import job_instance
from tests.planning.headers import LOCAL_CPU

GB = 10**9
SMALL = replace(LOCAL_CPU, name="ml.small", host_bytes=16 * GB, price_usd_hour=0.5)
LARGE = replace(SMALL, name="ml.large", host_bytes=64 * GB, price_usd_hour=1.0)
GPUS = replace(
    LARGE, name="ml.gpus", kind="nvidia", devices=4, host_bytes=192 * GB, price_usd_hour=7.0
)
UNPRICED = replace(LARGE, name="ml.unpriced", price_usd_hour=None)
EVERYTHING = (GPUS, UNPRICED, LARGE, SMALL, replace(LARGE, name="local", price_usd_hour=0.0))


def step(memory_bytes: int, gpus: int = 0) -> Step:
    needs = Estimate(memory_bytes=memory_bytes)
    return Step(name="quantize", tool="tool", gives="model", needs=needs, gpus=gpus)


def test_the_cheapest_that_holds_the_step_is_named_with_its_price() -> None:
    assert job_instance(step(8 * GB), EVERYTHING).startswith("ml.small ($0.50 an hour)")
    assert job_instance(step(32 * GB), EVERYTHING).startswith("ml.large ($1.00 an hour)")
    assert job_instance(step(100 * GB), EVERYTHING).startswith("ml.gpus")


def test_a_step_that_asks_for_gpus_gets_as_many() -> None:
    assert job_instance(step(8 * GB, gpus=2), EVERYTHING).startswith("ml.gpus")
    assert job_instance(step(8 * GB, gpus=8), EVERYTHING) == ""


def test_a_result_for_one_gpu_is_made_on_that_gpu() -> None:
    other = replace(GPUS, name="ml.other", device_name="L4", price_usd_hour=2.0)
    wanted = replace(step(8 * GB, gpus=2), gpu=GPUS.device_name)

    assert job_instance(wanted, (other, GPUS)).startswith("ml.gpus")
    assert job_instance(wanted, (other,)) == ""


def test_nothing_is_said_where_nothing_holds_it_or_nobody_knows() -> None:
    assert job_instance(step(500 * GB), EVERYTHING) == ""
    assert job_instance(step(0), EVERYTHING) == ""
