"""Events that library code reports while it works; the command line decides how they look.

Receivers are called from several threads and between two chunks of a transfer:
they must return at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

LayerState = Literal["known", "mounted", "hashing", "streaming", "written", "again"]
StepState = Literal["started", "running", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEstimate:
    """A stage of a step, as it is estimated before the step runs."""

    stage: str  # how the worker's messages of it begin
    seconds: float = 0.0  # 0: not known
    units: tuple[float, ...] = ()  # what each costs beside the others, and what is after the last


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """Work before or after the layers: finding the model, loading an engine."""

    step: str
    state: StepState
    detail: str = ""
    done: int = 0  # bytes; 0 of 0 where they are not counted
    size: int = 0
    kept: int = 0  # of the bytes done: present before, so not counted in the speed
    stage: str = ""  # a tool's own word for what it does now
    units_done: float = 0.0  # of the stage: layers, texts, steps
    units: float = 0.0  # 0 where they are not counted
    stages: tuple[StageEstimate, ...] = ()  # of a tool's run, when it starts


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesEvent:
    """The steps that a command will take, in order, as far as they are known by now."""

    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEvent:
    """An image is about to be written: the size of each layer, in order."""

    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEvent:
    """Progress of one layer of an image being written."""

    layer: int  # position in the image, from 0
    label: str
    size: int
    done: int  # bytes handled so far
    state: LayerState
    digest: str = ""  # once it is known


Event = StepEvent | StagesEvent | ImageEvent | LayerEvent
EventSink = Callable[[Event], None]


def followed_by(on_event: EventSink, *stages: str) -> EventSink:
    """Return a receiver that appends these stages to those of a part of a command."""

    def tell(event: Event) -> None:
        if isinstance(event, StagesEvent):
            event = StagesEvent(stages=(*event.stages, *stages))
        on_event(event)

    return tell


def harmless(on_event: EventSink) -> EventSink:
    """Return a receiver that never raises: a broken progress display never fails a build."""

    def tell(event: Event) -> None:
        with suppress(Exception):
            on_event(event)

    return tell


def ignore(*values: object) -> None:
    """No-op receiver of events or anything else that is reported."""


@contextmanager
def working(on_event: EventSink, step: str, detail: str = "") -> Iterator[None]:
    """Report one piece of work from its start to its end, also where it fails."""
    on_event(StepEvent(step=step, detail=detail, state="started"))
    try:
        yield
    except Exception:
        failed = f"{detail}, failed" if detail else "failed"
        on_event(StepEvent(step=step, detail=failed, state="finished"))
        raise
    on_event(StepEvent(step=step, detail=detail, state="finished"))
