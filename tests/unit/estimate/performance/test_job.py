"""Where a step could run, how long it takes there and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import instances
from packager.core.devices import GpuUse
from packager.core.instance import Instance
from packager.core.model import ModelProfile
from packager.core.recipe import CacheStatus, Estimate, Step
from packager.estimate.performance.amounts import TextAmounts
from packager.estimate.performance.job import MachineOffer, Market, cheapest_place, with_effort
from packager.models.architectures.profile import make_profile
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, LOCAL_CPU, model_of
from tests.support.known import known
from tests.unit.estimate.performance.test_effort import HERE, past, step_of

cases = cases_of(__file__)
GB = 10**9
SMALL = replace(LOCAL_CPU, name="ml.small", host_bytes=16 * GB, price_usd_hour=0.5)
LARGE = replace(SMALL, name="ml.large", host_bytes=64 * GB, price_usd_hour=1.0)
GPUS = replace(
    LARGE, name="ml.gpus", kind="nvidia", devices=4, host_bytes=192 * GB, price_usd_hour=0.1
)
UNPRICED = replace(LARGE, name="ml.unpriced", price_usd_hour=None)
EVERYTHING = (GPUS, UNPRICED, LARGE, SMALL, replace(LARGE, name="local", price_usd_hour=0.0))
TEXTS = TextAmounts(count=256, tokens=256 * 512)
EIGHT_B, SEVENTY_B = (make_profile(model_of(each))[0] for each in (LLAMA_3_8B, LLAMA_3_70B))


def market(*there: Instance, **more: Any) -> Market:
    return Market(instances=there, accelerator_of=accelerator_of, **more)


def step(memory_bytes: int, gpus: int = 0) -> Step:
    needs = Estimate(memory_bytes=memory_bytes)
    return Step(name="quantize", tool="tool", gives="model", needs=needs, gpus=gpus)


def name_of(place: MachineOffer | None) -> str:
    return place.instance.name if place else ""


@cases("places")
def test_without_a_time_the_price_is_named(memory_gb: int, gpus: int | None, place: str) -> None:
    found = cheapest_place(step(memory_gb * GB, gpus=gpus or 0), market(*EVERYTHING))

    assert name_of(found) == place


def test_a_large_step_without_gpus_is_done_by_processors() -> None:
    found = known(cheapest_place(step_of(SEVENTY_B, TEXTS, "awq"), market(*instances())))

    assert found.instance.kind == "cpu"
    assert found.instance.host_bytes >= 2 * SEVENTY_B.weight_bytes


def test_a_result_for_one_gpu_is_made_on_that_gpu() -> None:
    other = replace(GPUS, name="ml.other", device_name="L4", price_usd_hour=0.01)
    wanted = replace(step(8 * GB, gpus=2), gpu=GPUS.device_name)

    assert name_of(cheapest_place(wanted, market(other, GPUS))) == "ml.gpus"
    assert cheapest_place(wanted, market(other)) is None


def test_ec2s_prices_are_not_compared_with_sagemakers() -> None:
    cheaper = replace(SMALL, name="c9.small", cloud="ec2", price_usd_hour=0.1)

    assert name_of(cheapest_place(step(8 * GB), market(cheaper, SMALL))) == "ml.small"
    assert cheapest_place(step(8 * GB), market(cheaper)) is None


def test_what_is_compiled_for_this_processor_is_compiled_nowhere_else() -> None:
    needs = Estimate(memory_bytes=8 * GB, only_here=True)
    assert cheapest_place(replace(step(0), needs=needs), market(*EVERYTHING)) is None


def test_the_whole_job_decides_and_not_the_hour() -> None:
    slow = replace(SMALL, name="ml.slow", host_bytes=64 * GB, family="g5", price_usd_hour=0.3)
    fast = replace(SMALL, name="ml.fast", host_bytes=64 * GB, family="m7i", price_usd_hour=0.6)
    found = cheapest_place(step_of(EIGHT_B, TEXTS, "awq"), market(slow, fast))

    assert name_of(found) == "ml.fast"
    assert found is not None
    assert found.usd == pytest.approx(found.timing.seconds / 3600 * 0.6)


def test_cores_that_a_step_does_not_use_are_not_paid_for() -> None:
    one_thread = known(cheapest_place(step_of(EIGHT_B, TEXTS, "awq"), market(*instances())))
    all_cores = known(cheapest_place(step_of(EIGHT_B, TEXTS, "awq", env={}), market(*instances())))

    assert one_thread.instance.vcpus <= all_cores.instance.vcpus
    assert all_cores.timing.seconds < one_thread.timing.seconds


def test_a_machine_that_ends_within_five_days_comes_first() -> None:
    slow = replace(SMALL, name="ml.slow", host_bytes=64 * GB, family="m7i", price_usd_hour=0.001)
    fast = replace(slow, name="ml.fast", vcpus=64, price_usd_hour=5.0)
    long = step_of(EIGHT_B, TextAmounts(count=1024, tokens=1024 * 1024), "awq", env={})
    short = step_of(EIGHT_B, TEXTS, "awq", env={})

    assert name_of(cheapest_place(long, market(slow, fast))) == "ml.fast"
    assert name_of(cheapest_place(short, market(slow, fast))) == "ml.slow"


def able(profile: ModelProfile, texts: TextAmounts = TEXTS, **use: Any) -> Step:
    layer = profile.weight_bytes // profile.layers
    use = {"most": 1, "each_bytes": 4 * GB + 2 * layer, **use}
    return replace(step_of(profile, texts, "awq"), gpu_use=GpuUse(**use))


@pytest.mark.parametrize("profile", [EIGHT_B, SEVENTY_B], ids=["8B", "70B"])
def test_long_calibration_is_cheaper_on_one_gpu_and_none_idles(profile: ModelProfile) -> None:
    found = known(cheapest_place(able(profile), market(*instances())))

    assert (found.instance.kind, found.instance.devices, found.gpus) == ("nvidia", 1, 1)
    assert found.instance.host_bytes >= 2 * profile.weight_bytes
    alone = known(cheapest_place(step_of(profile, TEXTS, "awq"), market(*instances())))
    assert known(found.usd) < known(alone.usd)


def test_a_gpu_too_small_for_a_layer_is_not_proposed() -> None:
    found = known(cheapest_place(able(EIGHT_B, each_bytes=30 * GB), market(*instances())))

    assert found.instance.device_bytes > 30 * GB


def test_a_job_that_a_gpu_does_not_help_stays_on_a_processor() -> None:
    found = known(cheapest_place(able(EIGHT_B, helps=False), market(*instances())))

    assert (found.instance.kind, found.gpus) == ("cpu", 0)


def told(step: Step, **more: Any) -> CacheStatus:
    forecast = CacheStatus(step="quantize", tool="llmcompressor", state="miss")
    return with_effort(forecast, step, market(*instances(), **more))


def test_a_miss_is_told_with_time_and_dollars_here_and_elsewhere() -> None:
    found = told(step_of(EIGHT_B, TEXTS, "awq"), here=HERE)

    assert found.seconds_from == "estimate"
    assert 24 * 3600 < found.seconds < 72 * 3600
    assert found.where.startswith("ml.r7i.xlarge ($0.32 an hour): the cheapest for the whole job")
    assert found.where.endswith("of memory, no GPU is used")
    assert found.where_usd == pytest.approx(found.where_seconds / 3600 * 0.3175)


def test_past_runs_of_this_machine_correct_the_time_here_alone() -> None:
    needs = step_of(EIGHT_B, TEXTS, "awq")
    plain = told(needs, here=HERE)
    run = replace(past(plain.seconds, 3 * plain.seconds), size_bytes=1)
    found = told(needs, here=HERE, past=(run,))

    assert (found.seconds_from, found.seconds) == ("past", pytest.approx(3 * plain.seconds))
    assert found.where_seconds == plain.where_seconds


def test_a_step_for_gpus_takes_no_time_on_a_machine_without() -> None:
    found = told(step_of(EIGHT_B, TEXTS, "awq", env={}, gpus=1), here=HERE)

    assert (found.seconds, found.seconds_from) == (0.0, "")
    assert "ml.g" in found.where
    assert found.where_usd is not None


def test_a_hit_keeps_the_time_that_it_saves() -> None:
    hit = CacheStatus(step="quantize", tool="t", state="hit", seconds=90.0)
    assert with_effort(hit, step_of(EIGHT_B, TEXTS, "awq"), market(*instances(), here=HERE)) == hit
