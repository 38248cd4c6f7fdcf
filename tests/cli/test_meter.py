"""Rate, time left and counts, on a clock that the tests move."""

from __future__ import annotations

import pytest

from packager.cli.meter import Amount, Meter
from packager.core.events import ImageEvent, LayerEvent, LayerState, StepEvent

GB = 10**9


def layer(number: int, done: int, size: int, state: LayerState = "streaming") -> LayerEvent:
    return LayerEvent(layer=number, label=f"weights {number}", size=size, done=done, state=state)


def meter_of(*sizes: int) -> Meter:
    meter = Meter(0.0)
    meter.take(ImageEvent(layers=sizes), 0.0)
    return meter


def stream(meter: Meter, number: int, size: int, *, rate: int, start: float, stop: float) -> None:
    """One event every 0.1 s."""
    for tick in range(1, round((stop - start) * 10) + 1):
        done = min(size, round(rate * tick / 10))
        meter.take(layer(number, done, size), start + tick / 10)


def test_a_steady_stream_has_its_rate_and_the_time_that_the_rest_takes() -> None:
    meter = meter_of(20 * GB)
    stream(meter, 0, 20 * GB, rate=GB, start=0, stop=5)

    now = meter.snapshot(5.0)

    assert (now.done, now.size) == (5 * GB, 20 * GB)
    assert now.rate == pytest.approx(GB, rel=0.01)
    assert now.eta_s == pytest.approx(15, rel=0.01)


def test_the_rate_follows_within_seconds_and_does_not_jump() -> None:
    meter = meter_of(100 * GB)
    stream(meter, 0, 100 * GB, rate=GB, start=0, stop=20)
    for tick in range(1, 301):  # half as fast from then on
        meter.take(layer(0, 20 * GB + tick * GB // 20, 100 * GB), 20 + tick / 10)
        if tick == 10:
            soon = meter.snapshot(21.0).rate

    assert soon == pytest.approx(0.97 * GB, rel=0.03)
    assert meter.snapshot(50.0).rate == pytest.approx(GB / 2, rel=0.01)


def test_a_stream_that_stands_still_slows_down_to_nothing() -> None:
    meter = meter_of(10 * GB)
    stream(meter, 0, 10 * GB, rate=GB, start=0, stop=2)

    rates = [meter.snapshot(float(now)).rate for now in (2, 4, 20)]

    assert rates == [pytest.approx(GB), pytest.approx(GB / 2), pytest.approx(GB / 10)]


def test_it_is_too_early_for_a_rate_in_the_first_second() -> None:
    meter = meter_of(10 * GB)
    meter.take(layer(0, GB, 10 * GB), 0.5)

    now = meter.snapshot(0.6)

    assert (now.rate, now.eta_s) == (None, None)


def test_layers_that_do_not_move_are_done_but_no_speed() -> None:
    meter = meter_of(5 * GB, 3 * GB, 2 * GB)
    meter.take(layer(0, 0, 5 * GB, "mounted"), 0.1)
    meter.take(layer(1, 0, 3 * GB, "known"), 0.1)
    stream(meter, 2, 2 * GB, rate=GB // 10, start=0, stop=10)

    now = meter.snapshot(10.0)

    assert (now.done, now.layers, now.layers_done) == (9 * GB, 3, 2)
    assert now.rate == pytest.approx(GB / 10, rel=0.01)
    assert now.eta_s == pytest.approx(10, rel=0.02)
    assert (now.mounted, now.known) == (
        Amount(layers=1, bytes=5 * GB),
        Amount(layers=1, bytes=3 * GB),
    )
    assert [each.label for each in now.active] == ["weights 2"]


def test_a_layer_that_is_sent_again_is_not_done_and_its_first_bytes_were_work() -> None:
    meter = meter_of(4 * GB)
    stream(meter, 0, 4 * GB, rate=GB, start=0, stop=2)
    meter.take(layer(0, 0, 4 * GB, "again"), 2.0)
    stream(meter, 0, 4 * GB, rate=GB, start=2, stop=4)

    now = meter.snapshot(4.0)

    assert now.done == 2 * GB
    assert now.rate == pytest.approx(GB, rel=0.01)


def test_a_finished_image_has_no_time_left() -> None:
    meter = meter_of(GB)
    meter.take(layer(0, GB, GB, "written"), 3.0)

    now = meter.snapshot(3.0)

    assert (now.eta_s, now.layers_done, now.streamed.layers, now.active) == (0.0, 1, 1, ())


def test_a_step_under_way_says_how_long_it_has_taken() -> None:
    meter = Meter(10.0)
    meter.take(StepEvent(step="model", detail="org/name", state="started"), 11.0)

    [step] = meter.snapshot(15.0).steps
    seconds = meter.take(StepEvent(step="model", detail="org/name", state="finished"), 16.0)

    assert (step.step, step.seconds, seconds) == ("model", 4.0, 5.0)
    assert meter.snapshot(17.0).steps == ()
