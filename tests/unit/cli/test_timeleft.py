"""Time left of a step: from finished units, on a clock that the tests move."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.cli.meter import Meter
from packager.cli.timeleft import TimeLeft, share_done
from packager.core.events import StageEstimate, StepEvent
from tests.support.known import known
from tests.support.places import DATA

LOADING = StageEstimate(stage="loading the model", seconds=10.0)
LAYERS = StageEstimate(stage="quantizing", seconds=100.0, units=(0.0, *[1.0] * 10, 0.5))
PACKING = StageEstimate(stage="packing", seconds=20.0)

# What the worker reported while it quantized models of 12 layers, in seconds of the processor,
# which other work on the machine does not stretch.  2026-11-22; AMD EPYC (Zen 5), one thread.
LOGS: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "cli" / "step-logs.jsonl").read_text().splitlines()
]


def test_before_anything_is_finished_the_estimate_tells() -> None:
    timer = TimeLeft(stages=(LOADING, LAYERS, PACKING))
    assert TimeLeft().left(0.0) is None
    assert timer.left(0.0) == pytest.approx(130.0)

    timer.take(0.0, "loading the model", 0, 0)

    assert timer.left(4.0) == pytest.approx(6 + 100 + 20)


def test_finished_units_tell_more_than_the_estimate() -> None:
    timer = TimeLeft(stages=(LOADING, LAYERS, PACKING))
    timer.take(0.0, "loading the model", 0, 0)
    timer.take(10.0, "quantizing", 0, 0)
    for layer in range(4):  # the embedding, then layers that take 30 s and not 9.5
        timer.take(11.0 + 30 * layer, "quantizing", layer + 1, 11)

    # 7.5 of 10.5 are left, and packing takes three times as long as estimated, too.
    assert timer.left(101.0) == pytest.approx(7.5 * 30 + 20 * (10 + 315) / 110, rel=0.01)
    assert timer.left(111.0) == pytest.approx(7.5 * 30 - 10 + 20 * (10 + 315) / 110, rel=0.01)


def test_a_stage_that_takes_longer_than_estimated_delays_the_later_ones() -> None:
    timer = TimeLeft(stages=(LOADING, LAYERS, PACKING))
    timer.take(0.0, "loading the model", 0, 0)

    assert timer.left(10.0) == pytest.approx(120.0)
    assert timer.left(30.0) == pytest.approx(3 * 120.0)  # a busy machine


def test_the_embedding_and_the_head_are_no_layers() -> None:
    assert share_done(LAYERS, 1, 11) == 0.0
    assert share_done(LAYERS, 2, 11) == pytest.approx(1 / 10.5)
    assert share_done(LAYERS, 11, 11) == pytest.approx(10 / 10.5)
    assert share_done(StageEstimate(stage="comparing"), 3, 12) == 0.25


def test_blocks_of_an_earlier_run_tell_nothing_of_the_pace() -> None:
    timer = TimeLeft(stages=(LAYERS,))
    timer.take(0.0, "quantizing", 0, 0)
    timer.take(1.0, "quantizing", 9, 11)  # eight layers were kept
    assert timer.left(1.0) == pytest.approx(99.0)

    timer.take(41.0, "quantizing", 10, 11)

    assert timer.left(41.0) == pytest.approx(1.5 * 40)


def test_messages_with_figures_are_of_their_stage() -> None:
    timer = TimeLeft(stages=(StageEstimate(stage="training", seconds=5.0),))
    timer.take(0.0, "training, loss 4.210", 1, 100)
    timer.take(10.0, "training, loss 3.141", 11, 100)

    assert timer.left(10.0) == pytest.approx(89.0)


def test_stages_that_nobody_estimated_are_timed_by_their_units() -> None:
    timer = TimeLeft()
    timer.take(0.0, "answering", 0, 0)
    assert timer.left(5.0) is None
    timer.take(10.0, "answering", 5, 50)

    assert timer.left(10.0) == pytest.approx(90.0)


@pytest.mark.parametrize(("done", "total"), [(0, 0), (-1, 5), (9, 3), (1e308, 1e308)], ids=str)
def test_odd_counts_of_a_worker_break_nothing(done: float, total: float) -> None:
    timer = TimeLeft(stages=(LAYERS, PACKING))
    for now in (1.0, 2.0, 2.0, 1.5):
        timer.take(now, "quantizing", done, total)
        left = known(timer.left(now))
        assert 0 <= left < 1e6


def test_a_running_step_has_its_time_left_in_a_snapshot() -> None:
    meter = Meter(0.0)
    meter.take(StepEvent(step="quantize", state="started", stages=(LOADING, LAYERS)), 0.0)
    said = StepEvent(step="quantize", state="running", stage="loading the model")
    meter.take(said, 1.0)

    [step] = meter.snapshot(3.0).steps

    assert step.eta_s == pytest.approx(108.0)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: str(log["name"]))
def test_time_left_of_a_recorded_run_is_right_within_a_quarter_from_the_first_tenth_on(
    log: dict[str, Any],
) -> None:
    stages = tuple(
        StageEstimate(stage=name, seconds=seconds, units=tuple(units))
        for name, seconds, units in log["stages"]
    )
    timer = TimeLeft(stages=stages)
    end, wrong = log["events"][-1][0], []
    for now, stage, done, total in log["events"][:-1]:
        timer.take(now, stage, done, total)
        left = timer.left(now)
        if now >= end / 10 and (
            left is None or abs(left - (end - now)) > 0.25 * (end - now) + 0.02 * end
        ):
            wrong.append((now, stage, done, left, end - now))

    assert wrong == []
    assert sum(total > 0 for _, _, _, total in log["events"]) >= 12
