"""Rate, time left and counts, on a clock that the tests move."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.cli.displays import count_line, total_line
from packager.cli.meter import LONGEST_LEFT_S, Amount, Meter
from packager.core.events import (
    Event,
    ImageEvent,
    LayerEvent,
    LayerState,
    StagesEvent,
    StepEvent,
    StepState,
    followed_by,
)
from tests.support.cases import as_type, read_tables

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
    assert (now.mounted, now.known) == as_type(read_tables(__file__)["amounts"], tuple[Amount, ...])
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


def test_a_layer_that_is_read_before_it_is_sent_fills_its_bar_once() -> None:
    meter = meter_of(4 * GB)
    done = []
    for at, (passed, state) in enumerate(
        [(2, "hashing"), (4, "hashing"), (1, "streaming"), (4, "streaming"), (4, "written")]
    ):
        meter.take(layer(0, passed * GB, 4 * GB, state), float(at))  # type: ignore[arg-type]
        done.append(meter.snapshot(float(at)).done)

    assert done == [GB, 2 * GB, 5 * GB // 2, 4 * GB, 4 * GB]


def test_a_layer_that_is_compressed_on_its_way_does_not_shrink_what_is_done() -> None:
    meter = meter_of(4 * GB, 4 * GB)
    stream(meter, 0, 4 * GB, rate=2 * GB, start=0, stop=2)
    meter.take(layer(0, GB, GB, "written"), 2.0)  # a quarter is left

    now = meter.snapshot(2.0)

    assert (now.done, now.size, now.streamed.bytes) == (4 * GB, 8 * GB, GB)
    assert meter.layer(0, 2.0).size == GB


def running(done: int, size: int, *, kept: int = 0, step: str = "model") -> StepEvent:
    return StepEvent(step=step, state="running", done=done, size=size, kept=kept)


def test_files_of_an_earlier_download_are_done_and_no_speed() -> None:
    meter = Meter(0.0)
    meter.take(StepEvent(step="model", state="started"), 0.0)
    for second in range(1, 6):
        meter.take(running((100 + second) * GB, 140 * GB, kept=100 * GB), float(second))

    [step] = meter.snapshot(5.0).steps

    assert (step.done, step.rate, step.eta_s) == (105 * GB, GB, 35.0)


@pytest.mark.parametrize("done", [7_000_000, 0, -5], ids=str)
def test_bytes_that_fall_are_neither_a_speed_nor_a_time(done: int) -> None:
    """The first `docker:` build showed `-7020388 B/s, -1:58:42 left`."""
    meter = Meter(0.0)
    meter.take(running(8_000_000, 10_000_000, step="engine"), 1.0)
    meter.take(running(done, 10_000_000, step="engine"), 3.0)

    [step] = meter.snapshot(3.0).steps

    assert (step.done, step.rate, step.eta_s) == (8_000_000, 0.0, None)


def test_who_stands_still_has_no_time_left_to_tell() -> None:
    meter = meter_of(10 * GB)
    meter.take(layer(0, 1000, 10 * GB), 1.0)

    shown = [meter.snapshot(now) for now in (2.0, 500.0, 1e9)]

    assert [(now.rate, now.eta_s) for now in shown] == [(500.0, None), (2.0, None), (0.0, None)]


NUMBERS = st.integers(min_value=-(10**13), max_value=10**15)
STEPS = st.sampled_from(["model", "engine", "layers", "quantize"])
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        StepEvent,
        step=STEPS,
        state=st.sampled_from(get_args(StepState)),
        done=NUMBERS,
        size=NUMBERS,
        kept=NUMBERS,
        stage=st.sampled_from(["", "loading", "packing"]),
        units_done=NUMBERS.map(float),
        units=NUMBERS.map(float),
    ),
    st.builds(
        LayerEvent,
        layer=st.integers(0, 3),
        label=st.just("weights"),
        size=NUMBERS,
        done=NUMBERS,
        state=st.sampled_from(get_args(LayerState)),
    ),
    st.builds(StagesEvent, stages=st.lists(STEPS, unique=True).map(tuple)),
)
MOMENTS = st.tuples(st.one_of(st.floats(-5, 100), st.just(0.0)), EVENTS)


@settings(max_examples=200, deadline=None)
@given(sizes=st.lists(st.integers(0, 10**13), max_size=3), told=st.lists(MOMENTS, max_size=25))
def test_no_sequence_of_events_runs_backwards_or_shows_an_absurd_number(
    sizes: list[int], told: list[tuple[float, Event]]
) -> None:
    meter, now, before = meter_of(*sizes), 0.0, meter_of(*sizes).snapshot(0.0)
    for after, event in told:
        now += after
        meter.take(event, now)
        shown = meter.snapshot(now)
        assert shown.done >= before.done
        assert shown.share >= before.share
        earlier = {step.step: step for step in before.steps}
        for step in shown.steps:
            if step.step in earlier:
                assert step.share >= earlier[step.step].share
        for each in (shown, *shown.steps, *shown.active):
            assert 0 <= each.done <= each.size
            assert each.rate is None or each.rate >= 0
            assert each.eta_s is None or 0 <= each.eta_s <= LONGEST_LEFT_S
        assert "-" not in f"{total_line(shown)}{count_line(shown)}"
        before = shown


def test_stages_fill_in_the_order_in_which_they_begin() -> None:
    meter = Meter(0.0)
    meter.take(StagesEvent(stages=("model", "plan", "layers")), 0.0)
    meter.take(StepEvent(step="look", state="started"), 0.0)
    meter.take(StepEvent(step="look", state="finished"), 2.0)
    meter.take(StepEvent(step="model", state="started", detail="org/name"), 2.0)
    meter.take(StepEvent(step="hash", state="started"), 3.0)
    meter.take(StagesEvent(stages=("model", "plan", "quantize", "layers")), 4.0)

    shown = meter.snapshot(5.0).stages

    found = [[stage.name, stage.state, stage.seconds, stage.is_part] for stage in shown]
    assert found == read_tables(__file__)["stages"]


def test_a_notice_is_over_when_something_else_begins_or_ends() -> None:
    meter = Meter(0.0)
    meter.take(StepEvent(step="quantize", state="started"), 0.0)
    meter.take(StepEvent(step="cache", state="running", detail="waiting for another build"), 1.0)
    during = [step.step for step in meter.snapshot(2.0).steps]
    meter.take(StepEvent(step="quantize", state="finished"), 3.0)

    assert during == ["quantize", "cache"]
    assert [stage.name for stage in meter.snapshot(3.0).stages] == ["quantize"]


def test_a_part_of_a_command_is_followed_by_the_rest_of_it() -> None:
    seen: list[Event] = []
    tell = followed_by(seen.append, "start")

    tell(StagesEvent(stages=("model", "plan")))
    tell(StepEvent(step="model", state="started"))

    assert seen == [
        StagesEvent(stages=("model", "plan", "start")),
        StepEvent(step="model", state="started"),
    ]
