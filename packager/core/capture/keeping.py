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
    """References to the bytes of one exchange, up to a limit."""

    __slots__ = ("_capture", "_inference_id", "_kind", "_pieces", "_request", "_size", "_started_s")

    def __init__(self, capture: Capture, request: bytes, kind: str, inference_id: str) -> None:
        self._capture = capture
        self._request = request
        self._kind = kind
        self._inference_id = inference_id
        self._started_s = time.time()
        self._pieces: list[bytes] = []
        self._size = len(request)

    def take(self, piece: bytes) -> None:
        """Keep a piece of the answer."""
        self._size += len(piece)
        if self._size <= MAX_EXCHANGE:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def end(self, request_id: str, content_type: str, *, is_whole: bool = True) -> bool:
        """Offer what was kept of an answer that succeeded; return whether it was taken."""
        capture = self._capture
        if self._size > MAX_EXCHANGE:
            return capture.recorder.lose("too-large")
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
        return capture.recorder.offer(capture.place, capture.options, exchange)
