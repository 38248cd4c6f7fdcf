"""Requests that are made before they are needed, and by whom."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator

import pytest

from packager.addons.bench.load.ahead import MOST_KEPT, known_count, made_ahead
from packager.addons.bench.load.values import Level, LoadPlan, LoadRequest
from tests.support.cases import cases


class Maker:
    """Makes requests, and notes in which thread."""

    def __init__(self, count: int | None = None, *, fails_at: int | None = None) -> None:
        self.count = count
        self.fails_at = fails_at
        self.made: list[bool] = []  # in the main thread

    def __iter__(self) -> Iterator[LoadRequest]:
        numbers = itertools.count() if self.count is None else range(self.count)
        for number in numbers:
            if number == self.fails_at:
                raise ValueError("the tokenizer broke")
            self.made.append(threading.current_thread() is threading.main_thread())
            yield LoadRequest(endpoint=str(number), body={})

    @property
    def in_advance(self) -> int:
        return sum(self.made)


def closed(concurrency: int, **more: float | None) -> LoadPlan:
    return LoadPlan(level=Level(concurrency=concurrency), **more)  # type: ignore[arg-type]


def opened(rate: float, **more: float | None) -> LoadPlan:
    level = Level(rate=rate, arrivals="constant")
    return LoadPlan(level=level, **more)  # type: ignore[arg-type]


@cases("a_load_takes")
def test_a_load_takes(plan: LoadPlan, count: int | None) -> None:
    assert known_count(plan) == count


@cases("all_are_made_before_the_first_is_sent_where_their_number_is_known")
def test_all_are_made_before_the_first_is_sent_where_their_number_is_known(
    plan: LoadPlan, count: int
) -> None:
    maker = Maker()

    with made_ahead(iter(maker), plan) as requests:
        assert maker.in_advance == len(maker.made) == count
        assert [one.endpoint for one in requests] == [str(number) for number in range(count)]


@pytest.fixture
def turn_s() -> Iterator[float]:
    """Set the interpreter's own switch interval; another test may have left a shorter one."""
    earlier = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield sys.getswitchinterval()
    sys.setswitchinterval(earlier)


def test_some_are_made_beforehand_and_the_others_in_a_thread(turn_s: float) -> None:
    maker = Maker()

    with made_ahead(iter(maker), closed(16, duration_s=60.0, warm_up=2)) as requests:
        assert maker.in_advance == 130
        found = [one.endpoint for one in itertools.islice(requests, 500)]
        assert sys.getswitchinterval() < turn_s

    assert found == [str(number) for number in range(500)]
    assert maker.in_advance == 130
    assert 500 <= len(maker.made) <= 500 + 130 + 2
    assert sys.getswitchinterval() == turn_s
    assert "requests" not in {thread.name for thread in threading.enumerate()}


def test_an_error_of_the_thread_comes_where_the_request_is_asked_for() -> None:
    with made_ahead(iter(Maker(fails_at=70)), closed(1, duration_s=60.0)) as requests:
        assert len(list(itertools.islice(requests, 70))) == 70
        with pytest.raises(ValueError, match="the tokenizer broke"):
            next(requests)


def test_requests_end_where_the_maker_ends() -> None:
    with made_ahead(iter(Maker(100)), closed(1, duration_s=60.0)) as requests:
        assert len(list(requests)) == 100


def test_a_rate_of_more_than_are_kept_goes_on_in_a_thread() -> None:
    maker = Maker()

    with made_ahead(iter(maker), opened(1000.0, duration_s=10.0)) as requests:
        assert maker.in_advance == MOST_KEPT
        assert len(list(itertools.islice(requests, 9000))) == 9000
