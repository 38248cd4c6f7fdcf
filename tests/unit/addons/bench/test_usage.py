"""Memory and processor time of a container, as Docker's statistics tell them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from packager.addons.bench.usage import UseMeter, cpu_seconds, memory_bytes
from packager.core.bench import ContainerUse
from tests.support.cases import cases


def told(cpu_ns: int, used: int, inactive: int = 0) -> dict[str, Any]:
    return {
        "cpu_stats": {"cpu_usage": {"total_usage": cpu_ns}},
        "memory_stats": {"usage": used, "stats": {"inactive_file": inactive}},
    }


class Container:
    def __init__(self, *answers: Mapping[str, Any] | Exception) -> None:
        self.answers: Iterator[Mapping[str, Any] | Exception] = iter(answers)

    def stats(self, *, stream: bool, one_shot: bool) -> Mapping[str, Any]:
        assert not stream
        assert one_shot
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_the_peak_and_the_time_between_are_told() -> None:
    container = Container(
        told(2_000_000_000, 500), told(3_500_000_000, 900, 100), told(7_250_000_000, 600)
    )

    with UseMeter(container, interval_s=600) as meter:
        meter.sample()

    assert meter.use == ContainerUse(peak_memory_bytes=800, cpu_seconds=5.25)


def test_memory_of_a_gpu_is_its_highest_reading() -> None:
    memory = iter((10, 30, 20))
    container = Container(told(1, 5), told(2, 5), told(3, 5))

    with UseMeter(container, interval_s=600, gpu_memory=lambda: next(memory)) as meter:
        meter.sample()

    assert meter.use is not None
    assert meter.use.gpu_memory_bytes == 30


@pytest.mark.parametrize(
    "container",
    [
        pytest.param(None, id="an-address"),
        pytest.param(Container({}, {}), id="an-engine-that-does-not-tell"),
        pytest.param(Container(OSError(), OSError()), id="an-engine-that-went-away"),
        pytest.param(
            Container(*2 * [{"memory_stats": {"usage": "5"}, "cpu_stats": {"cpu_usage": 3}}]),
            id="an-engine-of-another-form",
        ),
    ],
)
def test_what_is_not_told_is_unknown(container: Any) -> None:
    with UseMeter(container, interval_s=600) as meter:
        pass

    assert meter.use is None


def test_a_container_that_was_started_again_tells_no_time() -> None:
    with UseMeter(Container(told(9_000_000_000, 5), told(1_000_000_000, 5)), interval_s=600) as it:
        pass

    assert it.use == ContainerUse(peak_memory_bytes=5)


@cases("memory")
def test_memory_is_without_droppable_files(stats: dict[str, Any], used: int | None) -> None:
    assert memory_bytes({"memory_stats": stats}) == used


def test_processor_time_is_in_seconds() -> None:
    assert cpu_seconds(told(1_500_000_000, 1)) == 1.5
    assert cpu_seconds({"cpu_stats": {"cpu_usage": {"total_usage": True}}}) is None
