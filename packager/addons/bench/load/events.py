"""Events of a stream, taken out of the bytes as they come.

Server-sent events (html.spec.whatwg.org/multipage/server-sent-events.html) whose data are JSON,
or one JSON document a line (`application/jsonlines`, as LMI streams).  Servers leave out blank
lines between events and the newline at the end: an event is given as soon as its line is whole
JSON, so that its time is that of its own bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

DONE: Final = "[DONE]"
_MOST_LINES = 64  # of one document; each is tried again with the next


class InvalidEvent(ValueError):
    """Bytes in a stream that are not JSON."""


class EventReader:
    """Reads the events of one answer. `lines`: one document a line, without `data:`."""

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines
        self._begun: list[bytes] = []  # pieces of a line whose end has not come
        self._parted: list[bytes] = []  # lines of data that make one document together
        self._is_error = False  # the event's name is `error`

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the events that end in `data`: a JSON value, or `DONE`.

        Raises `InvalidEvent` for one that is no JSON.
        """
        *whole, rest = data.split(b"\n")
        if whole:
            self._begun.append(whole[0])
            whole[0] = b"".join(self._begun)
            self._begun = [rest] if rest else []
            for line in whole:
                event = self._common(line) if line else None
                if not line and not self._parted:
                    self._is_error = False
                elif event is None:
                    yield from self._line(line)
                else:
                    yield event
        elif rest:
            self._begun.append(rest)

    def only(self, data: bytes) -> Any:
        """Return the one event of nearly every read, and None for all else, which `feed` takes."""
        if (
            self._begun
            or self._parted
            or self._is_error
            or self._lines
            or not data.startswith(b"data: {")
            or data.find(b"\n") != len(data) - 2
            or not data.endswith(b"\n")
        ):
            return None
        try:
            return json.loads(data[6:-2].decode("utf-8"))
        except (ValueError, RecursionError):
            return None

    def end(self) -> Iterator[Any]:
        """Yield the last event where no newline ended it."""
        yield from self._line(b"".join(self._begun))
        self._begun = []
        yield from self._line(b"")

    def _common(self, line: bytes) -> Any:
        """Return the event of nearly every line, in half of the time; None for all others."""
        if self._parted or self._is_error or self._lines or not line.startswith(b"data: {"):
            return None
        try:
            return json.loads(line[6:].decode("utf-8"))
        except (ValueError, RecursionError):
            return None

    def _line(self, line: bytes) -> Iterator[Any]:
        line = line.strip()
        if self._lines:
            if line:
                yield _parsed(line)
            return
        if not line:
            self._is_error = False
            if self._parted:
                whole, self._parted = b"\n".join(self._parted), []
                yield _parsed(whole)
            return
        name, _, value = line.partition(b":")
        value = value.strip()
        if name == b"data":
            yield from self._data(value)
        elif name == b"event":
            self._is_error = value == b"error"

    def _data(self, value: bytes) -> Iterator[Any]:
        if value == b"[DONE]":
            yield DONE
        elif self._is_error:
            yield {"error": value.decode("utf-8", "replace")}
        elif value:
            try:
                yield _parsed(b"\n".join((*self._parted, value)))
                self._parted = []
            except InvalidEvent:
                begins = bool(self._parted) or value.startswith((b"{", b"["))
                if not begins or len(self._parted) == _MOST_LINES:
                    raise
                self._parted.append(value)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidEvent("a chunk of its answer is not JSON") from error
