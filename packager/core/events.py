"""What library code reports while it works; the command line decides how it looks.

Receivers are called from several threads and between two chunks of a transfer:
they take note and return.
"""

from __future__ import annotations

from collections.abc import Callable
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
    stage: str = ""  # a tool's own word for what it does now
    units_done: float = 0.0  # of the stage: layers, texts, steps
    units: float = 0.0  # 0 where they are not counted
    stages: tuple[StageEstimate, ...] = ()  # of a tool's run, when it starts


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


Event = StepEvent | ImageEvent | LayerEvent
EventSink = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Receive events and do nothing."""
