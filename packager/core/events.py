"""What library code reports while it works; the command line decides how it looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEvent:
    """Progress of one layer of an image being written."""

    layer: int  # position in the image, from 0
    label: str
    size: int
    done: int  # bytes handled so far
    state: Literal["known", "hashing", "streaming", "written", "again"]


EventSink = Callable[[LayerEvent], None]


def ignore(event: LayerEvent) -> None:
    """Receive events and do nothing."""
