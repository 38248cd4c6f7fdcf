"""What a server's event loop does for a capture: it draws, and keeps references."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from packager.core.capture.recorder import MAX_EXCHANGE, CapturePlace, Recorder
from packager.core.capture.rows import CapturedExchange, Options

OPT_OUT = "X-Packager-Capture"  # header; `off` keeps a request out of every capture


@dataclass(frozen=True)
class Capture:
    """Where the traffic of one server goes, and which share of it."""

    recorder: Recorder
    place: CapturePlace
    options: Options
    percent: int
    draw: Callable[[], float] = random.random  # from 0 to below 1

    def begin(self, request: bytes, content_type: str, inference_id: str = "") -> Kept | None:
        """Return what keeps this exchange; None where it is not among the share."""
        if self.percent < 100 and self.draw() * 100 >= self.percent:
            return None
        return Kept(self, request, content_type, inference_id)


class Kept:
    """References to the bytes of one exchange, up to a limit of it and of all that run."""

    __slots__ = (
        *("_capture", "_held", "_inference_id", "_kind", "_pieces", "_request", "_size"),
        "_started_s",
    )

    def __init__(self, capture: Capture, request: bytes, kind: str, inference_id: str) -> None:
        self._capture = capture
        self._request = request
        self._kind = kind
        self._inference_id = inference_id
        self._started_s = time.time()
        self._pieces: list[bytes] = []
        self._size = 0  # of all bytes that came
        self._held = 0  # of those that are kept
        self._count(len(request))

    def take(self, piece: bytes) -> None:
        """Keep a piece of the answer."""
        if self._count(len(piece)):
            self._pieces.append(piece)

    def drop(self) -> None:
        """Release what is kept: the request was refused, or is written."""
        self._capture.recorder.hold(-self._held)
        self._held = 0
        self._pieces = []
        self._request = b""

    def end(self, request_id: str, content_type: str, *, is_whole: bool = True) -> bool:
        """Offer what was kept of an answer that succeeded; return whether it was taken."""
        recorder = self._capture.recorder
        if self._size != self._held:
            is_large = self._size > MAX_EXCHANGE
            self.drop()
            return recorder.lose("too-large" if is_large else "queue-full")
        exchange = CapturedExchange(
            id=request_id,
            at_s=self._started_s,
            request=self._request,
            request_type=self._kind,
            answer=tuple(self._pieces),
            answer_type=content_type,
            is_whole=is_whole,
            inference_id=self._inference_id,
        )
        self.drop()
        return recorder.offer(self._capture.place, self._capture.options, exchange)

    def _count(self, size: int) -> bool:
        """Return whether so many more bytes may be kept, as all before them were."""
        was_kept = self._size == self._held
        self._size += size
        if was_kept and self._size <= MAX_EXCHANGE and self._capture.recorder.hold(size):
            self._held += size
            return True
        if was_kept and size:
            self.drop()
        return False
