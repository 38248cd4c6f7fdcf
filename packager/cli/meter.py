"""Totals of events: work done, rate, and remaining time.

Without a clock of its own, so that tests can set the time.  Whatever the numbers of the events,
and in whatever order they come, what is done never falls, and rates and times are never negative.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from packager.cli.timeleft import TimeLeft
from packager.core.events import (
    Event,
    ImageEvent,
    LayerEvent,
    LayerState,
    StagesEvent,
    StepEvent,
)

WINDOW_S = 15.0  # a rate over less jumps about, over more it lags behind
LONGEST_LEFT_S = 100 * 3600.0  # a transfer that slow has stalled: its remaining time means nothing
_SAMPLE_S = 0.25
_LEAST_S = 1.0  # before that a rate is a guess
_DONE: frozenset[LayerState] = frozenset({"known", "mounted", "written"})

StageState = Literal["waiting", "running", "done"]


class Rate:
    """Bytes a second over the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, moved: int) -> None:
        """Add a sample: bytes moved until `now`. What falls, bytes or time, stays where it was."""
        samples = self._samples
        if samples:
            now, moved = max(now, samples[-1][0]), max(moved, samples[-1][1])
        if len(samples) > 1 and now - samples[-2][0] < _SAMPLE_S:
            samples[-1] = (now, moved)
        else:
            samples.append((now, moved))
        while len(samples) > 2 and now - samples[1][0] >= WINDOW_S:
            samples.popleft()

    def at(self, now: float) -> float | None:
        """Return the current rate; None while it is too early."""
        if not self._samples:
            return None
        started, before = self._samples[0]
        seconds = now - started
        return (self._samples[-1][1] - before) / seconds if seconds >= _LEAST_S else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Layers of one kind, and their bytes."""

    layers: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNow:
    """The current state of a layer."""

    layer: int
    label: str
    state: LayerState
    digest: str
    passed: int  # bytes of the pass under way: hashing, sending, sending again
    done: int  # bytes of the whole work, of which hashing is half where sending follows
    size: int
    rate: float | None
    eta_s: float | None

    @property
    def share(self) -> float:
        return self.done / self.size if self.size else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNow:
    """A step that is under way."""

    step: str
    detail: str
    done: int
    size: int
    share: float  # done of all, which never falls even where more work turns up
    seconds: float
    rate: float | None
    eta_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNow:
    """A stage of the command: one that is over, under way, or still to come."""

    name: str
    state: StageState
    detail: str = ""
    seconds: float = 0.0
    is_announced: bool = True
    is_part: bool = False  # of the stage before it
    step: StepNow | None = None  # while it is under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of all layers and steps at one moment."""

    elapsed_s: float
    layers: int
    layers_done: int
    done: int
    size: int
    share: float
    rate: float | None
    eta_s: float | None
    known: Amount
    mounted: Amount
    streamed: Amount
    active: tuple[LayerNow, ...]
    steps: tuple[StepNow, ...]
    stages: tuple[StageNow, ...] = ()


@dataclass(slots=True)
class _Work:
    """Bytes of some work; totals never decrease, whatever events report."""

    done: int = 0
    size: int = 0
    share: float = 0.0

    def take(self, done: int, size: int) -> None:
        self.size = max(self.size, size)
        self.done = max(self.done, min(done, self.size))
        if self.size:
            self.share = max(self.share, self.done / self.size)


@dataclass(slots=True)
class _Layer:
    size: int  # as it was announced: what there is to do
    label: str = ""
    state: LayerState | None = None
    digest: str = ""
    hashed: bool = False
    passed: int = 0
    written: int = 0  # the size in the end, smaller where it was compressed on the way
    done: int = 0
    moved: int = 0
    rate: Rate = field(default_factory=Rate)


@dataclass(slots=True)
class _Step:
    event: StepEvent
    started: float
    work: _Work = field(default_factory=_Work)
    rate: Rate = field(default_factory=Rate)
    left: TimeLeft = field(default_factory=TimeLeft)
    is_notice: bool = False  # it never started: it is over when something else begins or ends


@dataclass(slots=True)
class _Stage:
    """A stage that has begun; it may begin again, and its times add up."""

    detail: str
    seconds: float = 0.0


