"""Displays of progress for logs and for programs. `bars` has the one for people at a terminal.

A display is called by one thread that does nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from packager.cli.meter import Amount, LayerNow, Snapshot, StepNow
from packager.core.events import ImageEvent, StepEvent, StepState
from packager.core.text import escape
from packager.core.units import counted, decimal

HEARTBEAT_S = 30.0
BEGUN_S = 1.0  # what takes less has a line when it ends
JSON_EVERY_S = 1.0
LONG_S = 60.0  # a step that is estimated to take so long is announced

Write = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNews:
    """A step that began or ended."""

    event: StepEvent
    seconds: float


News = StepNews | ImageEvent | LayerNow
Dated = tuple[float, News]  # seconds since the start, and the news of that moment


class Display(Protocol):
    """Shows news and the state of all work."""

    interval_s: float  # how often it wants to be called

    def show(self, news: Sequence[Dated], now: Snapshot) -> None:
        """Draw, or write lines."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


class LineDisplay:
    """A line for each step and layer that is done, and one now and then in between."""

    interval_s = 0.5

    def __init__(self, write: Write) -> None:
        self._write = write
        self._last = 0.0
        self._finished = 0
        self._begun: set[str] = set()

    def show(self, news: Sequence[Dated], now: Snapshot) -> None:
        """Write what began and was finished; after a while of silence, the progress."""
        announced = {stage.name for stage in now.stages if stage.is_announced}
        lines = [line for _, item in news if (line := self._news_line(item, now.layers, announced))]
        lines += self._begun_lines(now)
        if now.elapsed_s - self._last >= HEARTBEAT_S:
            lines += [
                f"{_named(step.step, step.detail)}, {clock(step.seconds)} so far{_of(step)}"
                for step in now.steps
            ]
            lines += [total_line(now)] if now.active else []
            self._last = now.elapsed_s
        for line in lines:
            self._write(escape(line) + "\n")

    def close(self) -> None:
        """No-op."""

    def _begun_lines(self, now: Snapshot) -> list[str]:
        """Return a line for each stage that did not end at once."""
        begun = [
            stage
            for stage in now.stages
            if stage.state == "running"
            and stage.is_announced
            and stage.name not in self._begun
            and BEGUN_S <= stage.seconds < HEARTBEAT_S
        ]
        self._begun |= {stage.name for stage in begun}
        return [f"{_named(stage.name, stage.detail)}, begun" for stage in begun]

    def _news_line(self, item: News, layers: int, announced: Collection[str]) -> str:
        match item:
            case StepNews(event=StepEvent(state="started") as event) if expected(event) >= LONG_S:
                self._begun.add(event.step)
                about = clock(expected(event))
                return f"{_named(event.step, event.detail)}, about {about} (estimated)"
            case StepNews(event=StepEvent(state="finished") as event) if (
                item.seconds >= 1 or event.step in announced
            ):
                return f"{_named(event.step, event.detail)}, {item.seconds:.1f} s"
            case ImageEvent(layers=sizes):
                self._finished = 0
                return f"image: {counted(len(sizes), 'layer')}, {decimal(sum(sizes))}"
            case LayerNow(state="again"):
                return f"{label_of(item)}: broke off, sending again"
            case LayerNow(state=state) if state in _SAID:
                self._finished += 1
                count = f"{self._finished} of {layers}"
                return f"layer {count}: {label_of(item)}, {decimal(item.size)} {_SAID[state]}"
        return ""


class JsonLines:
    """An event a line, as `docs/jobs.md` describes them."""

    interval_s = JSON_EVERY_S

    def __init__(self, write: Write) -> None:
        self._write = write
        self._total: dict[str, Any] = {}

    def show(self, news: Sequence[Dated], now: Snapshot) -> None:
        """Write what is new, then the state of the layers under way and of all of them."""
        shown = set()
        for at, item in news:
            self._say(_news_event(item), at)
            if isinstance(item, LayerNow):
                shown.add(item.layer)
        for step in now.steps:
            if step.seconds >= JSON_EVERY_S:
                self._say(_running_event(step), now.elapsed_s)
        for layer in now.active:
            if layer.layer not in shown:
                self._say(_layer_event(layer), now.elapsed_s)
        total = _total_event(now)
        if now.layers and total != self._total:
            self._total = total
            self._say(total, now.elapsed_s)

    def close(self) -> None:
        """No-op."""

    def _say(self, event: Mapping[str, Any], elapsed_s: float) -> None:
        self._write(json.dumps({**event, "elapsed_s": round(elapsed_s, 3)}) + "\n")


