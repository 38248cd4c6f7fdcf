"""HTTP exchanges that a proxy or a server passes on, as captures keep them.

Names of headers are in lower case.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Mapping

from packager.core.capture.keeping import Capture, Kept
from packager.core.capture.settings import is_captured, open_capture, read_settings

_SWITCH_S = 0.0005  # after which the thread that makes rows lets answers go on
_JSON = b"application/json"

_log = logging.getLogger(__name__)


def capture_of(text: str) -> HttpCapture | None:
    """Return the capture that a variable describes, None without one.

    A wrong value costs captures and no requests.
    """
    try:
        settings = read_settings(text)
    except (ValueError, TypeError) as error:
        _log.warning("nothing is captured: %r", error)
        return None
    if settings is None:
        return None
    sys.setswitchinterval(_SWITCH_S)
    return HttpCapture(open_capture(settings))


class HttpCapture:
    """Keeps exchanges; a thread of its own makes rows of them."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.counts = capture.recorder.counts
        self.close = capture.recorder.close

    def begin(
        self, method: bytes, path: bytes, headers: Mapping[bytes, bytes], body: bytes | bytearray
    ) -> KeptAnswer | None:
        """Return what keeps an exchange; None for one that is not captured."""
        if not is_captured(method, path, headers):
            return None
        kind = headers.get(b"content-type", _JSON).decode("latin-1")
        kept = self._capture.begin(bytes(body), kind)
        return KeptAnswer(kept) if kept is not None else None


class KeptAnswer:
    """The answer to a request that is captured, unless it turns out to be a refusal."""

    __slots__ = ("_kept", "_kind", "is_whole")

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._kind = ""
        self.is_whole = False

    def head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Decide by the head of the answer whether it is kept."""
        if status == 200 and b"content-encoding" not in headers:
            self._kind = headers.get(b"content-type", _JSON).decode("latin-1")

    def take(self, piece: bytes) -> None:
        """Keep a piece of the answer."""
        if self._kind:
            self._kept.take(piece)

    def close(self) -> None:
        """Offer the answer, or drop what is no answer."""
        if self._kind:
            self._kept.end(str(uuid.uuid4()), self._kind, is_whole=self.is_whole)
        else:
            self._kept.drop()