class Meter:
    """Adds events up. Not for several threads at once."""

    def __init__(self, now: float) -> None:
        self._started = now
        self._layers: dict[int, _Layer] = {}
        self._steps: dict[str, _Step] = {}
        self._announced: tuple[str, ...] = ()
        self._begun: dict[str, _Stage] = {}  # in the order in which they first began
        self._moved = 0
        self._share = 0.0
        self._rate = Rate()

    def take(self, event: Event, now: float) -> float:
        """Add an event; give the seconds its step has taken, 0 for other events."""
        match event:
            case ImageEvent(layers=sizes):
                self._layers = {number: _Layer(max(0, size)) for number, size in enumerate(sizes)}
                self._share = 0.0
                self._rate.add(now, self._moved)
            case LayerEvent():
                self._take_layer(event, now)
            case StagesEvent(stages=stages):
                self._announced = stages
            case StepEvent():
                return self._take_step(event, now)
        return 0.0

    def layer(self, number: int, now: float) -> LayerNow:
        """Return the state of one layer."""
        found = self._layers[number]
        ended = found.state in _DONE
        rate = None if ended else _rounded_rate(found.rate.at(now))
        return LayerNow(
            layer=number,
            label=found.label,
            state=found.state or "streaming",
            digest=found.digest,
            passed=found.written if ended else found.passed,
            done=found.written if ended else found.done,
            size=found.written if ended else found.size,
            rate=rate,
            eta_s=0.0 if ended else _eta(found.size - found.passed, rate),
        )

    def snapshot(self, now: float) -> Snapshot:
        """Return the state of everything."""
        layers = self._layers.values()
        size, done = sum(each.size for each in layers), sum(each.done for each in layers)
        if size:
            self._share = max(self._share, done / size)
        elif layers and all(each.state in _DONE for each in layers):
            self._share = 1.0
        rate = _rounded_rate(self._rate.at(now))
        left = sum(0 if each.state in _DONE else each.size - each.passed for each in layers)
        steps = tuple(_step_now(step, now) for step in self._steps.values())
        return Snapshot(
            elapsed_s=max(0.0, now - self._started),
            layers=len(layers),
            layers_done=sum(each.state in _DONE for each in layers),
            done=done,
            size=size,
            share=self._share,
            rate=rate,
            eta_s=_eta(left, rate),
            known=self._amount("known"),
            mounted=self._amount("mounted"),
            streamed=self._amount("written"),
            active=tuple(
                self.layer(number, now)
                for number, each in self._layers.items()
                if each.state is not None and each.state not in _DONE
            ),
            steps=steps,
            stages=self._stages({step.step: step for step in steps}),
        )

    def _take_layer(self, event: LayerEvent, now: float) -> None:
        size = max(0, event.size)
        layer = self._layers.setdefault(event.layer, _Layer(size))
        if layer.state is None:
            layer.rate.add(now, 0)
        begins_anew = event.state != layer.state
        layer.label, layer.state = event.label, event.state
        layer.digest = event.digest or layer.digest
        passed = min(max(0, event.done), layer.size)
        if event.state in ("hashing", "streaming", "written"):
            # Only transferred bytes count: a mounted layer has no speed.
            before = 0 if begins_anew and event.state != "written" else layer.passed
            moved = max(0, passed - before)
            layer.moved += moved
            self._moved += moved
            layer.rate.add(now, layer.moved)
            self._rate.add(now, self._moved)
            layer.passed = passed if begins_anew else max(layer.passed, passed)
        elif event.state == "again":
            layer.passed = 0
        layer.hashed = layer.hashed or event.state == "hashing"
        if event.state in _DONE:
            layer.written, layer.done, layer.passed = size, layer.size, layer.size
        elif event.state == "hashing":
            layer.done = max(layer.done, layer.passed // 2)
        else:
            layer.done = max(
                layer.done, (layer.size + layer.passed) // 2 if layer.hashed else layer.passed
            )

    def _take_step(self, event: StepEvent, now: float) -> float:
        if event.state != "running":
            self._drop_notices(event.step)
        is_notice = event.state == "running"
        step = self._steps.setdefault(event.step, _Step(event, now, is_notice=is_notice))
        step.is_notice = step.is_notice and is_notice
        stage = self._begun.setdefault(event.step, _Stage(event.detail))
        step.event = event
        stage.detail = event.detail
        step.work.take(event.done, event.size)
        step.rate.add(now, step.work.done - min(event.kept, step.work.done))
        if event.stages:
            step.left.stages = event.stages
        if event.stage:
            step.left.take(now, event.stage, event.units_done, event.units)
        seconds = max(0.0, now - step.started)
        if event.state == "finished":
            del self._steps[event.step]
            stage.seconds += seconds
        return seconds

    def _drop_notices(self, besides: str) -> None:
        over = [name for name, step in self._steps.items() if step.is_notice and name != besides]
        for name in over:
            del self._steps[name]
            del self._begun[name]

    def _stages(self, steps: dict[str, StepNow]) -> tuple[StageNow, ...]:
        """Return the stages that have begun, in that order, then the announced ones."""
        stages: list[StageNow] = []
        is_within = False  # a stage that was announced and is under way
        for name, stage in self._begun.items():
            step = steps.get(name)
            is_own = name in self._announced
            stages.append(
                StageNow(
                    name=name,
                    state="running" if step else "done",
                    detail=stage.detail,
                    seconds=stage.seconds + (step.seconds if step else 0.0),
                    is_announced=is_own,
                    is_part=is_within and not is_own,
                    step=step,
                )
            )
            is_within = step is not None if is_own else is_within
        waiting = (name for name in self._announced if name not in self._begun)
        stages.extend(StageNow(name=name, state="waiting") for name in waiting)
        return tuple(stages)

    def _amount(self, state: LayerState) -> Amount:
        sizes = [layer.written for layer in self._layers.values() if layer.state == state]
        return Amount(layers=len(sizes), bytes=sum(sizes))


def _step_now(step: _Step, now: float) -> StepNow:
    event, work, rate = step.event, step.work, _rounded_rate(step.rate.at(now))
    left = _eta(work.size - work.done, rate) if work.size else _sane(step.left.left(now))
    return StepNow(
        step=event.step,
        detail=event.detail,
        done=work.done,
        size=work.size,
        share=work.share,
        seconds=max(0.0, now - step.started),
        rate=rate,
        eta_s=left,
    )


def _rounded_rate(rate: float | None) -> float | None:
    """Return the rate, with less than a byte a second rounded to 0."""
    return rate if rate is None or rate >= 1 else 0.0


def _eta(left: int, rate: float | None) -> float | None:
    if left <= 0:
        return 0.0
    return _sane(left / rate) if rate else None


def _sane(eta_s: float | None) -> float | None:
    return eta_s if eta_s is not None and eta_s <= LONGEST_LEFT_S else None
