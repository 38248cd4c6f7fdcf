"""What events add up to: how much is done, how fast, and how long the rest takes.

Without a clock of its own, so that tests can say what time it is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from packager.cli.timeleft import TimeLeft
from packager.core.events import Event, ImageEvent, LayerEvent, LayerState, StepEvent

WINDOW_S = 15.0  # a rate over less jumps about, over more it lags behind
_SAMPLE_S = 0.25
_LEAST_S = 1.0  # before that a rate is a guess
_DONE: frozenset[LayerState] = frozenset({"known", "mounted", "written"})


class Rate:
    """Bytes a second over the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, moved: int) -> None:
        """Note how many bytes have moved until now; a number that never falls."""
        samples = self._samples
        if len(samples) > 1 and now - samples[-2][0] < _SAMPLE_S:
            samples[-1] = (now, moved)
        else:
            samples.append((now, moved))
        while len(samples) > 2 and now - samples[1][0] >= WINDOW_S:
            samples.popleft()

    def at(self, now: float) -> float | None:
        """The rate now; None while it is too early to say."""
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
    """A layer as it stands."""

    layer: int
    label: str
    state: LayerState
    digest: str
    done: int
    size: int
    rate: float | None
    eta_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNow:
    """A step that is under way."""

    step: str
    detail: str
    done: int
    size: int
    seconds: float
    rate: float | None
    eta_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything at one moment."""

    elapsed_s: float
    layers: int
    layers_done: int
    done: int
    size: int
    rate: float | None
    eta_s: float | None
    known: Amount
    mounted: Amount
    streamed: Amount
    active: tuple[LayerNow, ...]
    steps: tuple[StepNow, ...]


@dataclass(slots=True)
class _Layer:
    size: int
    label: str = ""
    state: LayerState | None = None
    digest: str = ""
    done: int = 0
    moved: int = 0
    rate: Rate = field(default_factory=Rate)


@dataclass(slots=True)
class _Step:
    event: StepEvent
    started: float
    rate: Rate = field(default_factory=Rate)
    left: TimeLeft = field(default_factory=TimeLeft)


class Meter:
    """Adds events up. Not for several threads at once."""

    def __init__(self, now: float) -> None:
        self._started = now
        self._layers: dict[int, _Layer] = {}
        self._steps: dict[str, _Step] = {}
        self._moved = 0
        self._rate = Rate()

    def take(self, event: Event, now: float) -> float:
        """Add an event; give the seconds its step has taken, 0 for other events."""
        match event:
            case ImageEvent(layers=sizes):
                self._layers = {number: _Layer(size) for number, size in enumerate(sizes)}
                self._rate.add(now, self._moved)
            case LayerEvent():
                self._take_layer(event, now)
            case StepEvent():
                step = self._steps.setdefault(event.step, _Step(event, now))
                step.event = event
                step.rate.add(now, event.done)
                if event.stages:
                    step.left.stages = event.stages
                if event.stage:
                    step.left.take(now, event.stage, event.units_done, event.units)
                if event.state == "finished":
                    del self._steps[event.step]
                return now - step.started
        return 0.0

    def layer(self, number: int, now: float) -> LayerNow:
        """One layer as it stands."""
        found = self._layers[number]
        rate = None if found.state in _DONE else found.rate.at(now)
        return LayerNow(
            layer=number,
            label=found.label,
            state=found.state or "streaming",
            digest=found.digest,
            done=found.done,
            size=found.size,
            rate=rate,
            eta_s=_eta(found.size - found.done, rate),
        )

    def snapshot(self, now: float) -> Snapshot:
        """Everything as it stands."""
        layers = self._layers.values()
        size, done = sum(each.size for each in layers), sum(each.done for each in layers)
        rate = self._rate.at(now)
        return Snapshot(
            elapsed_s=now - self._started,
            layers=len(layers),
            layers_done=sum(each.state in _DONE for each in layers),
            done=done,
            size=size,
            rate=rate,
            eta_s=_eta(size - done, rate),
            known=self._amount("known"),
            mounted=self._amount("mounted"),
            streamed=self._amount("written"),
            active=tuple(
                self.layer(number, now)
                for number, each in self._layers.items()
                if each.state is not None and each.state not in _DONE
            ),
            steps=tuple(_step_now(step, now) for step in self._steps.values()),
        )

    def _take_layer(self, event: LayerEvent, now: float) -> None:
        layer = self._layers.setdefault(event.layer, _Layer(event.size))
        if layer.state is None:
            layer.rate.add(now, 0)
        layer.size, layer.label, layer.state = event.size, event.label, event.state
        layer.digest = event.digest or layer.digest
        if event.state in ("hashing", "streaming", "written"):
            # Only what went through our hands counts: a mounted layer is no speed.
            moved = max(0, event.done - layer.done)
            layer.moved += moved
            self._moved += moved
            layer.rate.add(now, layer.moved)
            self._rate.add(now, self._moved)
        layer.done = event.size if event.state in _DONE else event.done

    def _amount(self, state: LayerState) -> Amount:
        sizes = [layer.size for layer in self._layers.values() if layer.state == state]
        return Amount(layers=len(sizes), bytes=sum(sizes))


def _step_now(step: _Step, now: float) -> StepNow:
    event, rate = step.event, step.rate.at(now)
    return StepNow(
        step=event.step,
        detail=event.detail,
        done=event.done,
        size=event.size,
        seconds=now - step.started,
        rate=rate,
        eta_s=_eta(event.size - event.done, rate) if event.size else step.left.left(now),
    )


def _eta(left: int, rate: float | None) -> float | None:
    if left <= 0:
        return 0.0
    return left / rate if rate else None
