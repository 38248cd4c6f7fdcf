"""When the requests of an open loop are due, and when metrics stand still."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from typing import Any

import pytest

from packager.addons.bench.load.phase import arrivals
from packager.addons.bench.load.run import settled
from packager.addons.bench.load.values import Level, LoadPlan


def due(level: Level, count: int, seed: int = 0) -> list[float]:
    return list(itertools.islice(arrivals(LoadPlan(level=level, seed=seed)), count))


def test_constant_arrivals_keep_their_distance() -> None:
    assert due(Level(rate=4.0, arrivals="constant"), 5) == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_random_arrivals_have_the_rate_in_the_mean_and_are_repeated_by_their_seed() -> None:
    times = due(Level(rate=4.0), 4001, seed=7)

    assert times[-1] / 4000 == pytest.approx(0.25, rel=0.05)
    gaps = [later - one for one, later in itertools.pairwise(times)]
    assert sum(gap > 0.25 for gap in gaps) / 4000 == pytest.approx(0.368, abs=0.03)  # 1 / e
    assert times == due(Level(rate=4.0), 4001, seed=7)
    assert times != due(Level(rate=4.0), 4001, seed=8)


def test_a_closed_loop_has_no_arrivals() -> None:
    assert due(Level(concurrency=4), 5) == []


class Metrics:
    """Tells one text after the other, the last one for ever."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.slept: list[float] = []

    async def read(self) -> str:
        return self._texts.pop(0) if len(self._texts) > 1 else self._texts[0]

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def finished(work: Coroutine[Any, Any, str]) -> str:
    """Run what waits for nothing, without an event loop, which needs sockets."""
    with pytest.raises(StopIteration) as end:
        work.send(None)
    return str(end.value.value)


def test_metrics_are_read_until_what_engines_count_stands_still() -> None:
    metrics = Metrics("vllm:spec 1\nup 1", "vllm:spec 2\nup 2", "vllm:spec 2\nup 3", "no")

    assert finished(settled(metrics.read, metrics.sleep)) == "vllm:spec 2\nup 3"
    assert metrics.slept == [0.2, 0.2]


def test_metrics_that_never_stand_still_are_read_for_three_seconds() -> None:
    metrics = Metrics(*(f"vllm:generation_tokens_total {number}" for number in range(99)))

    assert finished(settled(metrics.read, metrics.sleep)) == "vllm:generation_tokens_total 15"
    assert sum(metrics.slept) == pytest.approx(3.0)


def test_a_server_without_metrics_is_asked_once() -> None:
    metrics = Metrics("")

    assert finished(settled(metrics.read, metrics.sleep)) == ""
    assert metrics.slept == []