def total_line(now: Snapshot | StepNow) -> str:
    """Return the total in a line: `43 %, 61.2 GB of 141.1 GB, 812.0 MB/s, 1:38 left`."""
    parts = [f"{percent(now.share)}, {decimal(now.done)} of {decimal(now.size)}"]
    if now.rate:
        parts.append(f"{decimal(now.rate)}/s")
    if now.rate and now.eta_s:
        parts.append(f"{clock(now.eta_s)} left")
    return ", ".join(parts)


def count_line(now: Snapshot) -> str:
    """Return the layers' states: `23 of 30 layers: 4 mounted (2.2 GB), 19 streamed (90.1 GB)`."""
    amounts = (("mounted", now.mounted), ("known", now.known), ("streamed", now.streamed))
    parts = [
        f"{amount.layers} {name} ({decimal(amount.bytes)})"
        for name, amount in amounts
        if amount.layers
    ]
    return f"{now.layers_done} of {now.layers} layers" + (": " + ", ".join(parts) if parts else "")


def percent(share: float) -> str:
    """A share in percent; never 100 before the end."""
    return f"{int(100 * min(max(share, 0.0), 1.0))} %"


def clock(seconds: float) -> str:
    """A duration as a clock shows it: `1:38`, `2:03:10`."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def label_of(layer: LayerNow) -> str:
    """Return a layer's name without the size, which is shown beside it."""
    name = layer.label.removeprefix("packager: ")
    return name.partition(" (")[0].strip() or "layer"


def expected(event: StepEvent) -> float:
    """Return the estimated seconds of a step that starts; 0.0 where unknown."""
    return sum(stage.seconds for stage in event.stages)


_SAID = {
    "known": "known beforehand",
    "mounted": "mounted, not sent",
    "written": "written",
}


def _named(step: str, detail: str) -> str:
    return f"{step}: {detail}" if detail else step


def _of(step: StepNow) -> str:
    if step.size:
        return f", {total_line(step)}"
    return f", about {clock(step.eta_s)} left" if step.eta_s else ""


def _news_event(item: News) -> Mapping[str, Any]:
    match item:
        case StepNews(event=event, seconds=seconds):
            return _step_event(event, event.state, seconds)
        case ImageEvent(layers=sizes):
            return {"event": "image", "layers": len(sizes), "total": sum(sizes)}
        case LayerNow():
            return _layer_event(item)


def _running_event(step: StepNow) -> Mapping[str, Any]:
    return _step_event(step, "running", step.seconds)


def _step_event(step: StepEvent | StepNow, state: StepState, seconds: float) -> Mapping[str, Any]:
    return {
        "event": "step",
        "step": step.step,
        "state": state,
        "detail": step.detail,
        "bytes": step.done,
        "total": step.size or None,
        "seconds": round(seconds, 3),
        "eta_s": _number(step.eta_s if isinstance(step, StepNow) else expected(step) or None),
    }


def _layer_event(layer: LayerNow) -> Mapping[str, Any]:
    return {
        "event": "layer",
        "layer": layer.layer,
        "label": label_of(layer),
        "state": layer.state,
        "digest": layer.digest or None,
        "bytes": layer.passed,
        "total": layer.size,
        "rate": _number(layer.rate),
        "eta_s": _number(layer.eta_s),
    }


def _total_event(now: Snapshot) -> dict[str, Any]:
    return {
        "event": "total",
        "layers": now.layers,
        "layers_done": now.layers_done,
        "bytes": now.done,
        "total": now.size,
        "rate": _number(now.rate),
        "eta_s": _number(now.eta_s),
        "known": _amount(now.known),
        "mounted": _amount(now.mounted),
        "streamed": _amount(now.streamed),
    }


def _amount(amount: Amount) -> Mapping[str, int]:
    return {"layers": amount.layers, "bytes": amount.bytes}


def _number(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
